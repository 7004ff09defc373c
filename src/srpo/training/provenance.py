"""Where a run's result comes from: code, packages, data and base model."""

import hashlib
import json
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import srpo

PACKAGES = ("torch", "verl", "transformers", "tensordict", "numpy")


def provenance(data: dict[str, Path], model: Path) -> dict[str, Any]:
    """Describe the origin of a run; ``data`` maps a split's name to its file."""
    return {
        "srpo": srpo.__version__,
        "commit": git_commit(),
        "python": platform.python_version(),
        "machine": f"{platform.machine()} {platform.system()}",
        "packages": {name: version(name) for name in PACKAGES},
        "data": {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in data.items()},
        "base_model": json.loads((model / "base.json").read_text()).get("sha256"),
    }


def git_commit() -> str:
    """Commit of the source tree, with ``-dirty`` for local changes; ``unknown`` outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
