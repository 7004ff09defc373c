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
from scipy.special import expit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from made_up_scores import SAMPLES, VALIDATIONS, World

from srpo.analysis.results.contrasts import Arm, contrast
from srpo.analysis.results.cross_fit import selected_scores
from srpo.analysis.results.multiple_testing import ALPHA

GAINS, TASTES = (0.0, 3.0), (0.3, 0.6)


def deciding_rules(
    rng: np.random.Generator, gain: float, taste: float, experiments: int, base_models: int = 8
) -> dict[str, float]:
    """Percent of experiments in which "the first of two methods is above" holds at 2.5 %, by the score that decides.

    Args:
        gain: points by which the first method is better; 0: every *holds* is false.
        taste: by how much the questions that its checkpoints solve differ, logits; 0.3 of the other method's.
    """
    holds = dict.fromkeys(("cross-fitted", "resampled", "both"), 0)
    for _ in range(experiments):
        by_score: dict[str, list[list[Arm]]] = {"cross-fitted": [], "resampled": []}
        for _ in range(5):
            difficulty = rng.normal(0, 1, 64) * World().hardness
            arms: dict[str, list[Arm]] = {name: [] for name in by_score}
            for sign, own, better in ((1, taste, gain), (-1, 0.3, 0.0)):
                world = World(questions=64, taste=own)
                runs: dict[str, list[np.ndarray]] = {name: [] for name in by_score}
                for shift in world.logits(better + rng.normal(0, 2.0, base_models)):
                    chance = expit(
                        difficulty + shift + world.course_logits(0)[:, None] + rng.normal(0, own, (VALIDATIONS, 64))
                    )
                    scores = rng.binomial(8, chance) / 8
                    best = scores.mean(axis=1).argmax()
                    runs["cross-fitted"].append(100 * selected_scores(scores))
                    runs["resampled"].append(100 * rng.binomial(SAMPLES, chance[best]) / SAMPLES)
                for name, found in runs.items():
                    arms[name].append(Arm(sign * np.array(found)))
            for name, pair in arms.items():
                by_score[name].append(pair)
        shown = {name: contrast(strata, paired=True).p_above(0) < ALPHA for name, strata in by_score.items()}
        for name, is_shown in (shown | {"both": all(shown.values())}).items():
            holds[name] += is_shown
    return {name: 100 * count / experiments for name, count in holds.items()}


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
