"""Power analysis: which difference a number of training seeds can detect.

Two methods with ``seeds`` runs on each benchmark are compared on the same questions. A run's mean score varies with the
training seed (the run SD) and with its samples; both in points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import optimize, special, stats

LEVEL, POWER = 0.95, 0.80
MAX_SEEDS = 1000
ASSUMED_RUN_SD = 2.0
"""Points; assumed SD between seeds if none was measured."""
EFFECT = 1.8
"""Points; the paper's smallest headline effect: what dynamic weighting adds at 10 h (table 2)."""


def sample_noise(questions: float, samples: int) -> float:
    """Upper bound, in points, of what samples add to the standard deviation of a run's mean score: half are correct."""
    return 100 * math.sqrt(0.25 / (questions * samples))


@dataclass(frozen=True)
class Design:
    """A comparison of two methods.

    Attributes:
        run_sd: standard deviation between the seeds of one method on one benchmark, points.
        benchmarks: over which the difference is averaged.
        noise_sd: what the samples add to the standard deviation of a run's mean (:func:`sample_noise`), points.
    """

    run_sd: float
    benchmarks: int = 1
    noise_sd: float = 0.0

    def error(self, seeds: int) -> float:
        """Standard error of the difference, points."""
        return math.hypot(self.run_sd, self.noise_sd) * math.sqrt(2 / (seeds * self.benchmarks))

    def resolved(self, seeds: int) -> float:
        """Half the width of the 95 % interval of the difference; infinite with one seed."""
        return self._quantile(seeds) * self.error(seeds) if seeds > 1 else math.inf

    def power(self, effect: float, seeds: int) -> float:
        """The probability that the interval lies above 0 if the true difference is ``effect`` (noncentral t)."""
        if seeds < 2:
            return 0.0
        return float(stats.nct.sf(self._quantile(seeds), self._dof(seeds), effect / self.error(seeds)))

    def detectable(self, seeds: int, wanted: float = POWER) -> float:
        """The smallest true difference that is found with the power ``wanted``; infinite with one seed."""
        if seeds < 2:
            return math.inf
        most = 4 * (self._quantile(seeds) + 4) * self.error(seeds)
        return float(optimize.brentq(lambda effect: self.power(effect, seeds) - wanted, 0, most))

    def seeds_needed(self, effect: float, wanted: float = POWER) -> int | None:
        """The fewest seeds that find ``effect`` with the power ``wanted``; None above :data:`MAX_SEEDS`."""
        return next((n for n in range(2, MAX_SEEDS + 1) if self.power(effect, n) >= wanted), None)

    def _dof(self, seeds: int) -> int:
        return 2 * (seeds - 1) * self.benchmarks

    def _quantile(self, seeds: int) -> float:
        return float(special.stdtrit(self._dof(seeds), (1 + LEVEL) / 2))


def power_line(seeds: int, benchmarks: int, noise_sd: float, run_sd: float | None = None) -> str:
    """One sentence: which difference ``seeds`` seeds per method detect on average over ``benchmarks``.

    Args:
        run_sd: the measured SD between seeds, points; None uses :data:`ASSUMED_RUN_SD` and says so.
    """
    sd, known = (ASSUMED_RUN_SD, "assumed") if run_sd is None else (run_sd, "measured")
    design = Design(sd, benchmarks, noise_sd)
    given = f"at a run SD of {sd:.1f} points ({known})"
    needed = design.seeds_needed(EFFECT)
    needs = f"{needed} seeds" if needed else f"more than {MAX_SEEDS} seeds"
    needs = f"an effect as small as the paper's +{EFFECT} for weighting needs {needs} (80 % power)"
    if seeds < 2:
        return f"One seed resolves no difference between methods; {given}, {needs}."
    return f"{seeds} seeds resolve about ±{design.resolved(seeds):.1f} points between two methods {given}; {needs}."
