"""Contrasts of scores with 95 % intervals over training runs and test questions together.

Everything that a report compares is a *contrast*: a weighted sum of mean scores, averaged over benchmarks. A score is
the contrast with one arm, a difference between two methods one with two. Its interval is
meant to cover the contrast's mean over other training runs (seeds) **and** other questions of the same kind.

A score varies with the run, with the question, and with both together (this part includes the noise of the samples).
The variance of a mean over crossed runs and questions is computed from three estimates (Cornfield and Tukey 1956; the
two-way case of Owen 2007, *The pigeonhole bootstrap*, and of Cameron, Gelbach and Miller 2011):

    V = V_questions + V_runs - V_both

``V_questions``
    The variance over questions of the contrast of each question (methods are compared on the same questions, so that
    hard questions do not count as noise), divided by the number of questions.
``V_runs``
    The sum over methods of the variance over runs of their means, divided by the number of runs.
``V_both``
    The part that both contain: the residual variance of run x question, divided by the number of pairs.

V is unbiased; where it is smaller than one of the first two, the larger of these is used. The interval is Student's t
with Satterthwaite's (1946) degrees of freedom. Skewed scores near 0 and 100 % make the variance over questions less
certain than its count says, so its degrees of freedom shrink with the kurtosis; the interval of a score or share itself
(not of a difference) is Wilson's with an effective number of questions, as for proportions of a survey (Korn and
Graubard 1998; Dean and Pagano 2015), and so stays within 0 and 100 %. If all questions give the same value,
there is no interval.

With one run of a method V_runs is unknown: the interval covers other questions only, unless a :class:`Spread` of runs,
measured on other methods of the experiment, replaces it. This is the better interval, but it assumes that the method
varies as the others do, which one run cannot show. So no claim is decided on it either
(:attr:`Estimate.several_seeds`). ``bench/verdicts.py`` computes the coverage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

from srpo.errors import SrpoError

LEVEL = 0.95
MIN_QUESTIONS = 8
"""Minimum number of questions, over all benchmarks, for an interval over questions."""

PERCENT = (0.0, 100.0)
"""Bounds of a score or another share in percent."""

Unit = Literal["seed and question", "question", "seed", "benchmark", "none"]


@dataclass(frozen=True)
class Spread:
    """The spread between training runs, measured on methods with several seeds.

    Attributes:
        sd: standard deviation of a run's mean over questions, without the noise of its samples, in the unit of the
            values.
        dof: degrees of freedom of ``sd``.
    """

    sd: float
    dof: float


@dataclass(frozen=True)
class Arm:
    """The runs of one method on one benchmark.

    Attributes:
        values: seeds x questions, multiplied by the weight; one column if the number has no questions.
        fixed: whether there is no training run, as for a base model; then it adds no spread of runs.
        spread: between runs; used only if there is one run.
    """

    values: np.ndarray
    fixed: bool = False
    spread: Spread | None = None


@dataclass(frozen=True)
class Estimate:
    """An estimate with its standard error, in the unit of the values.

    Attributes:
        unit: what the interval generalises over. ``benchmark``: numbers without questions, from one run each. The
            differences between benchmarks include those between runs, so the interval is too wide, not too narrow.
        count: runs of the method with the fewest, or questions, or benchmarks.
        error, dof: standard error and its degrees of freedom; NaN without an interval.
        bounds: least and largest possible value of a mean score; None for a difference.
        spread: the spread between runs that was measured on other methods, if it is used.
        reason: why there is no interval.
    """

    value: float
    unit: Unit = "none"
    count: int = 1
    error: float = math.nan
    dof: float = math.nan
    bounds: tuple[float, float] | None = None
    spread: Spread | None = None
    reason: str = ""

    @property
    def has_interval(self) -> bool:
        """Whether ``low`` and ``high`` are numbers."""
        return not math.isnan(self.error)

    @property
    def several_seeds(self) -> bool:
        """Whether every method has several training seeds, so that its own runs say how much they differ."""
        return self.unit in ("seed and question", "seed") and self.spread is None

    @property
    def meaning(self) -> str:
        """The unit, or ``question, run SD`` if the spread between runs was measured on other methods."""
        return f"{self.unit}, run SD" if self.spread is not None and self.has_interval else self.unit

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval; NaN without one."""
        return self.interval()[0]

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval; NaN without one."""
        return self.interval()[1]

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The two-sided interval of another level."""
        if not self.has_interval:
            return math.nan, math.nan
        quantile = float(special.stdtrit(self.dof, (1 + level) / 2))
        if self.bounds is None:
            return self.value - quantile * self.error, self.value + quantile * self.error
        least, size = self.bounds[0], self.bounds[1] - self.bounds[0]
        share, error = (self.value - least) / size, self.error / size
        ratio = quantile**2 * error**2 / (share * (1 - share))  # quantile squared / effective number of questions
        middle = (share + ratio / 2) / (1 + ratio)
        half = math.sqrt(ratio * share * (1 - share) + ratio**2 / 4) / (1 + ratio)
        return least + size * (middle - half), least + size * (middle + half)

    def p_above(self, threshold: float) -> float:
        """One-sided p-value against "the truth is at most ``threshold``"; NaN without an interval."""
        if not self.has_interval:
            return math.nan
        error = self.error
        if self.bounds is not None:  # the same inversion as the interval: the error that the threshold implies
            low, high = self.bounds
            error *= math.sqrt((threshold - low) * (high - threshold) / ((self.value - low) * (high - self.value)))
        return float(special.stdtr(self.dof, (threshold - self.value) / error))

    def p_below(self, threshold: float) -> float:
        """One-sided p-value against "the truth is at least ``threshold``"; NaN without an interval."""
        return 1 - self.p_above(threshold)


