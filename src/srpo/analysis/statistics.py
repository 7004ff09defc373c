"""Point estimates with 95 % intervals, and what they generalise over.

Everything that the report compares is a *contrast*: a weighted sum of mean scores, averaged over benchmarks. A score
is the contrast with one term, a difference between two methods one with two. :func:`contrast` chooses the unit of
repetition from what was run:

``seed``
    Every arm has two training seeds or more. A t interval over seeds; arms and benchmarks vary independently, so
    their variances add up (Welch and Satterthwaite's degrees of freedom). It covers another training seed, on these
    test questions.
``question``
    Some arm has one seed. A bootstrap over questions: whole questions are drawn with replacement, each with all of
    its samples and with every method's answer to it, so that methods are compared on the same questions. It covers
    another draw of questions and samples, **not** another training seed.
``benchmark``
    No questions to draw from either (a number logged once a step). A t interval over benchmarks.
``none``
    One value: no interval.

Why samples are not drawn a second time within a drawn question: a question's score already carries the noise of its
samples, and drawing again adds that noise twice (Davison and Hinkley, *Bootstrap Methods and their Application*,
section 3.8: groups with replacement, members without). ``tests/test_statistics.py`` shows both by simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from srpo.errors import SrpoError
from srpo.seeds import derive_seed

LEVEL = 0.95
RESAMPLES = 4999
Unit = Literal["seed", "question", "benchmark", "none"]


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval, in the unit of what was estimated.

    Attributes:
        low, high: NaN where no interval can be given. Equal to ``value`` where all units agree exactly (a score of
            100 %, say): such an interval says nothing about uncertainty.
        unit: what the interval generalises over.
        count: how many units: the fewest seeds of an arm, the questions of all benchmarks, or the benchmarks.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    unit: Unit = "none"
    count: int = 1

    @property
    def has_interval(self) -> bool:
        """Whether ``low`` and ``high`` are numbers."""
        return not (math.isnan(self.low) or math.isnan(self.high))


@dataclass(frozen=True)
class Arm:
    """The runs of one method on one benchmark.

    Attributes:
        values: seeds x questions; one column for a number without questions.
        fixed: not a sample of training seeds (a base model is one, whatever the seeds): it enters an interval over
            seeds as a constant.
    """

    values: np.ndarray
    fixed: bool = False


def contrast(strata: Sequence[Sequence[Arm]]) -> Estimate:
    """The mean over ``strata`` (benchmarks) of the sum of their arms' means.

    An arm's values carry its weight already, e.g. -1 times the scores of the method that is subtracted.

    Raises:
        SrpoError: if there is nothing to estimate from, or if arms of a stratum have different numbers of questions.
    """
    if not strata or not all(strata) or any(0 in arm.values.shape for arms in strata for arm in arms):
        raise SrpoError("contrast of no scores: give at least one benchmark with one run each")
    for arms in strata:
        questions = {arm.values.shape[1] for arm in arms}
        if len(questions) > 1:
            raise SrpoError(f"scores of {sorted(questions)} questions compared: runs of one benchmark share its split")
    by_question = [np.sum([arm.values.mean(axis=0) for arm in arms], axis=0) for arms in strata]
    value = float(np.mean([scores.mean() for scores in by_question]))
    sampled = [arm.values.mean(axis=1) for arms in strata for arm in arms if not arm.fixed]
    fewest = min((len(seeds) for seeds in sampled), default=1)
    if fewest > 1:
        low, high = sum_interval([seeds / len(strata) for seeds in sampled])
        constant = value - sum(seeds.mean() for seeds in sampled) / len(strata)
        return Estimate(value, constant + low, constant + high, "seed", fewest)
    if all(len(scores) > 1 for scores in by_question):
        return Estimate(value, *_question_interval(by_question), "question", sum(map(len, by_question)))
    if len(by_question) > 1:
        means = np.array([scores.mean() for scores in by_question])
        return Estimate(value, *sum_interval([means]), "benchmark", len(means))
    return Estimate(value)


def sum_interval(groups: Sequence[np.ndarray]) -> tuple[float, float]:
    """The t interval of a sum of independent means, of at least two values each (Welch; Satterthwaite 1946)."""
    value = sum(float(group.mean()) for group in groups)
    variances = np.array([group.var(ddof=1) / len(group) for group in groups])
    variance = variances.sum()
    if variance == 0:
        return value, value
    freedom = variance**2 / (variances**2 / [len(group) - 1 for group in groups]).sum()
    low, high = stats.t.interval(LEVEL, freedom, loc=value, scale=math.sqrt(variance))
    return float(low), float(high)


def _question_interval(by_question: list[np.ndarray]) -> tuple[float, float]:
    """The bias-corrected and accelerated bootstrap of the mean over strata, questions drawn anew within each.

    BCa and not plain percentiles, which cover too little near 0 and 100 %, where scores are skewed.
    """
    if all(np.ptp(scores) == 0 for scores in by_question):
        value = float(np.mean([scores[0] for scores in by_question]))
        return value, value
    result = stats.bootstrap(
        by_question,
        _mean_of_means,
        n_resamples=RESAMPLES,
        vectorized=True,
        confidence_level=LEVEL,
        method="BCa",
        rng=np.random.default_rng(derive_seed("report", "bootstrap")),
    )
    low, high = result.confidence_interval
    return float(low), float(high)


def _mean_of_means(*strata: np.ndarray, axis: int) -> np.ndarray:
    return np.mean([scores.mean(axis=axis) for scores in strata], axis=0)
