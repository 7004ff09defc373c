"""The project's workflow, run as a user would in a folder of the test's own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from paths import ROOT


def start(
    folder: Path, *arguments: object, path: Path | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start Snakemake in ``folder``, where its own ``.snakemake`` and ``results`` go; ``path`` is searched first.

    Its processes are a group, as those that a terminal starts.
    """
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder, *arguments]
    search = [str(folder) for folder in (path, Path(sys.executable).parent) if folder]
    environment = {**os.environ, "PATH": os.pathsep.join([*search, os.environ["PATH"]])}
    return subprocess.Popen(
        [*map(str, command)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
        # ignored, where the tests are a shell's background job
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def snakemake(
    folder: Path, *arguments: object, path: Path | None = None, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = start(folder, *arguments, path=path, stderr=stderr)
    said, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)
