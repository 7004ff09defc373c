"""The times of a run's steps, from its logs, so that copying or moving the folder does not change them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from srpo.files import read_events
from srpo.layout import RunFiles


@dataclass(frozen=True)
class RunTimes:
    """When the steps of a run were taken, in milliseconds since the epoch, from the run's own logs.

    Attributes:
        start: when its first attempt started. A run without ``srpo attempt``
            records none; then the time of its ``run.yaml``.
        ends: step -> its end.
    """

    start: int
    ends: dict[int, int]

    @classmethod
    def read(cls, files: RunFiles, steps: list[dict[str, Any]] | None = None) -> RunTimes:
        """Read the logs of a run; ``steps`` are its steps, if they have been read already."""
        starts = [event for event in read_events(files.attempts) if event["event"] == "start"]
        first = starts[0]["time"] if starts else files.origin.stat().st_mtime
        ends, time_now, due = {}, first, starts[1:]
        for event in read_events(files.steps) if steps is None else steps:
            # the last attempt that began at or before the step before this one took it
            while due and min(attempt["step"] for attempt in due) < event["step"]:
                time_now = max(time_now, due.pop(0)["time"])
            time_now += event.get("wall_seconds", 0.0)
            ends[event["step"]] = int(1000 * time_now)
        return cls(int(1000 * first), ends)

    def at(self, step: int) -> int:
        """The end of a step; before the first step, the start."""
        return self.ends.get(step, self.start)

    @property
    def end(self) -> int:
        """The end of the last step."""
        return max(self.ends.values(), default=self.start)
