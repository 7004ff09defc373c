"""Which score should decide a claim: false verdicts and power of three rules, simulated.

    python bench/verdicts.py [--experiments 100]     # writes bench/verdicts.csv

Two methods of which one is ``gain`` points better, eight base models, five benchmarks of 64 questions, 24 validations
of eight samples, and 16 new samples of the selected checkpoint. Checkpoints of the first method differ by ``taste``
(logits) in the questions that they solve, those of the other by 0.3, and neither on average: with a larger taste its
maximum is luckier. ``holds`` is the percentage of experiments in which the claim "the first method is above" holds at
2.5 %: at gain 0 a false *holds*, else the power. Tests repeat the coverage of other intervals in seconds
(test_contrasts.py, test_cross_fit.py, test_estimates.py).
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from made_up_scores import deciding_rules

GAINS, TASTES = (0.0, 3.0), (0.3, 0.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", type=int, default=100, help="simulated experiments per row")
    options = parser.parse_args()
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["gain", "taste", "rule", "experiments", "holds"])
        for number, (gain, taste) in enumerate((gain, taste) for gain in GAINS for taste in TASTES):
            found = deciding_rules(np.random.default_rng([31, number]), gain, taste, options.experiments)
            writer.writerows([gain, taste, rule, options.experiments, f"{holds:.0f}"] for rule, holds in found.items())
            file.flush()


if __name__ == "__main__":
    main()
