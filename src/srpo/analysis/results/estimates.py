"""Estimates with their intervals and one-sided p-values: of a difference or a score, of a ratio, of a share of runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import special

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

    def half_width(self, level: float = LEVEL) -> float:
        """Half the width of the interval of this variance; 0 if nothing varies."""
        error, dof = self.error()
        return error * float(special.stdtrit(dof, (1 + level) / 2)) if error else 0.0

    def with_runs(self, number: int) -> Variance:
        """The parts that are to be expected with another number of runs of every method."""
        runs = [(variance * before / number, number) for variance, before in self.runs]
        known = sum(v for v, _ in self.runs)
        shares = [before / number for _, before in self.runs]  # if all runs agree, there is nothing to weight with
        shrunk = self.both * (sum(v for v, _ in runs) / known if known else min(shares, default=1.0))
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
            runs. ``benchmark``: one number per benchmark.
        count: runs of the method with the fewest, or base models, or questions, or benchmarks.
        error, dof: standard error and its degrees of freedom; NaN without an interval.
        others: further estimates of the two. The largest p-value of all counts, and so the widest interval.
        bounds: least and largest possible value of a mean score; None for a difference.
        limits: least and largest possible value of a difference, where its interval ends.
        spread: the spread between runs that was measured on other methods, if it is used.
        reason: why there is no interval.
        paired: whether the sampling unit of the runs is the base model, which every method starts from.
        variance: the parts of ``error`` squared, if methods have several runs.
    """

    value: float
    sampling_unit: SamplingUnit = "none"
    count: int = 1
    error: float = math.nan
    dof: float = math.nan
    others: tuple[tuple[float, float], ...] = ()
    bounds: tuple[float, float] | None = None
    spread: Spread | None = None
    reason: str = ""
    paired: bool = False
    variance: Variance | None = None
    limits: tuple[float, float] = (-math.inf, math.inf)

    @property
    def has_interval(self) -> bool:
        """Whether ``low`` and ``high`` are numbers."""
        return not math.isnan(self.error)

    @property
    def several_seeds(self) -> bool:
        """Whether every method has several training seeds, so that its own runs say how much they differ."""
        return self.sampling_unit in ("seed and question", "seed", "run") and self.spread is None

    @property
    def covers_runs(self) -> bool:
        """Whether the interval says something about other runs, and not about other questions alone."""
        return self.has_interval and (self.several_seeds or self.spread is not None)

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
        reach = self._reach(level)
        if self.bounds is None:
            return max(self.value - reach, self.limits[0]), min(self.value + reach, self.limits[1])
        least, size = self.bounds[0], self.bounds[1] - self.bounds[0]
        share = (self.value - least) / size
        ratio = (reach / size) ** 2 / (share * (1 - share))  # quantile squared / effective number of questions
        middle = (share + ratio / 2) / (1 + ratio)
        half = math.sqrt(ratio * share * (1 - share) + ratio**2 / 4) / (1 + ratio)
        return least + size * (middle - half), least + size * (middle + half)

    def p_above(self, threshold: float) -> float:
        """One-sided p-value against "the truth is at most ``threshold``"; NaN without an interval."""
        return self._p(self.value - threshold, self._scale(threshold))

    def p_below(self, threshold: float) -> float:
        """One-sided p-value against "the truth is at least ``threshold``"; NaN without an interval."""
        return self._p(threshold - self.value, self._scale(threshold))

    def _reach(self, level: float) -> float:
        return max(
            e * float(special.stdtrit(dof, (1 + level) / 2)) for e, dof in ((self.error, self.dof), *self.others)
        )

    def _p(self, distance: float, scale: float = 1.0) -> float:
        if not self.has_interval:
            return math.nan
        errors = ((self.error, self.dof), *self.others)
        return max(float(special.stdtr(dof, -distance / (scale * error))) for error, dof in errors)

    def _scale(self, threshold: float) -> float:
        """By what the error is multiplied that the threshold implies: the inversion of the interval of a share."""
        if self.bounds is None or not self.has_interval:
            return 1.0
        low, high = self.bounds
        return math.sqrt((threshold - low) * (high - threshold) / ((self.value - low) * (high - self.value)))


