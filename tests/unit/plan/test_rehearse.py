"""`srpo rehearse`: the steps of an experiment made few, and nothing else; what its check changes."""

from pathlib import Path

import pytest

from srpo import cli
from srpo.experiment.compose import load_experiment
from srpo.ground.repository import CONFIGS
from srpo.plan.rehearse import CHECK, rehearsal

EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiments").glob("*.yaml"))
SHORT = {"warmup_steps", "validate_every", "validation", "budget_seconds", "max_steps"}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_any_experiment_has_one_with_every_method_and_model(name: str) -> None:
    whole = load_experiment(CONFIGS / "experiments" / f"{name}.yaml")
    made = rehearsal(whole)
    pairs = {(run.model, run.method) for run in whole.runs()}
    checks = {(model, CHECK) for model, _ in pairs}
    assert sorted((run.model, run.method) for run in made.runs()) == sorted(pairs | checks)
    assert made.execution == whole.execution
    assert {name: made.methods[name] for name in whole.methods} == whole.methods  # at their own rates
    assert made.training.model_dump(exclude=SHORT) == whole.training.model_dump(exclude=SHORT)
    assert (made.training.max_steps, made.training.warmup_steps) == (3, 1)
    assert not made.comparable_with_paper


def test_the_check_is_the_first_method_at_a_rate_that_shows() -> None:
    whole = load_experiment(CONFIGS / "experiments" / "paper-arms.yaml")
    assert (rehearsal(whole).is_rehearsal, whole.is_rehearsal) == (True, False)
    check = rehearsal(whole).methods[CHECK]
    assert check.learning_rate == 1e-4 == 20 * whole.methods["srpo"].learning_rate
    same = {"name", "title", "learning_rate"}
    assert check.model_dump(exclude=same) == whole.methods["srpo"].model_dump(exclude=same)


def test_the_verb_writes_a_file_that_an_experiment_is_read_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rehearse", "one-gpu"]) == 0
    printed, file = capsys.readouterr().out, tmp_path / "mine.yaml"
    assert cli.main(["rehearse", "one-gpu", "--output", str(file)]) == 0
    assert capsys.readouterr().out == f"snakemake --cores all --resources gpu=1 --configfile {file}\n"
    assert file.read_text() == printed
    assert load_experiment(file) == rehearsal(load_experiment(CONFIGS / "experiments" / "one-gpu.yaml"))
