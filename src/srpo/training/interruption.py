"""Stops a run early: on a signal, or before the scheduler's job ends."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

MARGIN_SECONDS = 10.0
"""Time kept at the end of a job to stop workers and servers."""

SAFETY_FACTOR = 1.5
"""Factor by which the next step, validation or checkpoint may take longer than the last one."""

logger = logging.getLogger(__name__)


class Interrupted(Exception):
    """The run stopped early, with a checkpoint. Started again, it continues."""


def job_end(environment: Mapping[str, str] = os.environ) -> float | None:
    """When SLURM ends this job, in seconds since the epoch; None outside SLURM, or if it is a word such as NONE."""
    end = environment.get("SLURM_JOB_END_TIME", "")
    return float(end) if any(map(str.isdecimal, end)) else None


class Interruption:
    """Decides whether a run must stop: after a signal, or because its job ends.

    Args:
        stop_at: when the process must have ended, in seconds since the epoch, if that is known.
        now: the current time on the clock of ``stop_at``.
    """

    def __init__(self, stop_at: float | None = None, now: Callable[[], float] = time.time) -> None:
        self._stop_at = stop_at
        self._now = now
        self._signal: signal.Signals | None = None

    def reason(self, seconds_needed: float = 0.0) -> str | None:
        """Why to stop now instead of starting something that takes ``seconds_needed``; None to continue."""
        if self._signal is not None:
            return f"{self._signal.name} received"
        if self._stop_at is not None:
            left = self._stop_at - self._now()
            if left < SAFETY_FACTOR * seconds_needed + MARGIN_SECONDS:
                return f"the job ends in {max(left, 0):.0f} s"
        return None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record signals instead of ending the process; a second Ctrl-C ends it at once."""
        if threading.current_thread() is not threading.main_thread():
            yield  # signals go to the main thread only
            return
        before = {number: signal.signal(number, self._note) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: object) -> None:
        if number == signal.SIGINT and self._signal is signal.SIGINT:
            raise KeyboardInterrupt
        self._signal = signal.Signals(number)
        logger.warning("%s: stopping after this step; Ctrl-C twice ends at once", self._signal.name)
