"""Power analysis: which difference a number of training seeds can detect.

It starts from an assumed variance, and computes it for another number of runs. If each seed has its own base model,
seeds are base models.
"""

import bisect
import math
from collections.abc import Collection
from statistics import fmean

from scipy import special, stats

from srpo.analysis.statistics.estimates import LEVEL, Variance

POWER = 0.80
MAX_SEEDS = 1000
ASSUMED_RUN_SD = 2.0
"""Points; assumed SD between seeds if none was measured."""
EFFECT = 1.8
"""Points; the paper's smallest headline effect: what dynamic weighting adds at 10 h (table 2)."""


def sample_noise(questions: Collection[int], samples: int) -> float:
    """Upper bound, in points, of what samples add to the standard deviation of a run's score: half are correct.

    Args:
        questions: of each benchmark; their variances are averaged.
        samples: of each question.
    """
    return 100 * math.sqrt(0.25 / samples * fmean(1 / count for count in questions))


def assumed(run_sd: float, benchmarks: int = 1, noise_sd: float = 0.0, paired: bool = False) -> Variance:
    """The variance of the difference of two methods with two runs each, if nothing but runs and samples varies.

    Args:
        run_sd: standard deviation between the seeds of one method on one benchmark, points.
        benchmarks: over which the difference is averaged.
        noise_sd: what the samples add to the standard deviation of a run's mean (:func:`sample_noise`), points.
        paired: each seed has its own base model. The interval is then no narrower than that from one number per base
            model, whose spread has as many degrees of freedom as base models, less one.
    """
    of_one = (run_sd**2 + noise_sd**2) / (2 * benchmarks**2)
    runs = [(of_one * 2 * benchmarks, 2)] if paired else [(of_one, 2)] * (2 * benchmarks)
    return Variance([], runs, 0.0)


def half_width(variance: Variance, seeds: int, level: float = LEVEL) -> float:
    """Half the width of the interval with ``seeds`` runs of every method, points; infinite with one."""
    if seeds < 2:
        return math.inf
    return _with_runs(variance, seeds).half_width(level)


def power(variance: Variance, effect: float, seeds: int) -> float:
    """The probability that the interval lies above 0 if the true difference is ``effect`` (noncentral t)."""
    if seeds < 2:
        return 0.0
    error, dof = _with_runs(variance, seeds).error()
    return float(stats.nct.sf(special.stdtrit(dof, (1 + LEVEL) / 2), dof, effect / error)) if error else 1.0


def seeds_needed(variance: Variance, effect: float) -> int | None:
    """The fewest seeds that find ``effect`` with :data:`POWER`; None above :data:`MAX_SEEDS`."""
    seeds = range(2, MAX_SEEDS + 1)
    place = bisect.bisect_left(seeds, True, key=lambda number: power(variance, effect, number) >= POWER)
    return seeds[place] if place < len(seeds) else None


def _with_runs(variance: Variance, number: int) -> Variance:
    """An assumed variance with another number of runs of every method."""
    return Variance([], [(of_mean * before / number, number) for of_mean, before in variance.runs], 0.0)
