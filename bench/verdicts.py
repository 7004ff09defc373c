"""Which score should decide, and how often intervals without several base models are wrong, simulated.

    python bench/verdicts.py [--experiments 400]     # writes bench/verdicts.csv

``rule`` rows: two methods of which one is ``gain`` points better, eight base models, five benchmarks of 64 questions,
24 validations of eight samples and 16 new samples of the selected checkpoint. Checkpoints of the first method differ
by ``taste`` in the questions that they solve, and not on average: its maximum is luckier. Percent of experiments in
which the claim "the first method is above" holds at 2.5 %: at gain 0 a false *holds*, else the power.

``interval`` rows: a difference of two equal methods from one base model, a score, and a late drop: percent of
intervals that contain the truth, and that lie above it. Tests repeat parts of them in seconds.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from made_up_scores import Rates, World, deciding_rules, late_drops, level, null_difference, true_drop

from srpo.analysis.results.cross_fit import late_drop

COLUMNS = [
    "table",
    "what",
    "gain",
    "taste",
    "seeds",
    "questions",
    "run_sd",
    "experiments",
    "holds",
    "coverage",
    "above",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", type=int, default=400, help="simulated experiments per row")
    options = parser.parse_args()
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for row in (*_rules(options.experiments), *_intervals(options.experiments)):
            writer.writerow(row | {"experiments": options.experiments})
            file.flush()


def _rules(many: int) -> Iterator[dict[str, object]]:
    for number, (gain, taste) in enumerate((g, t) for g in (0.0, 3.0) for t in (0.3, 0.6)):
        found = deciding_rules(np.random.default_rng([31, number]), gain, taste, many)
        for rule, holds in found.items():
            yield {"table": "rule", "what": rule, "gain": gain, "taste": taste, "holds": f"{holds:.1f}"}


def _intervals(many: int) -> Iterator[dict[str, object]]:
    rng = np.random.default_rng(13)
    for seeds in (1, 2, 3, 5):
        for run_sd in (0.0, 2.0):
            world = World(questions=64, seeds=seeds, run_sd=run_sd, taste=0.5)
            key = {"seeds": seeds, "questions": 64, "run_sd": run_sd}
            yield _row("difference", null_difference(rng, world, 5, many), key)
            if run_sd == 0:
                for mean in (0.6, 0.95, 0.99):
                    found = level(rng, World(mean=mean, questions=64, seeds=seeds), 5, many)
                    yield _row(f"score of {mean:.0%}", found, key)
    for planted in (0.0, 5.0):
        world = World(seeds=3)
        found = late_drops(rng, world, planted, late_drop, 5, max(20, many // 4))
        what = f"late drop of {true_drop(world, planted):.1f} points"
        yield _row(what, found, {"seeds": 3, "questions": world.questions, "run_sd": world.run_sd})


def _row(what: str, rates: Rates, key: dict[str, object]) -> dict[str, object]:
    found = {"coverage": f"{rates.coverage:.1f}", "above": f"{rates.false_above:.1f}"}
    return {"table": "interval", "what": what} | key | found


if __name__ == "__main__":
    main()
