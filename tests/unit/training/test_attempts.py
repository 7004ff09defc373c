"""An attempt at a run: what becomes of the trainer's status, of signals, of the logs, and of the job."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from srpo.ground.files import read_events
from srpo.ground.layout import RunFiles
from srpo.training import attempts

pytestmark = pytest.mark.fault

# steps as a trainer takes them: a checkpoint, then a status; SIGTERM ends it with a checkpoint
# the first argument is the run's summary, as that of srpo train
TRAINER = """
import json, os, signal, sys, time
from pathlib import Path
folder, step, status, seconds = Path(sys.argv[1]).parent, *map(int, sys.argv[2:])
def stop(*_):
    checkpoint(step + 1)
    sys.exit(75)
def checkpoint(step):
    path = folder / "checkpoints" / f"step{step}" / "state.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"step": step}))
signal.signal(signal.SIGTERM, stop)
print("end", os.environ.get("SLURM_JOB_END_TIME"), flush=True)
if step:
    checkpoint(step)
time.sleep(seconds)
sys.exit(status)
"""


@pytest.fixture(autouse=True)
def _outside_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_END_TIME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(attempts, "REQUEUE_SECONDS", 0.0)
    monkeypatch.setattr(attempts, "REQUEUE_PAUSES", (0.0, 0.0))


def trainer(folder: Path, step: int, status: int, seconds: int = 0) -> list[str]:
    return [sys.executable, "-c", TRAINER, str(folder / "summary.json"), str(step), str(status), str(seconds)]


def ends(folder: Path) -> list[tuple[int, int]]:
    """Step and status at the end of each attempt."""
    events = read_events(folder / "attempts.jsonl")
    return [(event["step"], event["status"]) for event in events if event["event"] == "end"]


def test_each_attempt_keeps_its_log(tmp_path: Path) -> None:
    run, log = tmp_path / "run", tmp_path / "logs" / "train.log"
    assert attempts.attempt([sys.executable, "-c", "print('first'); raise SystemExit(3)"], run, log) == 3
    log.unlink()  # as Snakemake does before it starts a job again
    with (run / "attempts.jsonl").open("a") as record:
        record.write('{"attempt": 9')  # cut off by a kill
    assert attempts.attempt([sys.executable, "-c", "print('second')"], run, log) == 0
    assert [path.read_text() for path in sorted(log.parent.glob("train.[0-9]*.log"))] == ["first\n", "second\n"]
    assert log.read_text() == "second\n"
    assert ends(run) == [(0, 3), (0, 0)]


def test_a_run_that_is_kept_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished = RunFiles(tmp_path).finished
    for content in ("", "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()", ""):
        assert attempts.attempt([sys.executable, "-c", content, str(finished)], tmp_path, tmp_path / "train.log") == 0
        assert ("is kept" in capsys.readouterr().err) == (finished.exists() and not content)


def test_a_killed_trainer_has_a_status(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert attempts.attempt(command, tmp_path / "run", tmp_path / "train.log") == 128 + signal.SIGKILL


def test_a_segment_requeues_the_job(tmp_path: Path) -> None:
    run, requeued = tmp_path / "run", tmp_path / "requeued"
    assert attempts.attempt(trainer(run, 4, 75), run, tmp_path / "train.log", f"touch {requeued}") == 75
    assert requeued.exists()
    assert ends(run) == [(4, 75)]


def test_segment_without_progress_fails(tmp_path: Path) -> None:
    run, requeued = tmp_path / "run", tmp_path / "requeued"
    attempts.attempt(trainer(run, 4, 75), run, tmp_path / "train.log")
    assert attempts.attempt(trainer(run, 4, 75), run, tmp_path / "train.log", f"touch {requeued}") == 1
    assert not requeued.exists()


def test_scheduler_that_is_away_is_asked_again(tmp_path: Path) -> None:
    run, asked = tmp_path / "run", tmp_path / "asked"
    requeue = f"test -e {asked} || {{ touch {asked}; false; }}"
    assert attempts.attempt(trainer(run, 4, 75), run, tmp_path / "train.log", requeue) == 75
    assert "test -e" not in (tmp_path / "train.log").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_told_to_stop(number: signal.Signals, tmp_path: Path) -> None:
    """The trainer is told too, and the job is not requeued: whoever stopped it decides what happens next."""
    run, requeued, log = tmp_path / "run", tmp_path / "requeued", tmp_path / "train.log"
    command = trainer(run, 2, 0, 60)
    command[2] = command[2].replace("signal.SIGTERM", f"signal.{number.name}")
    options = ["--log", str(log), "--requeue", f"touch {requeued}", "--", *command]
    process = subprocess.Popen([sys.executable, "-m", "srpo.cli", "attempt", *options])
    wait_for(lambda: (run / "checkpoints" / "step2" / "state.json").exists())
    process.send_signal(number)
    assert process.wait(timeout=20) == 75
    assert ends(run) == [(3, 75)]
    assert not requeued.exists()


def test_trainer_does_not_outlive_its_attempt(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = ["--log", str(tmp_path / "train.log"), "--", *trainer(run, 2, 0, 60)]
    process = subprocess.Popen([sys.executable, "-m", "srpo.cli", "attempt", *options])
    wait_for(lambda: (run / "checkpoints" / "step2" / "state.json").exists())
    process.kill()
    process.wait()
    wait_for(lambda: (run / "checkpoints" / "step3" / "state.json").exists())


def test_end_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SLURM 23.02 says it in the environment; before, squeue does."""
    squeue = tmp_path / "bin" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text('#!/bin/sh\necho "$SLURM_TIME_FORMAT $*" > "$0.asked"\necho 1795249304\n')
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", str(squeue.parent), prepend=os.pathsep)
    assert attempts.end_of_job() is None
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert attempts.end_of_job() == "1795249304"
    assert (tmp_path / "bin" / "squeue.asked").read_text() == "%s --noheader --format=%e --jobs=7\n"
    attempts.attempt(trainer(tmp_path, 1, 0), tmp_path / "run", tmp_path / "train.log")
    assert (tmp_path / "train.log").read_text() == "end 1795249304\n"
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1800000000")
    assert attempts.end_of_job() == "1800000000"
    squeue.write_text("#!/bin/sh\necho NONE\n")
    monkeypatch.delenv("SLURM_JOB_END_TIME")
    assert attempts.end_of_job() is None


def wait_for(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_checkpoint_whose_state_is_cut_off_still_counts_as_a_step(tmp_path: Path) -> None:
    """The trainer names it, and loads an older one or stops; the attempt only counts."""
    state = tmp_path / "checkpoints" / "step7" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text('{"step": 7, "clo')
    assert attempts.newest_step(tmp_path) == 7
