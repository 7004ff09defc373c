"""A folder with only some of the installed packages, for processes that must do with them."""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from paths import ROOT


def closure(stated: Iterable[str]) -> set[str]:
    """The names of the distributions that requirements need here, with all that those require."""
    found: set[tuple[str, str]] = set()
    todo = [Requirement(line) for line in stated]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {extra for known, extra in found if known == name}:
            found.add((name, extra))
            required = map(Requirement, importlib.metadata.requires(name) or [])
            todo += [more for more in required if more.marker is None or more.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


def plant(folder: Path, stated: Iterable[str]) -> Path:
    """Link into ``folder`` the files of the distributions that requirements need."""
    folder.mkdir()
    for name in closure(stated):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")}:
            if not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())
    return folder


def run(folder: Path, *arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python with the packages in ``folder`` and srpo of this checkout, and no others."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "MLFLOW"))}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (folder, ROOT / "src")))
    command = [sys.executable, "-S", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
