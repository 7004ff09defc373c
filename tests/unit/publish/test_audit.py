"""srpo audit: which runs it trains, by which jobs, and what it says of their scores. The training is played."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import tiny_experiment, write_results

from srpo import cli
from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.layout import Layout
from srpo.publish import audit

NAME = "miniature-small/physics/srpo/seed1"
FOLDER = Path("published/tiny")


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Results of two seeds; they are published in published/tiny."""
    monkeypatch.chdir(tmp_path)
    matrix = [tiny_experiment()["matrix"][0] | {"seeds": [1, 2]}]
    folder = Path("results/tiny")
    write_results(folder, load_experiment(tiny_experiment(matrix=matrix)))
    for run in load_experiment(folder / "experiment.yaml").runs():
        Layout(folder).run_files(run).finished.touch()
    assert cli.main(["publish", str(folder)]) == 0
    capsys.readouterr()
    return folder


@pytest.fixture
def play(results: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Path], None]], None]:
    """Let training give the published files again, changed by a function of the run's folder."""

    def playing(change: Callable[[Path], None]) -> None:
        def train_again(folder: Path, runs: list, cores: int) -> Layout:
            shutil.copytree(results, "results/audit/tiny")
            for run in runs:
                change(Path("results/audit/tiny/runs", run.path))
            return Layout(Path("results/audit/tiny"))

        monkeypatch.setattr(audit, "train_again", train_again)

    return playing


def better(folder: Path, from_step: int, points: float) -> None:
    """Add points to the validations of the steps from one on."""
    path = folder / "validations.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event["step"] >= from_step:
            event["avg_at_k"] += points / 100
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


def test_the_same_bytes(play, capsys) -> None:
    play(lambda folder: None)
    assert cli.main(["audit", str(FOLDER), "--runs", "2"]) == 0
    *drawn, last = capsys.readouterr().out.splitlines()
    assert [line.startswith("drawn with seed 0: miniature-small/") for line in drawn] == [True, True]
    folders = [Path("results/tiny/runs", line.split(": ")[1]) for line in drawn]
    scores = sum(len((folder / "validations.jsonl").read_text().splitlines()) for folder in folders)
    scores += sum(len(json.loads((folder / "evaluation.json").read_text())["budgets"]) for folder in folders)
    assert last == f"published/tiny: 2 runs trained again, all {scores} scores have the same bytes"


def test_another_score_is_named_beside_the_spread_of_seeds(play, results: Path, capsys) -> None:
    play(lambda folder: better(folder, 10, 4.0))
    assert cli.main(["audit", str(FOLDER), "--run", NAME]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    logs = [(results / "runs" / f"{NAME[:-1]}{seed}" / "validations.jsonl").read_text().splitlines() for seed in (1, 2)]
    one, two = ({event["step"]: event["avg_at_k"] for event in map(json.loads, log)} for log in logs)
    changed = [4.0 * (step >= 10) for step in one]
    seeds = [100 * abs(one[step] - two[step]) for step in one if step in two]
    assert f"1 of 1 run trained again with other scores; {NAME} from step 10 on" in last
    assert f"by {sum(changed) / len(changed):.1f} points in the mean of its validations and 4.0 at most" in last
    assert last.endswith(f"beside {sum(seeds) / len(seeds):.1f} between seeds")


def test_a_run_that_ends_early_or_is_evaluated_otherwise_differs(play, capsys) -> None:
    def evaluate(folder: Path) -> None:
        path = folder / "evaluation.json"
        path.write_text(path.read_text().replace('"step": ', '"step": 1', 1))

    def end(folder: Path) -> None:
        path = folder / "validations.jsonl"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))

    play(evaluate)
    assert cli.main(["audit", str(FOLDER), "--run", NAME]) == 1
    assert f"{NAME} from its evaluation on, by 0.0 points" in capsys.readouterr().out
    shutil.rmtree("results/audit")
    play(end)
    assert cli.main(["audit", str(FOLDER), "--run", NAME]) == 1
    last = json.loads(Path("results/tiny/runs", NAME, "validations.jsonl").read_text().splitlines()[-1])
    assert f"{NAME} from step {last['step']} on" in capsys.readouterr().out


def test_another_processor_is_named(play, capsys) -> None:
    def elsewhere(folder: Path) -> None:
        better(folder, 1, 1.0)
        origin = folder / "run.yaml"
        origin.write_text(origin.read_text().replace("AVX512", "AVX2"))

    play(elsewhere)
    assert cli.main(["audit", str(FOLDER), "--run", NAME]) == 1
    assert capsys.readouterr().out.rstrip().endswith("): processor")


def test_the_draw_depends_on_its_seed_alone(results: Path) -> None:
    drawn = [audit.choose(FOLDER, [], 3, seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--run", "physics/srpo/seed1"], "has no such run; one is miniature-small/chemistry/grpo/seed1"),
        (["--runs", "0"], "published/tiny has 12 runs; give 1 to 12"),
        (["--runs", "13"], "published/tiny has 12 runs; give 1 to 12"),
    ],
)
def test_runs_that_there_are_not(results: Path, capsys, options: list[str], message: str) -> None:
    assert cli.main(["audit", str(FOLDER), *options]) == 2
    assert message in capsys.readouterr().err


def test_results_are_not_published(results: Path, capsys) -> None:
    assert cli.main(["audit", str(results)]) == 2
    assert "results/tiny: no published experiment; srpo publish results/NAME writes one" in capsys.readouterr().err


def test_the_workflow_trains_the_run_again_and_nothing_else(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier audit's run is trained again, with all that it needs; no other run is."""
    shutil.copytree(results / "runs" / NAME, Path("results/audit/tiny/runs", NAME))
    real, planned = subprocess.run, []

    def dry(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess:
        assert command[-4:] == ["--quiet", "rules", "host", "reason"]
        result = real([*command[:-4], "--dry-run"], env=env, capture_output=True, text=True)
        planned.append(result.stdout + result.stderr)
        return result

    monkeypatch.setattr(subprocess, "run", dry)
    audit.train_again(FOLDER, audit.choose(FOLDER, [NAME], 0, 0), 1)
    jobs = {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", planned[0], re.MULTILINE)}
    assert jobs == {"split": 2, "base_model": 1, "lengths": 1, "train": 1, "total": 5}


def test_what_the_workflow_cannot_train(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = audit.choose(FOLDER, [NAME], 0, 0)
    monkeypatch.setattr(subprocess, "run", lambda command, env: subprocess.CompletedProcess(command, 1))
    with pytest.raises(SrpoError, match="the runs could not be trained"):
        audit.train_again(FOLDER, runs, 1)
    monkeypatch.setattr(audit, "ROOT", Path("site-packages/srpo"))
    with pytest.raises(SrpoError, match="call it in a clone"):
        audit.train_again(FOLDER, runs, 1)
