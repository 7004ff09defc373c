"""The project's workflow, run as a user would in a folder of the test's own."""

import json
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

from paths import ROOT

FORKS = """
import json, os, sys
import smart_open, snakemake.cli, srpo.analysis.outline, srpo.experiment.compose, srpo.training.lengths
snakemake.cli.get_argument_parser()  # imports the plugins
for line in sys.stdin:
    said, environment, arguments = json.loads(line)
    if not (child := os.fork()):
        for stream in (1, 2):
            os.dup2(os.open(said, os.O_CREAT | os.O_WRONLY | os.O_APPEND), stream)
        os.environ.update(environment)
        sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
        snakemake.cli.main(arguments)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A program that forks for each line of arguments: it imports Snakemake once, which takes longer than a dry run."""


@cache
def _forks() -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", FORKS], cwd=ROOT, stdin=-1, stdout=-1, text=True)


def dry_run(folder: Path, *arguments: object) -> tuple[int, str]:
    """The exit status of a dry run in ``folder``, and what it says."""
    said, forks = folder / "dry-run.log", _forks()
    said.unlink(missing_ok=True)
    command = ["--snakefile", ROOT / "Snakefile", "--directory", folder, "--dry-run", *arguments]
    assert forks.stdin is not None
    assert forks.stdout is not None
    print(json.dumps([str(said), {**os.environ}, [*map(str, command)]]), file=forks.stdin, flush=True)
    return int(forks.stdout.readline()), said.read_text()


def start(
    folder: Path, *arguments: object, path: Path | None = None, stderr: int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start Snakemake in ``folder``, where its own ``.snakemake`` and ``results`` go; ``path`` is searched first.

    Its processes are a group, as those that a terminal starts. At its end Snakemake waits a second, not the profile's.
    """
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder]
    command += ["--max-jobs-per-timespan", "1000/1s", *arguments]
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


def snakemake(folder: Path, *arguments: object, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    process = start(folder, *arguments, path=path)
    said, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)
