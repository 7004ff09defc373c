"""A verb imports only what it uses: packages that take seconds are those of the verbs that need them."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from synthetic import write_results
from tiny import prepare, tiny_experiment

from srpo.ground.imports import gc_paused
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
    # by hand, a verb looks whether the folder is of a published experiment; so does pyarrow when it writes
    assert imported("split", layout.split("physics", "train")) <= {"pandas"}
    assert imported("statistics", layout.statistics("physics")) <= {"pandas"}


def test_evaluation_of_a_base_model_needs_torch_and_a_tokenizer(layout: Layout) -> None:
    found = imported("evaluate", layout.base_files("miniature-tiny", "physics").evaluation)
    assert found - {"pandas"} == {"torch", "transformers"}
    assert layout.base_files("miniature-tiny", "physics").evaluation.exists()


def test_tables_need_no_model(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "tiny")
    write_results(layout.folder, tiny_experiment("srpo", budget_seconds={"1h": 3}))
    found = imported("report", layout.folder, "--only", "tables")
    assert not found & {"torch", "transformers", "verl", "ray", "mlflow"}
    assert list(layout.tables.glob("*.csv"))


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


def test_the_collector_rests_while_modules_are_imported() -> None:
    with gc_paused():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), gc_paused():
        raise ImportError
    assert gc.isenabled()