@dataclass(frozen=True)
class Ratio(Estimate):
    """A contrast of logarithms, shown as a difference in percent; ``error`` belongs to ``logarithm``."""

    logarithm: float = 0.0

    @classmethod
    def of(cls, estimate: Estimate) -> Ratio:
        percent = {"value": 100 * math.expm1(estimate.value), "logarithm": estimate.value}
        return cls(**vars(estimate) | percent)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        half = self._reach(level) if self.has_interval else math.nan
        return 100 * math.expm1(self.logarithm - half), 100 * math.expm1(self.logarithm + half)

    def p_above(self, threshold: float) -> float:
        return self._p(self.logarithm - math.log1p(threshold / 100))

    def p_below(self, threshold: float) -> float:
        return self._p(math.log1p(threshold / 100) - self.logarithm)


@dataclass(frozen=True)
class Proportion(Estimate):
    """A share of runs in percent, with the exact interval of Clopper and Pearson (1934).

    Runs that share a base model are alike. The interval has then an effective number of runs, as for clusters of a
    survey (Korn and Graubard 1998): at least the number of base models, at most the number of runs.

    Attributes:
        successes, runs: of how many runs the share is.
        effective: the number of independent runs that say as much.
    """

    successes: int = 0
    runs: int = 0
    effective: float = 0.0

    @classmethod
    def of(cls, units: Sequence[Sequence[bool]]) -> Proportion:
        """The share of successes; each unit holds the runs that share a base model, or one run that shares none."""
        sums, sizes = np.array([sum(unit) for unit in units], float), np.array([len(unit) for unit in units], float)
        successes, runs, count = int(sums.sum()), int(sizes.sum()), len(units)
        share, shared = successes / runs, runs > count
        effective = float(count)
        if shared and count > 1 and 0 < share < 1:
            variance = count / (count - 1) * float(((sums - share * sizes) ** 2).sum()) / runs**2
            few, many = (float(special.stdtrit(dof, (1 + LEVEL) / 2)) for dof in (count - 1, runs - 1))
            wanted = share * (1 - share) / variance * (many / few) ** 2 if variance else math.inf
            effective = float(np.clip(wanted, count, runs))
        unit: SamplingUnit = "seed" if shared else "run"
        return cls(100 * share, unit, count, paired=shared, successes=successes, runs=runs, effective=effective)

    @property
    def has_interval(self) -> bool:
        return True

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The two-sided interval, percent; at 0 or all of the runs one end belongs to a one-sided interval."""
        yes, no = self._effective_counts
        low = float(special.betaincinv(yes, no + 1, (1 - level) / 2)) if yes else 0.0
        high = float(special.betaincinv(yes + 1, no, (1 + level) / 2)) if no else 1.0
        return 100 * low, 100 * high

    def p_above(self, threshold: float) -> float:
        """One-sided p-value of the exact binomial test against "the share is at most ``threshold``"."""
        yes, no = self._effective_counts
        return float(special.betainc(yes, no + 1, threshold / 100)) if yes else 1.0

    def p_below(self, threshold: float) -> float:
        """One-sided p-value of the exact binomial test against "the share is at least ``threshold``"."""
        yes, no = self._effective_counts
        return float(special.betaincc(yes + 1, no, threshold / 100)) if no else 1.0

    @property
    def _effective_counts(self) -> tuple[float, float]:
        """Successes and failures of the effective runs."""
        share = self.successes / self.runs
        return share * self.effective, (1 - share) * self.effective


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
        return all(estimate.several_seeds for estimate in self.among)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        if not self.has_interval:
            return math.nan, math.nan
        corrected = 1 - (1 - level) / len(self.among)
        low = float(np.min([estimate.interval(level)[0] for estimate in self.among]))
        return low, float(np.min([estimate.interval(corrected)[1] for estimate in self.among]))