# ---------------------------------------------------------------- the contrast


def contrast(strata: Sequence[Sequence[Arm]], bounds: tuple[float, float] | None = None) -> Estimate:
    """The mean over ``strata`` (benchmarks) of the sum of their arms' means.

    Args:
        bounds: range of the values, if the contrast is a score and not a difference; the interval stays inside.

    Raises:
        SrpoError: if there are no scores, or if arms of a stratum have different numbers of questions.
    """
    _check(strata)
    by_question = [np.sum([arm.values.mean(axis=0) for arm in arms], axis=0) for arms in strata]
    value = float(np.mean([scores.mean() for scores in by_question]))
    questions = min(map(len, by_question))
    sampled = [arm for arms in strata for arm in arms if not arm.fixed]
    runs = min((len(arm.values) for arm in sampled), default=0)
    several, count = runs > 1, sum(map(len, by_question))
    unit: Unit = "question"
    borrowed = [arm.spread for arm in sampled if len(arm.values) == 1 and arm.spread is not None]
    known = all(len(arm.values) > 1 or arm.spread is not None for arm in sampled)
    spread = borrowed[0] if borrowed and known else None
    if questions == 1 and not several and spread is None:
        return _over_benchmarks(value, by_question)
    if several:
        unit, count = ("seed and question" if questions > 1 else "seed"), runs
    elif questions == 1:
        unit, count = "seed", runs
    if reason := _too_little(by_question) if questions > 1 else "":
        return Estimate(value, unit, count, reason=reason)
    error, dof = _error([_parts(arms, known, bounds) for arms in strata])
    if error == 0:
        return Estimate(value, unit, count, reason="all runs agree exactly")
    if bounds is not None and not bounds[0] < value < bounds[1]:
        return Estimate(value, unit, count, reason="every score is 0 or 100 %")
    return Estimate(value, unit, count, error, dof, bounds, spread)


def over_seeds(estimate: Estimate | None) -> Estimate | None:
    """``estimate`` without an interval over benchmarks: their spread is not the uncertainty of their average."""
    return estimate if estimate is None or estimate.unit != "benchmark" else Estimate(estimate.value)


def independent_difference(one: Estimate, other: Estimate) -> Estimate:
    """``one`` minus ``other`` if questions and runs are different: the variances are added."""
    value, unit = one.value - other.value, one.unit if one.unit == other.unit else "question"
    count = min(one.count, other.count)
    if not (one.has_interval and other.has_interval):
        return Estimate(value, unit, count, reason=one.reason or other.reason)
    variances = [one.error**2, other.error**2]
    dof = sum(variances) ** 2 / (variances[0] ** 2 / one.dof + variances[1] ** 2 / other.dof)
    return Estimate(value, unit, count, math.sqrt(sum(variances)), dof)


def _check(strata: Sequence[Sequence[Arm]]) -> None:
    if not strata or not all(strata) or any(0 in arm.values.shape for arms in strata for arm in arms):
        raise SrpoError("contrast without scores: give at least one run of each method on at least one benchmark")
    for arms in strata:
        questions = {arm.values.shape[1] for arm in arms}
        if len(questions) > 1:
            raise SrpoError(f"scores of {sorted(questions)} questions compared: runs of one benchmark share its split")


def _over_benchmarks(value: float, by_question: list[np.ndarray]) -> Estimate:
    """One number and one run per benchmark: only the differences between benchmarks are known."""
    means = np.array([scores.mean() for scores in by_question])
    if len(means) < 2:
        return Estimate(value, reason="one run, and no questions to draw from")
    error = means.std(ddof=1) / math.sqrt(len(means))
    if error == 0:
        return Estimate(value, "benchmark", len(means), reason="all benchmarks agree exactly")
    return Estimate(value, "benchmark", len(means), error, len(means) - 1)


