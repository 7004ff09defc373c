"""Truncates the event logs of a run that resumes; :mod:`srpo.files` appends to them and reads them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from srpo.files import read_events, write_text


def rewind(path: Path, step: int) -> list[dict[str, Any]]:
    """Truncate an event log at a checkpoint's step and return the remaining events."""
    events = [event for event in read_events(path) if event["step"] <= step]
    rewrite(path, events)
    return events


def rewrite(path: Path, events: Iterable[dict[str, Any]]) -> None:
    """Replace an event log."""
    write_text(path, "".join(json.dumps(event, allow_nan=False) + "\n" for event in events))
