"""What decides a claim beside a plain contrast: ratios, shares of runs, the smallest of several contrasts, corrections.

If many null hypotheses are true, some of them look significant. So the primary claims are decided together by Holm's
procedure (1979): the probability of any false "holds" among them is at most ``ALPHA``, one-sided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from srpo.analysis.statistics.estimates import LEVEL, Estimate, SamplingUnit

ALPHA = 0.025
"""One-sided level of a verdict: the side of a 95 % interval."""


def holm(p_values: Sequence[float]) -> np.ndarray:
    """Holm's adjusted p-values, in the order given.

    Args:
        p_values: one per claim decided together; NaN for a claim that was not tested, which does not count.

    Returns:
        Adjusted values, comparable with the level of all together; NaN stays.
    """
    p = np.asarray(p_values, dtype=float)
    adjusted = np.full(p.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    return adjusted


def over_benchmarks(values: Sequence[float]) -> Estimate | None:
    """The mean of one value per benchmark with Student's interval over new benchmarks; None with fewer than three.

    It says whether a difference would also be found on other tasks, as far as these are a sample of such tasks.
    """
    if len(values) < 3:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    if error == 0:
        return Estimate(mean, "benchmark", len(values), reason="all benchmarks agree exactly")
    return Estimate(mean, "benchmark", len(values), error, len(values) - 1)


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
