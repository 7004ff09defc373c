"""An estimate with its interval and one-sided p-values, and the variance that they are made of."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy import special

LEVEL = 0.95
PERCENT = (0.0, 100.0)
"""Bounds of a score or another share in percent."""

SamplingUnit = Literal["seed and question", "question", "seed", "run", "benchmark", "none"]


@dataclass(frozen=True)
class Variance:
    """Parts of the variance of a mean over crossed runs and questions, in the unit of the values squared.

    Attributes:
        questions: variance over questions of each benchmark's contrast, with its degrees of freedom.
        runs: variance over runs of each mean, with the number of runs (or base models).
        both: the part that both contain.
    """

    questions: Sequence[tuple[float, float]]
    runs: Sequence[tuple[float, int]]
    both: float

    def error(self) -> tuple[float, float]:
        """Standard error, and its degrees of freedom (Satterthwaite); 0 and NaN if nothing varies."""
        over_questions = sum(variance for variance, _ in self.questions)
        over_runs = sum(variance for variance, _ in self.runs)
        variance = max(over_questions + over_runs - self.both, over_questions, over_runs)
        if variance == 0:
            return 0.0, math.nan
        terms = [*self.questions, *((term, number - 1) for term, number in self.runs)]
        squared = sum(term**2 / dof for term, dof in terms)
        return math.sqrt(variance), max(1.0, variance**2 / squared)

    def half_width(self) -> float:
        """Half the width of the 95 % interval of this variance; 0 if nothing varies."""
        error, dof = self.error()
        return error * float(special.stdtrit(dof, (1 + LEVEL) / 2)) if error else 0.0


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
        reason: why there is no interval.
        paired: whether the sampling unit of the runs is the base model, which every method starts from.
    """

    value: float
    sampling_unit: SamplingUnit = "none"
    count: int = 1
    error: float = math.nan
    dof: float = math.nan
    others: tuple[tuple[float, float], ...] = ()
    bounds: tuple[float, float] | None = None
    reason: str = ""
    paired: bool = False
    limits: tuple[float, float] = (-math.inf, math.inf)

    @property
    def has_interval(self) -> bool:
        """Whether ``low`` and ``high`` are numbers."""
        return not math.isnan(self.error)

    @property
    def several_seeds(self) -> bool:
        """Whether every method has several training seeds, so that its own runs say how much they differ."""
        return self.sampling_unit in ("seed and question", "seed", "run")

    @property
    def covers_runs(self) -> bool:
        """Whether the interval says something about other runs, and not about other questions alone."""
        return self.has_interval and self.several_seeds

    @property
    def meaning(self) -> str:
        """The sampling unit; ``base model`` for a paired contrast."""
        return self.sampling_unit.replace("seed", "base model") if self.paired else self.sampling_unit

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
