"""Coverage and false verdicts where every seed starts all methods from a base model of its own, simulated.

    python bench/coverage.py [--experiments 400]

Three equal methods, five benchmarks. A base model shifts a method's score on all benchmarks; what moves a *difference*
of methods has the standard deviation of the rows. Prints the first tables of docs/coverage.md.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from made_up_scores import PairedWorld, paired_nulls

BASE_MODELS, BASE_SDS, RUN_SDS = (3, 5, 8), (0.0, 1.0, 2.0), (1.0, 2.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", type=int, default=400, help="simulated experiments per row")
    options = parser.parse_args()
    heads = ["base models", "SD between base models", "SD between runs", "by benchmark", "by base model", "the widest"]
    heads += ["not paired", "a false *holds*", "any of the primary family"]
    print(f"| {' | '.join(heads)} |\n| {' | '.join('---' for _ in heads)} |")
    for number, (base_models, base_sd, run_sd) in enumerate(
        (b, s, r) for b in BASE_MODELS for s in BASE_SDS for r in RUN_SDS
    ):
        world = PairedWorld(base_models=base_models, base_sd=base_sd, run_sd=run_sd)
        found = paired_nulls(np.random.default_rng([29, number]), world, options.experiments)
        cells = [f"{rates.coverage:.0f} %, ± {rates.half:.1f}" for rates in found.coverage.values()]
        cells += [f"{found.false_single:.1f} %", f"{found.false_family:.1f} %"]
        print(f"| {base_models} | {base_sd:g} | {run_sd:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
