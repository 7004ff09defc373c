"""The state of every run of an experiment, read from its files only; no scheduler and no server is queried.

:func:`read` collects, :func:`table` shows. Only the ends of logs are read, so that thousands of runs take seconds.
"""

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from tabulate import tabulate

from srpo.experiment.config import Experiment, Training
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events, read_last_events
from srpo.ground.layout import Layout, RunFiles, RunId
from srpo.ground.text import duration
from srpo.training.attempts import STOP_SIGNALS
from srpo.training.watch import Signal

Stage = Literal["evaluated", "waiting", "trained", "training", "stopped", "failed"]

_RETRIED = {0, os.EX_TEMPFAIL}
_STOPPED = {128 + number for number in (*STOP_SIGNALS, signal.SIGINT)}
"""Status of an attempt that somebody stopped before its first checkpoint."""
_ERROR = re.compile(r"^(srpo: .*|[\w.]*(Error|Exception|Interrupt|Killed)\b.*|.*(command not found|Killed))$")


@dataclass(frozen=True)
class RunStatus:
    """One training run.

    Attributes:
        run: its path below ``runs``.
        stage: ``waiting`` for its first job or its next segment, ``training``, ``stopped`` or ``failed`` in its last
            attempt, ``trained`` or ``evaluated``.
        step: steps in the log.
        clock: seconds of the training clock.
        horizon: the last budget, in the same seconds.
        avg_at_k: of the last validation.
        steps_per_hour: of this attempt, validations and checkpoints included.
        seconds_left: until the last budget at that speed, without waiting in queues; for ``training`` only.
        attempts: how often it was started; each segment is one attempt.
        failures: attempts that ended neither with a result nor with a checkpoint.
        last_change: when its files last changed, in seconds since the epoch.
        error: the last error line of the last failed attempt; None once the run is trained. Or a file that is damaged,
            or that the folder of a run that was made is gone.
        signals: alarms and warnings of :mod:`srpo.training.watch`, in the order of their steps.
        host_memory: GB of host memory of the run's processes after its last step.
    """

    run: str
    stage: Stage
    step: int = 0
    clock: float = 0.0
    horizon: float = 0.0
    avg_at_k: float | None = None
    steps_per_hour: float | None = None
    seconds_left: float | None = None
    attempts: int = 0
    failures: int = 0
    last_change: float | None = None
    error: str | None = None
    signals: list[Signal] = field(default_factory=list)
    host_memory: float | None = None


def read(experiment: Experiment, layout: Layout) -> list[RunStatus]:
    """The status of every run, in the matrix's order."""
    return [read_run(run, experiment.training, layout) for run in experiment.runs()]


def table(name: str, statuses: Sequence[RunStatus]) -> str:
    """One line about the experiment ``name``, then one row per run."""
    now = time.time()
    rows = tabulate([_row(s, now) for s in statuses], headers=_HEADERS, tablefmt="plain")
    return f"{name}: {_summary(statuses)}\n{rows}"


# ---------------------------------------------------------------- collecting


def read_run(run: RunId, training: Training, layout: Layout) -> RunStatus:
    horizon = max(training.budget_seconds.values())
    files = _files(layout.run(run))
    if not files:
        # it was made, but its logs are not there; the report may be older than what became of it
        lost = layout.report.exists() and layout.run_log(run, "train").exists()
        gone = "its folder is gone; snakemake makes the run again" if lost else None
        return RunStatus(run.path, "waiting", horizon=horizon, error=gone)
    try:
        return _read_files(run, files, training, horizon, layout)
    except (SrpoError, KeyError, TypeError) as error:  # a record with other keys is damaged, too
        said = str(error) if isinstance(error, SrpoError) else f"damaged log: {error!r}"
        said = said.replace(f"{layout.run(run)}/", "")  # the table cuts long lines
        return RunStatus(run.path, "failed", horizon=horizon, last_change=max(files.values()), error=said)


def _read_files(run: RunId, files: dict[str, float], training: Training, horizon: float, layout: Layout) -> RunStatus:
    paths = layout.run_files(run)
    attempts = list(read_events(paths.attempts)) if paths.attempts.name in files else []
    steps = read_last_events(paths.steps) if paths.steps.name in files else []
    validations = read_last_events(paths.validations) if paths.validations.name in files else []
    signals = [Signal(**event) for event in read_events(paths.watch)] if paths.watch.name in files else []
    trained = paths.summary.name in files
    ends = {event["attempt"]: event["status"] for event in attempts if event["event"] == "end"}
    failed = [number for number, status in ends.items() if status not in _RETRIED | _STOPPED]
    stage = _stage(paths, files, attempts, ends)
    speed = _speed(steps, attempts, files[paths.steps.name]) if steps and not trained else None
    step, clock = (steps[-1]["step"], steps[-1]["clock"]) if steps else (0, 0.0)
    return RunStatus(
        run=run.path,
        stage=stage,
        step=step,
        clock=clock,
        horizon=horizon,
        avg_at_k=validations[-1]["avg_at_k"] if validations else None,
        steps_per_hour=speed,
        seconds_left=_seconds_left(steps, speed, training, horizon) if stage == "training" else None,
        attempts=len({event["attempt"] for event in attempts}),
        failures=len(failed),
        last_change=max(files.values()),
        error=_error(layout, run, failed[-1] if failed else None, trained) if stage != "evaluated" else None,
        signals=signals,
        host_memory=steps[-1].get("host_memory_gb") if steps else None,
    )


