"""Estimates with their intervals and one-sided p-values: of a difference or a score, of a ratio, of a share of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special, stats

LEVEL = 0.95
PERCENT = (0.0, 100.0)
"""Bounds of a score or another share in percent."""

SamplingUnit = Literal["seed and question", "question", "seed", "run", "benchmark", "none"]


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
class Variance:
    """Parts of the variance of a mean over crossed runs and questions, in the unit of the values squared.

    Attributes:
        questions: variance over questions of each benchmark's contrast, with its degrees of freedom.
        runs: variance over runs of each mean, with the number of runs (or base models).
        both: the part that both contain.
        added: variances of runs that were measured on other methods, with their degrees of freedom.
    """

    questions: Sequence[tuple[float, float]]
    runs: Sequence[tuple[float, int]]
    both: float
    added: Sequence[tuple[float, float]] = ()

    def error(self) -> tuple[float, float]:
        """Standard error, and its degrees of freedom (Satterthwaite); 0 and NaN if nothing varies."""
        over_questions = sum(variance for variance, _ in self.questions)
        over_runs = sum(variance for variance, _ in self.runs)
        borrowed = sum(variance for variance, _ in self.added)
        variance = max(over_questions + over_runs - self.both, over_questions, over_runs) + borrowed
        if variance == 0:
            return 0.0, math.nan
        terms = [*self.questions, *((term, number - 1) for term, number in self.runs), *self.added]
        # A spread that several arms share is one estimate: its terms are added before they are squared.
        squared = sum(term**2 / dof for term, dof in terms)
        if self.added:
            squared += (borrowed**2 - sum(term**2 for term, _ in self.added)) / self.added[0][1]
        return math.sqrt(variance), max(1.0, variance**2 / squared)

    def with_runs(self, number: int) -> Variance:
        """The parts that are to be expected with another number of runs of every method."""
        runs = [(variance * before / number, number) for variance, before in self.runs]
        shrunk = self.both * sum(v for v, _ in runs) / sum(v for v, _ in self.runs) if self.both else 0.0
        # what runs add to the variance over questions changes with their number, too
        over_questions = sum(variance for variance, _ in self.questions)
        ratio = max(0.0, over_questions - self.both + shrunk) / over_questions if over_questions else 0.0
        questions = [(v * ratio, dof) for v, dof in self.questions]
        return Variance(questions, runs, shrunk)


@dataclass(frozen=True)
class Estimate:
    """An estimate with its standard error, in the unit of the values.

    Attributes:
        sampling_unit: what the interval generalises over; tables have it in the columns ``_unit``. ``run``: a share of
            runs. ``benchmark``: numbers without questions, from one run each. The differences between benchmarks
            include those between runs, so the interval is too wide, not too narrow.
        count: runs of the method with the fewest, or base models, or questions, or benchmarks.
        error, dof: standard error and its degrees of freedom; NaN without an interval.
        bounds: least and largest possible value of a mean score; None for a difference.
        spread: the spread between runs that was measured on other methods, if it is used.
        reason: why there is no interval.
        paired: whether the sampling unit of the runs is the base model, which every method starts from.
        errors: if paired, the standard error with independent benchmarks, and with one number per base model.
        variance: the parts of ``error`` squared, if methods have several runs.
    """

    value: float
    sampling_unit: SamplingUnit = "none"
    count: int = 1
    error: float = math.nan
    dof: float = math.nan
    bounds: tuple[float, float] | None = None
    spread: Spread | None = None
    reason: str = ""
    paired: bool = False
    errors: tuple[float, float] | None = None
    variance: Variance | None = None

    @property
    def has_interval(self) -> bool:
        """Whether ``low`` and ``high`` are numbers."""
        return not math.isnan(self.error)

    @property
    def several_seeds(self) -> bool:
        """Whether every method has several training seeds, so that its own runs say how much they differ."""
        return self.sampling_unit in ("seed and question", "seed", "run") and self.spread is None

    @property
    def meaning(self) -> str:
        """The sampling unit; ``base model`` for a paired contrast, ``run SD`` if other methods' runs measured it."""
        sampled = self.sampling_unit.replace("seed", "base model") if self.paired else self.sampling_unit
        return f"{sampled}, run SD" if self.spread is not None and self.has_interval else sampled

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


@dataclass(frozen=True)
class Ratio(Estimate):
    """A contrast of logarithms, shown as a difference in percent: ``error`` and ``logarithm`` are of the logarithms."""

    logarithm: float = 0.0

    @classmethod
    def of(cls, estimate: Estimate) -> Ratio:
        """``estimate``, a difference of logarithms, in percent."""
        percent = {"value": 100 * math.expm1(estimate.value), "logarithm": estimate.value}
        return cls(**vars(estimate) | percent)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The two-sided interval, percent."""
        half = float(special.stdtrit(self.dof, (1 + level) / 2)) * self.error if self.has_interval else math.nan
        return 100 * math.expm1(self.logarithm - half), 100 * math.expm1(self.logarithm + half)

    def p_above(self, threshold: float) -> float:
        """One-sided p-value against "the truth is at most ``threshold`` percent"."""
        if not self.has_interval:
            return math.nan
        return float(special.stdtr(self.dof, (math.log1p(threshold / 100) - self.logarithm) / self.error))


@dataclass(frozen=True)
class Proportion(Estimate):
    """A share of runs in percent, with the exact interval of Clopper and Pearson (1934)."""

    successes: int = 0

    @classmethod
    def of(cls, successes: int, runs: int) -> Proportion:
        """``successes`` of ``runs``."""
        return cls(100 * successes / runs, "run", runs, successes=successes)

    @property
    def has_interval(self) -> bool:
        """Whether there is an interval: always."""
        return True

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The two-sided interval, percent; at 0 or all of the runs one end is that of a one-sided interval."""
        ends = stats.binomtest(self.successes, self.count).proportion_ci(level, method="exact")
        return 100 * float(ends.low), 100 * float(ends.high)

    def p_above(self, threshold: float) -> float:
        """One-sided p-value of the exact binomial test against "the share is at most ``threshold``"."""
        return float(stats.binom.sf(self.successes - 1, self.count, threshold / 100))

    def p_below(self, threshold: float) -> float:
        """One-sided p-value of the exact binomial test against "the share is at least ``threshold``"."""
        return float(stats.binom.cdf(self.successes, self.count, threshold / 100))


@dataclass(frozen=True)
class Smallest(Estimate):
    """The smallest of several contrasts, which the data chose.

    The least of the lower ends is a lower end for the smallest true value without any correction. The least of the
    upper ends needs one for the number of contrasts (Bonferroni).
    """

    among: tuple[Estimate, ...] = ()

    @classmethod
    def of(cls, among: Sequence[Estimate]) -> Smallest:
        """The smallest of one or more estimates; without an interval if one of them has none."""
        least = min(among, key=lambda estimate: estimate.value)
        without = [estimate for estimate in among if not estimate.has_interval]
        unknown = {"error": math.nan, "reason": without[0].reason} if without else {}
        return cls(**vars(least) | unknown | {"among": tuple(among)})

    @property
    def several_seeds(self) -> bool:
        """Whether every method of every contrast has several seeds."""
        return all(estimate.several_seeds for estimate in self.among)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The two-sided interval of the smallest true value."""
        if not self.has_interval:
            return math.nan, math.nan
        corrected = 1 - (1 - level) / len(self.among)
        low = float(np.min([estimate.interval(level)[0] for estimate in self.among]))
        return low, float(np.min([estimate.interval(corrected)[1] for estimate in self.among]))
