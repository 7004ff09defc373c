"""The status of runs: every stage from the files a run leaves, and thousands of them in seconds."""

import shutil
from pathlib import Path

import pytest
from synthetic import tiny_experiment, write_results

from srpo import cli
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.ground.files import append_event, read_last_events
from srpo.ground.layout import Layout, RunId
from srpo.training import status
from srpo.training.watch import Signal

pytestmark = pytest.mark.fault

RUN = "miniature-tiny/physics/srpo/seed1"


@pytest.fixture
def experiment() -> Experiment:
    return load_experiment(tiny_experiment())


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "results" / "tiny")


def record(layout: Layout, run: RunId, *attempts: tuple[int, int | None], start: float = 1000.0) -> None:
    """Attempts as (step at the start, status at the end); no status: it has not ended."""
    path = layout.run(run) / "attempts.jsonl"
    for number, (step, ended) in enumerate(attempts, 1):
        append_event(path, {"attempt": number, "event": "start", "time": start, "step": step, "host": "n1", "job": "7"})
        if ended is not None:
            append_event(path, {"attempt": number, "event": "end", "time": start, "step": step, "status": ended})


def only(experiment: Experiment, layout: Layout) -> status.RunStatus:
    return {each.run: each for each in status.read(experiment, layout)}[RUN]


@pytest.fixture
def run(experiment: Experiment) -> RunId:
    return next(run for run in experiment.runs() if run.path == RUN)


def test_nothing_yet(experiment: Experiment, layout: Layout) -> None:
    statuses = status.read(experiment, layout)
    assert [each.run for each in statuses] == [run.path for run in experiment.runs()]
    assert {each.stage for each in statuses} == {"waiting"}


def test_finished(experiment: Experiment, layout: Layout) -> None:
    write_results(layout.folder, experiment)
    found = only(experiment, layout)
    assert (found.stage, found.error, found.seconds_left) == ("evaluated", None, None)
    assert found.step == read_last_events(layout.folder / "runs" / RUN / "steps.jsonl")[-1]["step"]
    (layout.folder / "runs" / RUN / "evaluation.json").unlink()
    assert only(experiment, layout).stage == "trained"


def test_in_training(experiment: Experiment, layout: Layout, run: RunId) -> None:
    write_results(layout.folder, experiment, stop_at=8.0)
    steps = layout.run(run) / "steps.jsonl"
    last = read_last_events(steps)[-1]
    half = last["step"] // 2
    record(layout, run, (0, 75), (half, None), start=steps.stat().st_mtime - 100)
    found = only(experiment, layout)
    assert (found.stage, found.attempts, found.failures, found.error) == ("training", 2, 0, None)
    assert (found.step, found.clock, found.horizon) == (last["step"], last["clock"], 20.0)
    assert found.steps_per_hour == pytest.approx(36 * (last["step"] - half), rel=0.01)
    assert found.host_memory is None
    append_event(steps, last | {"host_memory_gb": 8.04})
    assert only(experiment, layout).host_memory == 8.04
    left = (20 - last["clock"]) / (last["clock"] / last["step"])
    assert found.seconds_left == pytest.approx(3600 * left / found.steps_per_hour, rel=0.1)


