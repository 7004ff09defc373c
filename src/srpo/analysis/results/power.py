"""Power analysis: which difference a number of training seeds can detect.

Two methods with ``seeds`` runs on each benchmark are compared on the same questions. A run's mean score varies with the
training seed (the run SD) and with its samples; both in points.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scipy import optimize, special, stats

from srpo.config import RunId
from srpo.text import joined

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


def power_sentences(
    runs: Iterable[RunId], titles: Mapping[str, str], noise_sd: float, run_sd: float | None = None
) -> list[str]:
    """Which differences the seeds of one model's methods resolve: a sentence a number of seeds, then the assumptions.

    A method has as many seeds as on the benchmark with the fewest: there a comparison knows least about its runs.

    Args:
        runs: the planned runs, one or more.
        titles: of the methods, by name.
        noise_sd: what the samples add (:func:`sample_noise`), points.
        run_sd: the measured SD between seeds, points; None uses :data:`ASSUMED_RUN_SD` and says so.
    """
    seeds: dict[str, Counter[str]] = {}
    for run in runs:
        seeds.setdefault(run.method, Counter())[run.benchmark] += 1
    methods: dict[int, list[str]] = {}
    for method, by_benchmark in seeds.items():
        methods.setdefault(min(by_benchmark.values()), []).append(titles[method])
    benchmarks = len(set().union(*seeds.values()))
    sd, known = (ASSUMED_RUN_SD, "assumed") if run_sd is None else (run_sd, "measured")
    design = Design(sd, benchmarks, noise_sd)
    sentences = []
    for count, names in sorted(methods.items(), reverse=True):
        said = f"{count} seeds resolve about ±{design.resolved(count):.1f} points between two methods"
        said = "one seed resolves nothing" if count == 1 else said
        sentences.append(f"{joined(names)}: {said}, {count + 1} would resolve ±{design.resolved(count + 1):.1f}.")
    over = "one benchmark" if benchmarks == 1 else f"an average over {benchmarks} benchmarks"
    needed = design.seeds_needed(EFFECT)
    return [
        *sentences,
        f"This is for {over} at a run SD of {sd:.1f} points ({known}); an effect as small as the paper's +{EFFECT} "
        f"for weighting then needs {needed or f'more than {MAX_SEEDS}'} seeds (80 % power).",
    ]
