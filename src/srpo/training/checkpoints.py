"""Checkpoints of a run, written atomically. The latest two are for resuming, the best of each budget for evaluation."""

import logging
import os
import shutil
import zipfile
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from srpo.ground.errors import SrpoError
from srpo.ground.files import flush_to_disk, read_json, write_json
from srpo.ground.layout import WEIGHTS, RunFiles

STATE = "state.json"
SIZES = "sizes.json"

CHECKPOINT_SHARE = 0.05
"""Maximum share of wall time spent on complete checkpoints, those at a run's end and at a stop not counted."""

logger = logging.getLogger(__name__)


def save(run_folder: Path, step: int, state: dict[str, Any] | None, write: Callable[[Path], None]) -> None:
    """Write a checkpoint under another name and rename it when it is complete.

    Args:
        state: what the loop needs to continue; stored as ``state.json``. None if nothing is to be resumed from here.
        write: fills the folder it is given.
    """
    target = RunFiles(run_folder).checkpoint(step)
    partial = target.with_name(f".{target.name}.partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        write(partial)
        for path in partial.rglob("*"):
            flush_to_disk(path)
        if state is not None:
            write_json(partial / SIZES, _sizes(partial))
            write_json(partial / STATE, state)
        flush_to_disk(partial)
        shutil.rmtree(target, ignore_errors=True)
        os.replace(partial, target)
        flush_to_disk(target.parent)  # before an older checkpoint is deleted
    except (OSError, RuntimeError, SrpoError) as error:  # torch reports a full disk as RuntimeError
        free = shutil.disk_usage(run_folder).free / 2**30
        shutil.rmtree(partial, ignore_errors=True)
        reason = " ".join(str(error).split())[:200]
        raise SrpoError(
            f"{target}: cannot be written, with {free:.1f} GiB free ({reason}); what was there before is intact"
        ) from error


def check_room(run_folder: Path, size: float) -> None:
    """Check that the disk has room for one more checkpoint of ``size`` bytes, before devices are used.

    A run on a full disk fails at its next checkpoint. Started again, it would first train up to there again.
    """
    free = shutil.disk_usage(run_folder).free
    if free < size:
        raise SrpoError(
            f"{run_folder}: {free / 1e9:.1f} GB free, a checkpoint takes {size / 1e9:.1f} GB; make room and start again"
        )


def resumable(run_folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Checkpoints that can be resumed from, with their states, the latest first."""
    states = sorted(RunFiles(run_folder).checkpoints.glob(f"step*/{STATE}"), key=lambda path: _step(path.parent))
    return [(path.parent, _read(path)) for path in reversed(states)]


def newest(run_folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The latest of :func:`resumable`."""
    return next(iter(resumable(run_folder)), None)


def check(folder: Path) -> None:
    """Verify a checkpoint's files: their sizes, and the checksums in torch's files."""
    expected = _read(folder / SIZES)
    if not expected or not _read(folder / STATE):
        raise SrpoError(f"{STATE} or {SIZES} cannot be read")
    found = _sizes(folder)
    for name, size in expected.items():
        if found.get(name) != size:
            raise SrpoError(f"{name} has {found.get(name, 'no')} bytes, {size} were written")
    with ThreadPoolExecutor() as pool:
        for name, damaged in zip(expected, pool.map(lambda name: _bad_record(folder / name), expected), strict=True):
            if damaged:
                raise SrpoError(f"{name}: the check sum of {damaged} is wrong")


def load_newest(run_folder: Path, load: Callable[[Path], None]) -> dict[str, Any] | None:
    """Load the latest checkpoint that is complete; damaged ones are deleted, once an older one has been loaded.

    Only the files decide whether a checkpoint is damaged. An error of ``load`` can have any cause and is not caught.

    Returns:
        The checkpoint's state; None if there is no checkpoint.
    """
    damaged: list[Path] = []
    for folder, state in resumable(run_folder):
        try:
            check(folder)
        except SrpoError as error:
            logger.warning("%s: damaged, trying the one before (%s)", folder, error)
            damaged.append(folder)
            continue
        load(folder)
        for other in damaged:
            _delete(other)
        return state
    if damaged:
        raise SrpoError(f"{damaged[-1].parent}: every checkpoint is damaged; delete this folder to start over")
    return None


def delete_abandoned(run_folder: Path) -> None:
    """Delete partial checkpoints that a kill left."""
    for abandoned in RunFiles(run_folder).checkpoints.glob(".step*.partial"):
        shutil.rmtree(abandoned)


def prune(run_folder: Path, keep_weights: Collection[int], complete: int = 2) -> None:
    """Delete checkpoints that are neither resumed from nor evaluated, and partial ones that a kill left.

    Args:
        keep_weights: steps whose weights will be evaluated.
        complete: how many of the latest checkpoints to keep complete; the second in case the first is damaged.
    """
    delete_abandoned(run_folder)
    resumed_from = [folder for folder, _ in resumable(run_folder)[:complete]]
    for folder in RunFiles(run_folder).checkpoints.glob("step*"):
        if folder in resumed_from:
            continue
        if _step(folder) not in keep_weights:
            _delete(folder)
            continue
        (folder / STATE).unlink(missing_ok=True)
        for path in folder.iterdir():
            if path.name != WEIGHTS:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _delete(folder: Path) -> None:
    (folder / STATE).unlink(missing_ok=True)  # first: a half-deleted folder must not be resumed from
    shutil.rmtree(folder)


def _read(path: Path) -> dict[str, Any]:
    """A JSON file's content; empty if the file is missing or a crash of the node left it unreadable."""
    with suppress(SrpoError):
        return read_json(path)
    return {}


def _step(folder: Path) -> int:
    return int(folder.name.removeprefix("step"))


def _bad_record(path: Path) -> str | None:
    """Name of the first record with a wrong checksum in a file that torch saved (a ZIP archive)."""
    if path.suffix != ".pt":
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip()
    except zipfile.BadZipFile:
        return "its directory"


def _sizes(folder: Path) -> dict[str, int]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in (STATE, SIZES))
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}
