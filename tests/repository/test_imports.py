"""A command imports only what it uses: packages that take seconds are those of the commands that need them."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tiny import prepare, tiny_experiment

LLAVA = "transformers.models.llava"  # a model that sees images
SLOW = ("torch", "transformers", "verl", "ray", "sglang", "sklearn", "scipy", "pandas", "matplotlib", "mlflow", LLAVA)
PROGRAM = f"""
import sys
from srpo.cli import main
assert main(sys.argv[1:]) == 0
print(*sys.modules.keys() & set({SLOW}))
"""

BASE, RUN = "results/base/miniature-tiny/physics", "results/runs/miniature-tiny/physics/srpo/seed1"
TOKENIZER = {"torch", "transformers"}
COMMANDS = {
    "experiment smoke": set(),
    "plan smoke": {"scipy"},
    "split results/data/physics/train.parquet": {"pandas"},  # pyarrow looks for it when it writes
    "statistics results/data/physics/statistics.json": set(),
    f"gap {BASE}/gap.json": TOKENIZER | {"scipy"},
    f"evaluate {BASE}/evaluation.json": TOKENIZER,
    f"train {RUN}/summary.json": TOKENIZER | {"verl", "ray", "pandas"},
    f"evaluate {RUN}/evaluation.json": TOKENIZER,
    "report results --only-tables": {"pandas", "scipy"},
    "track sync results": {"pandas", "scipy", "mlflow"},
}
"""In the order of the workflow; and which of the slow packages each may import."""


@pytest.mark.slow
def test_a_command_imports_only_what_it_uses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    experiment = tiny_experiment("srpo", max_steps=1)
    folder = prepare(experiment, tmp_path)[1].folder
    (folder / "experiment.yaml").write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    more = {}
    for command, allowed in COMMANDS.items():
        words = [sys.executable, "-c", PROGRAM, *command.replace("results", str(folder)).split()]
        printed = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
        more[command] = {*printed.splitlines()[-1].split()} - allowed
    assert more == {command: set() for command in COMMANDS}


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
print(*{{*{SLOW}, 'snakemake'}} & ({{*sys.modules}} - known))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
