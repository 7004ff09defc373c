"""What seeds find on a lab's GPUs, before there are runs: simulated, as the report will estimate it.

Runs, questions and samples vary, and the interval is the report's (:mod:`srpo.analysis.results.contrasts`). How much
runs and questions vary is not known before there are some, so there are two values of each.
"""

import functools
import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from srpo.analysis.results.estimates import LEVEL
from srpo.analysis.results.power import ASSUMED_RUN_SD, POWER, sample_noise

PUBLISHED_RUN_SDS = {"TASD": 2.3, "SDCL": 3.4}
"""Points: SD between others' runs of one method on one benchmark at this scale (docs/reproductions.md)."""

RUN_SDS = (ASSUMED_RUN_SD, max(PUBLISHED_RUN_SDS.values()))
"""Points: SD between the runs of a method on a benchmark, assumed and at most."""

QUESTION_SDS = (10.0, 20.0)
"""Points: SD over questions of the true difference of two methods, assumed. Nobody has published it; runs show it."""

SPREADS = tuple(itertools.product(RUN_SDS, QUESTION_SDS))
"""The pairs of both, from the least to the largest."""

DRAWS = 1000
"""Simulated experiments: a power has a standard error of 1.6 points or less."""


@dataclass(frozen=True)
class Setting:
    """A comparison of two methods.

    Attributes:
        questions: of each benchmark.
        samples: of each question.
        seeds: of each method.
        run_sd, question_sd: as :data:`RUN_SDS` and :data:`QUESTION_SDS`.
    """

    questions: tuple[int, ...]
    samples: int
    seeds: int
    run_sd: float
    question_sd: float

    @property
    def resolves(self) -> float:
        """Half the width of the interval, its median, points."""
        return float(np.median(_simulated(self)[0]))

    @property
    def finds(self) -> float:
        """The true difference that it finds with the usual power, points."""
        half_width, error = _simulated(self)
        return float(np.quantile(half_width - error, POWER))

    def power(self, lead: float) -> float:
        """How often the interval lies above 0 if the true difference is ``lead`` points."""
        half_width, error = _simulated(self)
        return float((lead + error > half_width).mean())


@functools.cache
def _simulated(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Of each simulated experiment, half the width of its interval and the error of its difference, points.

    The parts of the variance are drawn as the report estimates them from normal scores (module ``contrasts``):
    each is a multiple of chi-squared. The samples' noise is at its upper bound, half of them correct.
    """
    rng, shape = np.random.default_rng(0), (DRAWS, len(setting.questions))
    count, seeds, share = np.array(setting.questions), setting.seeds, 1 / len(setting.questions) ** 2
    residual = count * np.array([sample_noise([each], setting.samples) ** 2 for each in setting.questions])
    of_questions = share * (setting.question_sd**2 + 2 * residual / seeds) / count
    of_arm = share * (setting.run_sd**2 + residual / count) / seeds
    of_both = share * residual / (count * seeds)

    def estimated(value: np.ndarray, dof: np.ndarray | int, arms: int = 1) -> np.ndarray:
        shown = np.broadcast_to(value, (arms, *shape))
        return shown * rng.chisquare(np.broadcast_to(dof, shown.shape)) / dof

    over_questions, over_runs = estimated(of_questions, count - 1)[0], estimated(of_arm, seeds - 1, arms=2)
    both = estimated(of_both, (seeds - 1) * (count - 1), arms=2).sum((0, 2))
    sums = over_questions.sum(1), over_runs.sum((0, 2))
    variance = np.maximum(sums[0] + sums[1] - both, np.maximum(*sums))
    squared = (over_questions**2 / (count - 1)).sum(1) + (over_runs**2 / (seeds - 1)).sum((0, 2))
    dof = np.maximum(1.0, variance**2 / squared)
    true = (of_questions + 2 * of_arm - 2 * of_both).sum()
    error = rng.normal(0, math.sqrt(true), DRAWS)
    return np.sqrt(variance) * special.stdtrit(dof, (1 + LEVEL) / 2), error