def _files(folder: Path) -> dict[str, float]:
    """Name and modification time of each file in a run's folder; one system call if there is no folder yet."""
    try:
        with os.scandir(folder) as entries:
            return {e.name: e.stat().st_mtime for e in entries if e.is_file() and not e.name.startswith(".")}
    except FileNotFoundError:
        return {}


def _stage(paths: RunFiles, files: dict[str, float], attempts: list[dict[str, Any]], ends: dict[int, int]) -> Stage:
    if paths.summary.name in files:
        return "evaluated" if paths.evaluation.name in files else "trained"
    if not attempts:  # `srpo train` by itself leaves no record
        return "training" if paths.origin.name in files else "waiting"
    status = ends.get(attempts[-1]["attempt"])
    if status is None:
        return "training"
    return "waiting" if status in _RETRIED else "stopped" if status in _STOPPED else "failed"


def _speed(steps: list[dict[str, Any]], attempts: list[dict[str, Any]], last_step_time: float) -> float | None:
    """Steps per hour since this attempt started; before its first step, those of the last steps in the log."""
    start = next((event for event in reversed(attempts) if event["event"] == "start"), None)
    if start and steps[-1]["step"] > start["step"]:
        seconds = last_step_time - start["time"]
        return 3600 * (steps[-1]["step"] - start["step"]) / seconds if seconds > 0 else None
    seconds = sum(event["wall_seconds"] for event in steps)
    return 3600 * len(steps) / seconds if seconds > 0 else None


def _seconds_left(
    steps: list[dict[str, Any]], steps_per_hour: float | None, training: Training, horizon: float
) -> float | None:
    if not steps or not steps_per_hour:
        return None
    a_step = sum(event["step_seconds"] for event in steps) / len(steps)
    left = max(0.0, horizon - steps[-1]["clock"]) / a_step if a_step > 0 else 0.0
    if training.max_steps is not None:
        left = min(left, training.max_steps - steps[-1]["step"])
    return 3600 * left / steps_per_hour


def _error(layout: Layout, run: RunId, failed_attempt: int | None, trained: bool) -> str | None:
    """The last error line of the stage that failed: the last failed attempt at training, or the evaluation."""
    if trained:
        return _last_error(layout.run_log(run, "evaluate"), certain=True)
    if failed_attempt is None:
        return None
    return _last_error(layout.run_log(run, f"train.{failed_attempt}"), certain=False)


def _last_error(log: Path, certain: bool) -> str | None:
    """The last line that looks like an error; if none does, the last line, unless it has to be ``certain``."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 8192))
            # a progress bar returns to the start of its line
            lines = [line.strip() for line in re.split(r"[\r\n]", file.read().decode(errors="replace")) if line.strip()]
    except OSError:
        return None
    errors = [line for line in lines if _ERROR.match(line)] or ([] if certain else lines)
    return errors[-1] if errors else None


# ---------------------------------------------------------------- showing

_HEADERS = (
    *("run", "stage", "step", "clock", "avg@k", "steps/h", "left"),
    *("host GB", "tries", "updated", "watch", "error"),
)


def _summary(statuses: Sequence[RunStatus]) -> str:
    counts = Counter(status.stage for status in statuses)
    parts = [f"{counts[stage]} {stage}" for stage in get_args(Stage) if counts[stage]]
    return f"{len(statuses)} runs, {', '.join(parts)}" if parts else "no runs"


def _row(status: RunStatus, now: float) -> tuple[Any, ...]:
    def number(value: float | None, digits: int) -> str:
        return "" if value is None else f"{value:.{digits}f}"

    digits = 0 if status.horizon >= 10 else 1
    tries = f"{status.attempts} ({status.failures} failed)" if status.failures else status.attempts or ""
    return (
        status.run,
        status.stage,
        status.step or "",
        f"{number(status.clock, digits)}/{number(status.horizon, digits)}" if status.step else "",
        number(status.avg_at_k, 3),
        number(status.steps_per_hour, 0),
        "" if status.seconds_left is None else duration(status.seconds_left),
        number(status.host_memory, 1),
        tries,
        "" if status.last_change is None else f"{duration(max(0.0, now - status.last_change))} ago",
        _watched(status),
        (status.error or "")[:100],
    )


def _watched(status: RunStatus) -> str:
    """The latest alarm, or else the latest warning, with its number; and how many other rules have one."""
    alarms = [signal for signal in status.signals if signal.level == "alarm"]
    latest = next(reversed(alarms or status.signals), None)
    if latest is None:
        return ""
    others = len({signal.rule for signal in status.signals}) - 1
    return f"{latest}, +{others} more" if others else str(latest)
