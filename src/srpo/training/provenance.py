"""Where a run's result comes from: specification, code, packages, data and base model; one folder, one origin."""

import hashlib
import itertools
import json
import logging
import platform
import shutil
import subprocess
from collections import deque
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

import srpo
from srpo.config import WITHOUT_EFFECT
from srpo.errors import SrpoError
from srpo.files import read_events, write_text

PACKAGES = ("torch", "verl", "transformers", "tensordict", "numpy", "ray", "sglang", "flash-attn")
LOGS = ("steps.jsonl", "validations.jsonl", "groups.jsonl")
FINISHED = "finished"
"""A file beside the summary, which Snakemake deletes before it runs a job again."""

_RESULT = ("srpo", "packages", "data", "base_model")
"""What of the provenance determines a run's result. A commit does not: a change that does raises srpo's version."""

logger = logging.getLogger(__name__)


def provenance(data: dict[str, Path], model: Path) -> dict[str, Any]:
    """Describe the origin of a run; ``data`` maps a split's name to its file."""
    return {
        "srpo": srpo.__version__,
        "commit": git_commit(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()} {platform.system()}",
        "packages": {name: version(name) for name in PACKAGES if _installed(name)},
        "data": {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in data.items()},
        "base_model": json.loads((model / "base.json").read_text()).get("sha256"),
    }


def _installed(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True


def git_commit() -> str:
    """Commit of the source tree, with ``-dirty`` for local changes; ``unknown`` outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


# ---------------------------------------------------------------- one folder, one origin


def claim_folder(run_folder: Path, origin: dict[str, Any]) -> None:
    """Write ``run.yaml``, unless the folder holds a run that cannot be continued with this origin.

    A run goes on under the same origin, with other memory settings, and with a longer budget. A finished run stays
    what it is when only packages differ, and is set aside (``superseded/``, without its checkpoints) when settings,
    data or base model do: whoever asks for it anew has changed them.

    Args:
        run_folder: the run's folder.
        origin: the resolved specification under ``spec`` and where it comes from under ``provenance``.

    Raises:
        SrpoError: naming what differs, if steps of another, unfinished run are there; or if they are of nobody knows
            which.
    """
    path = run_folder / "run.yaml"
    before = yaml.safe_load(path.read_text()) if path.exists() else None
    last = next(iter(deque(read_events(run_folder / LOGS[0]), maxlen=1)), None)
    if last and not before:
        raise SrpoError(
            f"{run_folder}: {last['step']} steps are there, but no run.yaml; delete the folder to start over"
        )
    if last and (changed := _differences(before, origin)) and not _prolongs(before, origin, changed):
        if not (run_folder / FINISHED).exists():
            raise SrpoError(
                f"{run_folder}: {last['step']} steps were trained with other settings: {_listed(changed)}; "
                "restore them, or delete the folder to start over"
            )
        if all(key.startswith("packages.") for key in changed):
            return
        _set_aside(run_folder, changed)
    if before and _differences(before, origin):
        (run_folder / FINISHED).unlink(missing_ok=True)  # it is not, with a longer budget
    write_text(path, yaml.safe_dump(origin, sort_keys=False))


def _differences(before: dict[str, Any], now: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Old and new value of every dotted key, of those that determine a run's result, that differs."""

    def flat(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            return {key: value}
        return {k: v for name, inner in value.items() for k, v in flat(inner, f"{key}.{name}").items()}

    def relevant(origin: dict[str, Any]) -> dict[str, Any]:
        values = {part: origin["provenance"].get(part) for part in _RESULT} | origin["spec"]
        values = {k: v for part, value in values.items() for k, v in flat(value, part).items()}
        ignored = {f"{part}.{name}" for part, names in WITHOUT_EFFECT.items() for name in names}
        return {k: v for k, v in values.items() if k not in ignored}

    old, new = relevant(before), relevant(now)
    return {k: (old.get(k), new.get(k)) for k in sorted(old.keys() | new.keys()) if old.get(k) != new.get(k)}


def _prolongs(before: dict[str, Any], now: dict[str, Any], changed: dict[str, tuple[Any, Any]]) -> bool:
    """Whether the only change is that the run goes on for longer."""
    last_budget = max(before["spec"]["training"]["budgets"].values())
    for key, (old, new) in changed.items():
        longer_budget = key.startswith("training.budgets.") and old is None and new > last_budget
        more_steps = key == "training.max_steps" and old is not None and (new is None or new > old)
        if not (longer_budget or more_steps):
            return False
    return True


def _set_aside(run_folder: Path, changed: dict[str, tuple[Any, Any]]) -> None:
    folder = next(f for n in itertools.count(1) if not (f := run_folder / "superseded" / str(n)).exists())
    logger.warning(
        "%s: starting over, the run before is set aside in %s; changed: %s", run_folder, folder, _listed(changed)
    )
    shutil.rmtree(run_folder / "checkpoints", ignore_errors=True)  # first: they must not be resumed from without logs
    folder.mkdir(parents=True)
    # in this order: until the steps are moved, a kill leaves a finished run that is set aside again
    shutil.copy2(run_folder / "run.yaml", folder / "run.yaml")
    for name in (*reversed(LOGS), FINISHED):
        if (run_folder / name).exists():
            (run_folder / name).rename(folder / name)


def _listed(changed: dict[str, tuple[Any, Any]]) -> str:
    return ", ".join(f"{key} = {old}, now {new}" for key, (old, new) in changed.items())
