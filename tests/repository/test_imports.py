"""A verb imports only what it uses: packages that take seconds are those of the verbs that need them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import yaml
from tiny import prepare, tiny_experiment

from srpo.ground.layout import Layout

SLOW = ("torch", "transformers", "verl", "ray", "sklearn", "scipy", "pandas", "matplotlib", "mlflow")
PROGRAM = f"""
import sys
from srpo.cli import main
assert main(sys.argv[1:]) == 0
print(*sys.modules.keys() & set({SLOW}))
"""


def imported(*arguments: object) -> set[str]:
    """Run a verb in a process of its own: the slow packages it has imported at its end."""
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.splitlines()[-1].split())


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    """Splits and a random base model."""
    experiment = tiny_experiment("srpo")
    layout = prepare(experiment, tmp_path_factory.mktemp("results"))[1]
    layout.experiment.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    return layout


def test_data_needs_none_of_them(layout: Layout) -> None:
    assert imported("split", layout.split("physics", "train")) <= {"pandas"}  # pyarrow looks for it when it writes
    assert not imported("statistics", layout.statistics("physics"))


def test_evaluation_of_a_base_model_needs_torch_and_a_tokenizer(layout: Layout) -> None:
    found = imported("evaluate", layout.base_files("miniature-tiny", "physics").evaluation)
    assert found == {"torch", "transformers"}
    assert layout.base_files("miniature-tiny", "physics").evaluation.exists()


def test_the_workflow_reads_the_outline_without_loading_the_wings() -> None:
    code = "import sys, srpo.analysis.outline; print(*{'pandas', 'matplotlib', 'scipy', 'torch'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_the_functions_for_other_loops_need_torch_alone() -> None:
    code = f"""
import sys, srpo
assert not {{*{SLOW}}} & {{*sys.modules}}
import torch
known = {{*sys.modules}}
srpo.loss, srpo.route, srpo.load_method, srpo.teacher_messages
print(*{{*{SLOW}, 'snakemake', 'tensordict'}} & ({{*sys.modules}} - known))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
