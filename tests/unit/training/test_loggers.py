"""A copy of the training runs in another of verl's loggers."""

import json
import re
from pathlib import Path

import pytest
from synthetic import tiny_experiment, write_results

from srpo.cli import main
from srpo.experiment.compose import load_experiment
from srpo.ground.files import read_events
from srpo.ground.layout import RunId

RUN = RunId(model="miniature-small", benchmark="physics", method="srpo", seed=1)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VERL_FILE_LOGGER_ROOT", str(tmp_path))
    folder = tmp_path / "results" / "tiny"
    write_results(folder, load_experiment(tiny_experiment()), keep=lambda run: run == RUN)
    return folder


def test_every_number_of_steps_and_validations_arrives_at_its_step(results, tmp_path, capsys):
    assert main(["track", "copy", str(results), "--to", "file"]) == 0
    assert "srpo-seed1-physics-miniature-small: copied" in capsys.readouterr().out
    copy = tmp_path / "tiny" / "srpo-seed1-physics-miniature-small.jsonl"
    lines = [json.loads(line) for line in copy.read_text().splitlines()]
    assert [line["step"] for line in lines] == sorted({line["step"] for line in lines})
    folder = results / "runs" / RUN.path
    for log, key in (("steps.jsonl", "reward/mean"), ("validations.jsonl", "validation/avg_at_k")):
        copied = [(line["step"], line["data"][key]) for line in lines if key in line["data"]]
        events = list(read_events(folder / log))
        values = [event["metrics"][key] if "metrics" in event else event["avg_at_k"] for event in events]
        assert copied == list(zip([event["step"] for event in events], values, strict=True))
        assert copied


@pytest.mark.parametrize(
    ("logger", "says"),
    [
        ("wandbb", r"--to wandbb: give one of wandb, .*; srpo track sync copies to MLflow"),
        ("mlflow", r"--to mlflow: give one of wandb, "),
        ("swanlab", r"--to swanlab: package swanlab is missing"),
    ],
)
def test_a_logger_that_is_not_there_is_one_line(results, logger, says, capsys):
    assert main(["track", "copy", str(results), "--to", logger]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(says, error)


def test_no_run_is_one_line(results, capsys):
    (results / "runs").rename(results / "elsewhere")
    assert main(["track", "copy", str(results), "--to", "file"]) == 2
    assert "no training run yet" in capsys.readouterr().err
