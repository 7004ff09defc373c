"""Measures `snakemake -n` and `srpo status` for an experiment of 5,004 runs, with none and with all of them trained.

    python bench/many_runs.py [--seeds 834]

Each must take less than a minute. The results are copies of one made-up run.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from srpo.experiment.compose import load_experiment
from srpo.layout import Layout

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from synthetic import tiny_experiment, write_results  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=834, help="six runs each")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = tiny_experiment()
        settings["matrix"][0]["seeds"] = [*range(1, options.seeds + 1)]
        source = Path(folder, "many.yaml")
        source.write_text(yaml.safe_dump(settings, sort_keys=False))
        results = Path(folder, "results", settings["name"])
        plan = ["snakemake", "-n", "--directory", folder, "--snakefile", ROOT / "Snakefile", "--configfile", source]
        timed("snakemake -n, nothing made", *plan)
        write(results, settings)
        timed("srpo status, all evaluated", "srpo", "status", results)
        timed("snakemake -n, all evaluated", *plan)


def write(results: Path, settings: dict) -> None:
    """The results of one run, under the name of each."""
    experiment = load_experiment(settings)
    one = load_experiment(tiny_experiment())
    write_results(results.with_name("one"), one)
    template = Layout(results.with_name("one")).run(one.runs()[0])
    for run in experiment.runs():
        shutil.copytree(template, Layout(results).run(run))
    Layout(results).experiment.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    print(f"{len(experiment.runs())} runs")


def timed(name: str, *command: str | Path) -> None:
    wall, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    print(f"{name}: {cpu:.1f} CPU s, {time.monotonic() - wall:.1f} s")


if __name__ == "__main__":
    main()
