"""Measures time and memory of the report of the paper's full matrix, from made-up logs.

    python bench/report.py [--folder DIR] [--steps 1000]

The matrix has 2 models x 5 benchmarks x 5 methods x 3 seeds, with a validation every 5 steps on as many test questions
as the paper has. Tables, figures and page together must take less than 60 s and 1.5 GB, in one process on one core.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import paper_truth

RESPONSE = "The molecule dissolves well because its groups are polar.\n" * 40


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="keep the logs here; default: a temporary folder")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(options.folder)
    folder = options.folder or Path(tempfile.mkdtemp())
    if not (folder / "experiment.yaml").exists():
        write(folder, options.steps)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"logs: {size / 1e6:.0f} MB")
    # a process of its own: writing the logs takes memory too
    subprocess.run([sys.executable, __file__, "--measure", "--folder", str(folder)], check=True)
    print(f"report.html: {(folder / 'report.html').stat().st_size / 1e6:.1f} MB")
    if options.folder is None:
        shutil.rmtree(folder)


def write(folder: Path, steps: int) -> None:
    """Logs of the full matrix; the 4B ablations, which the paper does not have, take the 8B numbers."""
    published = paper_truth.published()
    truth = replace(
        paper_truth.PAPER,
        score=lambda model, method, benchmark, budget: published(
            "qwen3-8b" if method in paper_truth.ABLATIONS else model, method, benchmark, budget
        ),
    )
    methods = (*paper_truth.MAIN, *paper_truth.ABLATIONS)
    experiment = paper_truth.experiment(methods)
    paper_truth.write(folder, truth, experiment, steps, steps // 5)
    for run in experiment.runs():
        with (folder / "runs" / run.path / "samples.jsonl").open("w") as log:
            for budget in paper_truth.BUDGETS:
                for i in range(32):
                    sample = {"budget": budget, "question": i // 4, "sample": i % 4, "prompt": "Why?" * 100}
                    sample |= {"response": RESPONSE, "ground_truth": "B", "reward": float(i % 2)}
                    log.write(json.dumps(sample) + "\n")


def measure(folder: Path) -> None:
    """Make tables, figures and page in this process and say what each took."""
    from srpo.analysis.figures.registry import write_figures
    from srpo.analysis.report.page import write_report
    from srpo.analysis.results.load import load_results
    from srpo.analysis.tables.registry import write_tables

    results = timed("load", lambda: load_results(folder))
    timed("tables", lambda: write_tables(results, folder / "tables"))
    timed("figures", lambda: write_figures(results, folder / "figures"))
    timed("page", lambda: write_report(results, folder / "report.html"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"together, imports included: {time.process_time():.1f} CPU s, at most {peak:.2f} GB")


def timed(name: str, part: Callable[[], Any]) -> Any:
    wall, cpu = time.monotonic(), time.process_time()
    made = part()
    print(f"{name}: {time.process_time() - cpu:.1f} CPU s, {time.monotonic() - wall:.1f} s")
    return made


if __name__ == "__main__":
    main()
