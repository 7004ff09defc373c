"""The project's workflow, run as a user would in a folder of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from paths import ROOT


def snakemake(
    folder: Path, *arguments: object, path: Path | None = None, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run Snakemake in ``folder``, where its own ``.snakemake`` and ``results`` go; ``path`` is searched first."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder]
    search = [str(folder) for folder in (path, Path(sys.executable).parent) if folder]
    environment = {**os.environ, "PATH": os.pathsep.join([*search, os.environ["PATH"]])}
    command += arguments
    return subprocess.run(
        [*map(str, command)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True
    )
