"""Attempts at a training run: what one job does of it, from a checkpoint to a checkpoint.

A run longer than a job may be is cut into segments. The trainer (``srpo train``) stops before the job's end with a
checkpoint and status 75; :func:`attempt` watches over it and gives the job back to the scheduler, which
starts it anew under the same number. To Snakemake the job was waiting all the time, so its retries are left for what
really fails.

Each attempt leaves two lines in the run's ``attempts.jsonl`` and a log of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from srpo.files import append_event, read_events
from srpo.training import checkpoints
from srpo.training.interruption import job_end

UNFINISHED = os.EX_TEMPFAIL
"""Exit status of a trainer that stopped early with a checkpoint."""

STOP = (signal.SIGTERM, signal.SIGUSR1)
"""Signals that ask for a checkpoint and the end; the trainer may get one twice, from the scheduler and from here."""

HAND_BACK_SECONDS = 300.0
"""How long a job that was given back waits for the scheduler to end it."""

HAND_BACK_PAUSES = (5.0, 10.0, 20.0, 0.0)
"""Seconds after each try at giving a job back that its scheduler did not take."""

_PR_SET_PDEATHSIG = 1


def attempt(command: Sequence[str], folder: Path, log: Path, requeue: str = "") -> int:
    """Run a trainer to its end or to the job's, and give the job back where the run is not finished.

    The job is given back only if the trainer stopped by the clock and took a step since it started: a job that was told
    to stop is requeued by who told it, or not wanted any more, and one without progress would go on for ever.

    Args:
        command: the trainer. It gets the end of the job as ``SLURM_JOB_END_TIME``, in seconds since the epoch.
        folder: the run's folder, with its checkpoints.
        log: becomes a link to the log of this attempt, ``NAME.<n>.log`` beside it; Snakemake deletes a log when it
            starts a job again, and no attempt's log is to be lost.
        requeue: a shell command that gives the job back to its scheduler; empty where nothing can.

    Returns:
        The trainer's exit status (128 + n if signal n killed it); 1 instead of 75 if there was no progress.
    """
    before = newest_step(folder)
    record = folder / "attempts.jsonl"
    number = 1 + max((event["attempt"] for event in read_events(record)), default=0)
    job = {"host": socket.gethostname(), "job": os.environ.get("SLURM_JOB_ID", "")}
    append_event(record, {"attempt": number, "event": "start", "time": time.time(), "step": before, **job})

    status, told_to_stop = _supervise(command, _fresh_log(log, number))
    step = newest_step(folder)
    append_event(record, {"attempt": number, "event": "end", "time": time.time(), "step": step, "status": status})
    if status != UNFINISHED or told_to_stop:
        return status
    if step == before:
        _say(log, f"no step was finished between start and end of the job (step {step}): it needs more time")
        return 1
    return _hand_back(requeue, log) if requeue else status


def newest_step(folder: Path) -> int:
    """The step of the newest checkpoint, 0 without one."""
    found = checkpoints.newest(folder)
    return found[1]["step"] if found else 0


def end_of_job(environment: Mapping[str, str] = os.environ) -> str | None:
    """When the SLURM job around us ends, in seconds since the epoch; None outside of one, or if SLURM does not say."""
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
    end = answer.stdout.strip()
    return end if end.isdecimal() else None


def _supervise(command: Sequence[str], log: Path) -> tuple[int, bool]:
    """The trainer's status, and whether this job was told to stop meanwhile."""
    end = end_of_job()
    environment = {**os.environ, **({"SLURM_JOB_END_TIME": end} if end else {})}
    told: list[int] = []

    def pass_on(number: int, _: object) -> None:
        told.append(number)
        if number != signal.SIGINT:  # Ctrl-C reaches the trainer by itself, and two of them mean something else
            trainer.send_signal(number)

    with log.open("ab") as output:
        trainer = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, preexec_fn=_follow
        )
    before = {number: signal.signal(number, pass_on) for number in (*STOP, signal.SIGINT)}
    try:
        status = trainer.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return (status if status >= 0 else 128 - status), bool(told)


def _follow() -> None:
    """In the trainer: stop, with a checkpoint, if the process above is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _fresh_log(log: Path, number: int) -> Path:
    """The log of one attempt, with ``log`` pointing to it."""
    fresh = log.with_name(f"{log.stem}.{number}{log.suffix}")
    fresh.parent.mkdir(parents=True, exist_ok=True)
    fresh.touch()
    log.unlink(missing_ok=True)
    log.symlink_to(fresh.name)
    return fresh


def _hand_back(requeue: str, log: Path) -> int:
    for pause in HAND_BACK_PAUSES:  # the controller may be away for a moment
        result = subprocess.run(requeue, shell=True, capture_output=True, text=True)
        if result.returncode == 0:
            time.sleep(HAND_BACK_SECONDS)
            return UNFINISHED
        time.sleep(pause)
    _say(log, f"{requeue}: {' '.join(result.stderr.split()) or f'status {result.returncode}'}")
    return UNFINISHED


def _say(log: Path, message: str) -> None:
    with log.open("a") as output:
        print(f"srpo: {message}", file=output)
    print(f"srpo: {message}", file=sys.stderr)