def _too_little(by_question: list[np.ndarray]) -> str:
    """Why these questions give no interval; empty if they give one."""
    total = sum(map(len, by_question))
    if total < MIN_QUESTIONS:
        return f"{total} questions are too few for an interval"
    return "every question gives the same value" if not any(map(np.ptp, by_question)) else ""


@dataclass(frozen=True)
class _Parts:
    """Variances of the mean of one benchmark, each with its degrees of freedom."""

    questions: tuple[float, float]
    runs: list[tuple[float, float]]
    both: float
    added: list[tuple[float, float]]


def _parts(arms: Sequence[Arm], use_spread: bool, bounds: tuple[float, float] | None) -> _Parts:
    scores = np.sum([arm.values.mean(axis=0) for arm in arms], axis=0)
    size = len(scores)
    over_questions = (0.0, 1.0)
    if size > 1:
        over_questions = (_question_variance(scores, bounds) / size, _question_dof(scores))
    both = 0.0
    runs: list[tuple[float, float]] = []
    added: list[tuple[float, float]] = []
    for arm in arms:
        seeds = len(arm.values)
        if arm.fixed:
            continue
        if seeds > 1:
            runs.append((arm.values.mean(axis=1).var(ddof=1) / seeds, seeds - 1))
            both += _residual_variance(arm.values) / (seeds * size)
        elif use_spread and arm.spread is not None:
            added.append((arm.spread.sd**2, arm.spread.dof))
    return _Parts(over_questions, runs, both, added)


def _error(parts: list[_Parts]) -> tuple[float, float]:
    """Standard error of the mean over benchmarks, and its degrees of freedom (Satterthwaite)."""
    over_questions = sum(part.questions[0] for part in parts)
    over_runs = sum(variance for part in parts for variance, _ in part.runs)
    crossed = over_questions + over_runs - sum(part.both for part in parts)
    added = [term for part in parts for term in part.added]
    variance = max(crossed, over_questions, over_runs) + sum(term for term, _ in added)
    if variance == 0:
        return 0.0, math.nan
    terms = [part.questions for part in parts] + [term for part in parts for term in part.runs] + added
    # A spread that several arms share is one estimate: its terms are added before they are squared.
    squared = sum(term**2 / dof for term, dof in terms)
    if added:
        squared += (sum(term for term, _ in added) ** 2 - sum(term**2 for term, _ in added)) / added[0][1]
    return math.sqrt(variance) / len(parts), max(1.0, variance**2 / squared)


def _question_variance(scores: np.ndarray, bounds: tuple[float, float] | None) -> float:
    """Variance over questions. For a bounded score, one more question is added that is always or never solved.

    Near a bound all questions of the sample may be solved, although one in a hundred never is. The share of such
    questions is estimated by the score itself, moved slightly to the middle (Laplace's rule of succession).
    """
    size, variance = len(scores), float(scores.var(ddof=1))
    if bounds is None:
        return variance
    low, high = bounds
    share = (size * (scores.mean() - low) / (high - low) + 1) / (size + 2)
    return ((size - 1) * variance + share * (1 - share) * (high - low) ** 2) / size


def _question_dof(scores: np.ndarray) -> float:
    """Degrees of freedom of a variance over questions: fewer if scores have heavy tails."""
    size, deviations = len(scores), scores - scores.mean()
    variance = (deviations**2).mean()
    excess = max(0.0, (deviations**4).mean() / variance**2 - 3) if variance else 0.0
    return 2 / (2 / (size - 1) + excess / size)


def _residual_variance(values: np.ndarray) -> float:
    """Mean square of run x question (seeds x questions), at least two of each; 0 for one question."""
    seeds, size = values.shape
    if size == 1:
        return 0.0
    residual = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    return float((residual**2).sum()) / ((seeds - 1) * (size - 1))


def run_spread(arms: Sequence[np.ndarray]) -> Spread | None:
    """The spread of training runs, pooled over methods and benchmarks with several seeds.

    Args:
        arms: each seeds x questions; those with one seed are ignored.

    Returns:
        None if no method has several seeds.
    """
    several = [values for values in arms if len(values) > 1]
    if not several:
        return None
    dof = np.array([len(values) - 1 for values in several])
    variances = [values.mean(axis=1).var(ddof=1) - _residual_variance(values) / values.shape[1] for values in several]
    return Spread(math.sqrt(max(0.0, np.average(variances, weights=dof))), float(dof.sum()))
