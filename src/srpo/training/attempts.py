"""Attempts at a training run: the part of it that one job does.

A run that takes longer than a job may last is cut into segments. The trainer (``srpo train``) stops before the job's
time limit with a checkpoint and status 75. Then :func:`attempt` requeues the job, and the scheduler starts it again
under the same number. To Snakemake this is one job that waits.

Each attempt leaves two lines in the run's ``attempts.jsonl`` and its own log.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from srpo.ground.files import append_event, read_events, write_events
from srpo.ground.layout import RunFiles
from srpo.training import checkpoints
from srpo.training.interruption import job_end

UNFINISHED = os.EX_TEMPFAIL
"""Exit status of a trainer that stopped early with a checkpoint."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
"""Signals to stop with a checkpoint. The trainer may receive one twice, from the scheduler and from :func:`attempt`."""

REQUEUE_SECONDS = 300.0
"""How long a requeued job waits for the scheduler to end it."""

REQUEUE_PAUSES = (5.0, 10.0, 20.0, 0.0)
"""Seconds to wait after each failed attempt to requeue a job."""

_PR_SET_PDEATHSIG = 1


def attempt(command: Sequence[str], folder: Path, log: Path, requeue: str = "") -> int:
    """Run a trainer until it finishes or the job's time limit is near; then requeue the job if the run is not finished.

    The job is requeued only if the trainer stopped because of the time limit and finished a step. A job that received a
    signal to stop was cancelled, or is requeued by the scheduler; a job without progress would be requeued forever.

    Args:
        command: the trainer. Its environment has the job's end as ``SLURM_JOB_END_TIME``, in seconds since the epoch.
        folder: the run's folder, with its checkpoints.
        log: becomes a link to the log of this attempt, ``NAME.<n>.log`` in the same folder. Snakemake deletes a job's
            log when it starts the job again; the logs of earlier attempts are kept in this way.
        requeue: a shell command that requeues the job; empty if the scheduler has none.

    Returns:
        The trainer's exit status (128 + n if signal n killed it); 1 instead of 75 if there was no progress.
    """
    before, end = newest_step(folder), end_of_job()
    record = RunFiles(folder).attempts
    number = 1 + max((event["attempt"] for event in read_events(record)), default=0)
    job = {"host": socket.gethostname(), "job": os.environ.get("SLURM_JOB_ID", "")}
    finished = RunFiles(folder).finished
    kept = finished.exists() and finished.stat().st_mtime_ns
    start = {"attempt": number, "event": "start", "time": time.time(), "step": before, **job}
    write_events(record, [*read_events(record), start])

    status, told_to_stop = _supervise(command, _fresh_log(log, number), end)
    step = newest_step(folder)
    append_event(record, {"attempt": number, "event": "end", "time": time.time(), "step": step, "status": status})
    if status == 0 and kept and finished.exists() and kept == finished.stat().st_mtime_ns:  # of --forceall, too
        print(f"srpo: {folder}: was trained before and is kept; delete the folder to train again", file=sys.stderr)
    if status != UNFINISHED or told_to_stop:
        return status
    if step == before:
        _say(log, f"no step was finished between start and end of the job (step {step}): it needs more time")
        return 1
    return _requeue(requeue, log) if requeue else status


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint, 0 without one."""
    found = checkpoints.newest(folder)
    return int(found[0].name.removeprefix("step")) if found else 0  # its state may be damaged


def end_of_job(environment: Mapping[str, str] = os.environ) -> str | None:
    """When this SLURM job ends, in seconds since the epoch; None outside SLURM, or if SLURM does not tell."""
    if "SLURM_JOB_ID" not in environment:
        return None
    if (end := job_end(environment)) is not None:  # SLURM 23.02 and newer
        return f"{end:.0f}"
    query = ["squeue", "--noheader", "--format=%e", f"--jobs={environment['SLURM_JOB_ID']}"]
    try:
        answer = subprocess.run(
            query, env={**environment, "SLURM_TIME_FORMAT": "%s"}, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    seconds = answer.stdout.strip()
    return seconds if seconds.isdecimal() else None


def _supervise(command: Sequence[str], log: Path, end: str | None) -> tuple[int, bool]:
    """Run the trainer; return its status, and whether this job received a signal to stop."""
    environment = {**os.environ, **({"SLURM_JOB_END_TIME": end} if end else {})}
    told: list[int] = []

    def pass_on(number: int, _: object) -> None:
        told.append(number)
        if number != signal.SIGINT:  # Ctrl-C reaches the trainer itself, and a second one ends it at once
            trainer.send_signal(number)

    with log.open("ab") as output:
        trainer = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=_follow
        )
    before = {number: signal.signal(number, pass_on) for number in (*STOP_SIGNALS, signal.SIGINT)}
    try:
        status = trainer.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return (status if status >= 0 else 128 - status), bool(told)


def _follow() -> None:
    """Runs in the trainer's process: it receives SIGTERM if its parent is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _fresh_log(log: Path, number: int) -> Path:
    fresh = log.with_name(f"{log.stem}.{number}{log.suffix}")
    fresh.parent.mkdir(parents=True, exist_ok=True)
    fresh.touch()
    log.unlink(missing_ok=True)
    log.symlink_to(fresh.name)
    return fresh


def _requeue(requeue: str, log: Path) -> int:
    for pause in REQUEUE_PAUSES:  # the controller may not answer for a moment
        result = subprocess.run(requeue, shell=True, capture_output=True, text=True)
        if result.returncode == 0:
            time.sleep(REQUEUE_SECONDS)
            return UNFINISHED
        time.sleep(pause)
    _say(log, f"{requeue}: {' '.join(result.stderr.split()) or f'status {result.returncode}'}")
    return UNFINISHED


def _say(log: Path, message: str) -> None:
    with log.open("a") as output:
        print(f"srpo: {message}", file=output)
    print(f"srpo: {message}", file=sys.stderr)
