"""Coverage and false verdicts where every seed starts all methods from a base model of its own, simulated.

    python bench/coverage.py [--experiments 200]     # writes bench/coverage.csv

Equal methods in the designs of `registered` and of the default experiment, with 64 questions per benchmark. A base
model shifts a method's score on all benchmarks; what moves a *difference* of methods has the standard deviation of
the rows. With facts per seed, the truth of question i differs by seed: each base model has a table of facts of its
own, and questions that ask for the same fact are alike.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from made_up_scores import PairedWorld, paired_nulls

DESIGNS = ((8, 5), (7, 2))
"""Base models and benchmarks."""
BASE_SDS, RUN_SDS = (0.0, 2.0), (2.5,)
COLUMNS = ["base_models", "benchmarks", "facts", "base_sd", "run_sd", "experiments", "coverage", "half_width"]
COLUMNS += ["coverage_by_benchmark", "coverage_by_base_model", "coverage_not_paired", "false_holds", "false_family"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", type=int, default=200, help="simulated experiments per row")
    options = parser.parse_args()
    worlds = [
        PairedWorld(base_models, base_sd, run_sd=run_sd, benchmarks=benchmarks, facts=facts, methods=4)
        for base_models, benchmarks in DESIGNS
        for facts in (60, 0)
        for base_sd in BASE_SDS
        for run_sd in RUN_SDS
    ]
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for number, world in enumerate(worlds):
            found = paired_nulls(np.random.default_rng([29, number]), world, options.experiments)
            report, *others = (found.coverage[n] for n in ("the widest", "by benchmark", "by base model", "not paired"))
            key = [
                world.base_models,
                world.benchmarks,
                "per seed" if world.facts else "shared",
                world.base_sd,
                world.run_sd,
            ]
            numbers = [report.coverage, report.half, *(other.coverage for other in others)]
            numbers += [found.false_single, found.false_family]
            writer.writerow([*key, options.experiments, *(f"{value:.1f}" for value in numbers)])
            file.flush()


if __name__ == "__main__":
    main()
