"""Checkpoints of a run: complete or absent, the newest to resume from, the best of each budget to evaluate."""

import json
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import yaml

from srpo.config import MEMORY_SETTINGS
from srpo.files import read_events, write_json, write_text

STATE = "state.json"
WEIGHTS = "huggingface"


logger = logging.getLogger(__name__)


def claim_folder(run_folder: Path, origin: dict[str, Any]) -> None:
    """Write ``run.yaml``; checkpoints and logs of a run with another specification, data or base are deleted.

    Going on from them would mix two runs. Another commit alone is no reason to start over, and neither is less
    memory.

    Args:
        run_folder: the run's folder.
        origin: the resolved specification under ``spec`` and where it comes from under ``provenance``.
    """
    path = run_folder / "run.yaml"
    if path.exists() and (changed := _differences(yaml.safe_load(path.read_text()), origin)):
        logger.warning("%s: starting over, changed since: %s", run_folder, ", ".join(changed))
        shutil.rmtree(run_folder / "checkpoints", ignore_errors=True)
        for log in ("steps.jsonl", "validations.jsonl"):
            (run_folder / log).unlink(missing_ok=True)
    write_text(path, yaml.safe_dump(origin, sort_keys=False))


def _differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Dotted keys in which two origins differ, of those that determine a run's result."""

    def flat(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {key: value}
        return {k: v for name, inner in value.items() for k, v in flat(inner, f"{key}.{name}").items()}

    def relevant(origin: dict[str, Any]) -> dict[str, Any]:
        provenance = origin.get("provenance", {})
        keys = {"spec": origin.get("spec"), **{key: provenance.get(key) for key in ("data", "base_model")}}
        return {k: v for key, value in keys.items() for k, v in flat(value, key).items()}

    old, new = relevant(before), relevant(now)
    irrelevant = {f"spec.execution.{name}" for name in MEMORY_SETTINGS}
    return sorted(key for key in (old.keys() | new.keys()) - irrelevant if old.get(key) != new.get(key))


def folder_of(run_folder: Path, step: int) -> Path:
    """``checkpoints/step<n>`` of a run."""
    return run_folder / "checkpoints" / f"step{step}"


def save(run_folder: Path, step: int, state: dict[str, Any], write: Callable[[Path], None]) -> None:
    """Write a checkpoint under another name and rename it when it is complete.

    Args:
        run_folder: the run's folder.
        step: steps taken so far.
        state: what the driver needs to go on; stored as ``state.json``.
        write: fills the folder it is given.
    """
    target = folder_of(run_folder, step)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write(partial)
    write_json(partial / STATE, state)
    shutil.rmtree(target, ignore_errors=True)
    os.replace(partial, target)


def newest(run_folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The latest checkpoint that can be resumed from, with its state."""
    states = (run_folder / "checkpoints").glob(f"step*/{STATE}")
    steps = sorted(int(path.parent.name.removeprefix("step")) for path in states)
    if not steps:
        return None
    folder = folder_of(run_folder, steps[-1])
    return folder, json.loads((folder / STATE).read_text())


def prune(run_folder: Path, resume_step: int, keep_weights: Collection[int]) -> None:
    """Delete what is neither resumed from nor evaluated; of the latter keep the weights only."""
    for folder in (run_folder / "checkpoints").glob("step*"):
        step = int(folder.name.removeprefix("step"))
        if step == resume_step:
            continue
        if step not in keep_weights:
            (folder / STATE).unlink(missing_ok=True)  # first: a half-deleted folder must not be resumed from
            shutil.rmtree(folder)
            continue
        (folder / STATE).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.name != WEIGHTS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def rewind_log(path: Path, step: int) -> list[dict[str, Any]]:
    """Cut an event log back to a checkpoint's step and return what is left."""
    events = [event for event in read_events(path) if event["step"] <= step]
    write_text(path, "".join(_lines(events)))
    return events


def _lines(events: Iterable[dict[str, Any]]) -> Iterable[str]:
    return (json.dumps(event, allow_nan=False) + "\n" for event in events)
