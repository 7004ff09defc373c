"""Trains runs of a published experiment again, drawn at random, and compares their logs with the published ones.

    python scripts/audit.py registered 2

Seconds and memory that were measured are not compared, nor is what only one of the two versions logs.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from srpo.analysis.published import unpacked
from srpo.experiment.compose import load_experiment
from srpo.ground.files import read_events, read_mapping
from srpo.ground.layout import Layout, RunFiles
from srpo.ground.machine import processor

ROOT = Path("results", "audit")
MEASURED = re.compile("wall_seconds|host_memory_gb|perf/.*")


def main(name: str, runs: str) -> int:
    """Train runs again; 1 if the logs of one differ."""
    published = Layout(unpacked(Path("published", name)))
    experiment, again = load_experiment(published.experiment), Layout(ROOT / name)
    drawn = random.sample(experiment.runs(), int(runs))
    shutil.rmtree(again.folder, ignore_errors=True)
    targets = [str(again.run_files(run).summary) for run in drawn]
    given = ["--configfile", str(published.experiment), "--config", f"results={ROOT}"]
    subprocess.run(["snakemake", "--quiet", "all", "--cores", "all", *targets, *given], check=True)
    differing = 0
    for run in drawn:
        of = read_mapping(published.run_files(run).origin)["provenance"]["processor"]
        where = "" if of == processor() else f" (published on {of}, trained on {processor()})"
        found = difference(published.run_files(run), again.run_files(run))
        print(f"{name}/{run.path}: {found or 'the same steps and validations'}{where}")
        differing += bool(found)
    return int(differing > 0)


def difference(published: RunFiles, again: RunFiles) -> str:
    """The first event that differs; empty if none does."""
    for path in (published.steps, published.validations):
        before, now = [*read_events(path)], [*read_events(again.folder / path.name)]
        for old, new in zip(before, now, strict=False):
            if keys := [key for key, value in flat(old).items() if flat(new).get(key, value) != value]:
                return f"differs from {path.name}, step {old['step']}: {', '.join(keys)}"
        if len(before) != len(now):
            return f"differs, {path.name} has {len(now)} lines, published are {len(before)}"
    return ""


def flat(event: dict[str, Any]) -> dict[str, Any]:
    """What is compared of a line of a log."""
    metrics = event.get("metrics", {})
    return {key: value for key, value in (event | metrics).items() if key != "metrics" and not MEASURED.fullmatch(key)}


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