@pytest.mark.parametrize("jump", [-1e9, 1e9])
def test_a_clock_that_jumped(
    jump: float, experiment: Experiment, layout: Layout, run: RunId, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(layout.folder, experiment, stop_at=8.0)
    record(layout, run, (0, 75), (1, None), start=(layout.run(run) / "steps.jsonl").stat().st_mtime + jump)
    found = only(experiment, layout)
    assert found.stage == "training"
    assert found.steps_per_hour is None or found.steps_per_hour > 0
    assert cli.main(["status", str(layout.folder)]) == 0


@pytest.mark.parametrize(
    ("ended", "stage"), [(None, "training"), (75, "waiting"), (1, "failed"), (137, "failed"), (143, "stopped")]
)
def test_stage_of_the_last_attempt(
    ended: int | None, stage: str, experiment: Experiment, layout: Layout, run: RunId
) -> None:
    record(layout, run, (0, 75), (5, ended))
    assert only(experiment, layout).stage == stage


def test_training_without_a_record(experiment: Experiment, layout: Layout) -> None:
    write_results(layout.folder, experiment, stop_at=8.0)
    found = only(experiment, layout)
    assert (found.stage, found.attempts) == ("training", 0)
    assert found.steps_per_hour > 0


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("loading\nsrpo: error: out of memory; lower it\n", "srpo: error: out of memory; lower it"),
        ("Traceback (most recent call last):\n  File\nValueError: no\nbye\n", "ValueError: no"),
        ("step 1:  10%\rstep 2:  20%\r", "step 2:  20%"),
        ("", None),
    ],
)
def test_error_of_the_attempt_that_failed(
    log: str, error: str | None, experiment: Experiment, layout: Layout, run: RunId
) -> None:
    record(layout, run, (0, 1), (0, None))
    path = layout.run_log(run, "train.1")
    path.parent.mkdir(parents=True)
    path.write_text(log)
    layout.run_log(run, "train.2").write_text("srpo: error: of another attempt\n")
    found = only(experiment, layout)
    assert (found.stage, found.failures, found.error) == ("training", 1, error)


@pytest.mark.parametrize("name", ["steps", "validations", "attempts"])
def test_a_damaged_line_is_named_and_hides_no_other_run(
    name: str, experiment: Experiment, layout: Layout, run: RunId
) -> None:
    write_results(layout.folder, experiment)
    record(layout, run, (0, 0))
    path = layout.run(run) / f"{name}.jsonl"
    path.write_text(path.read_text() + '{"step": 3, "clo\n')
    found = {each.run: each for each in status.read(experiment, layout)}
    assert found[RUN].stage == "failed"
    assert found[RUN].error.startswith(f"{path.name}, ")  # without its folder there is room for the reason
    assert {each.stage for each in found.values()} == {"failed", "evaluated"}
    assert cli.main(["status", str(layout.folder)]) == 0


def test_a_deleted_folder_is_noticed(experiment: Experiment, layout: Layout, run: RunId) -> None:
    write_results(layout.folder, experiment)
    layout.report.touch()
    for each in experiment.runs()[1:]:
        log = layout.run_log(each, "train")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()
    assert only(experiment, layout).error is None
    shutil.rmtree(layout.run(run))
    assert (only(experiment, layout).stage, only(experiment, layout).error) == (
        "waiting",
        "its folder is gone; snakemake makes the run again",
    )
    never = experiment.runs()[0]  # has no log: it has not run yet
    shutil.rmtree(layout.run(never))
    assert status.read(experiment, layout)[0].error is None


def test_last_events(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("")
    assert read_last_events(path) == []
    for step in range(1, 200):
        append_event(path, {"step": step, "text": "x" * step * 10})
    assert read_last_events(path, size=100) == [{"step": 199, "text": "x" * 1990}]
    assert [event["step"] for event in read_last_events(path, size=5000)] == [198, 199]
    with path.open("a") as log:
        log.write('{"step": 200')
    assert read_last_events(path, size=100)[-1]["step"] == 199
    assert len(read_last_events(path, size=10**6)) == 199


def test_verb(experiment: Experiment, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(layout.folder, experiment, keep=lambda run: run.method == "grpo")
    assert cli.main(["status", str(layout.folder.parent)]) == 0
    first, header, *rows = capsys.readouterr().out.splitlines()
    assert first == "tiny: 6 runs, 2 evaluated, 4 waiting"
    assert header.split()[:3] == ["run", "stage", "step"]
    assert len(rows) == 6


def test_signals_of_the_watch_are_shown_with_their_numbers(
    experiment: Experiment, layout: Layout, run: RunId, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(layout.folder, experiment)
    assert only(experiment, layout).signals == []
    files = layout.run_files(run)
    signals = [Signal(40, "gap", "warn", 0.5, 0.62), Signal(45, "entropy", "alarm", 0.1234, 0.5)]
    for signal in signals:
        append_event(files.watch, signal.event())
    assert only(experiment, layout).signals == signals
