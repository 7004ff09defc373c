"""The usual aggregates of reinforcement learning over runs and benchmarks.

Interquartile mean, probability of improvement and performance profile (Agarwal et al. 2021, *Deep Reinforcement
Learning at the Edge of the Statistical Precipice*; rliable), all stratified by benchmark: every benchmark has
the same weight, and runs are resampled within their benchmark. The input is one score per run, in percent. Intervals
cover other runs on the same questions. No claim is decided by them.
"""

from collections.abc import Callable, Sequence

import numpy as np

from srpo.seeds import derive_seed

RESAMPLES = 2000
LEVEL = 0.95

MIN_RUNS = 5
"""With fewer runs of a method on a benchmark the interval of an interquartile mean covers 80 to 90 % (simulated)."""

Runs = Sequence[np.ndarray]
"""Scores of one method's runs, one array per benchmark."""


def interquartile_mean(benchmarks: Runs) -> float:
    """The mean of the middle half of all runs' scores.

    The weight of a run is one over the number of runs of its benchmark. At the quartiles only the part of its weight
    inside counts.
    """
    scores = np.concatenate(list(benchmarks))
    weights = np.concatenate([np.full(len(runs), 1 / (len(runs) * len(benchmarks))) for runs in benchmarks])
    order = np.argsort(scores, kind="stable")
    ends = np.cumsum(weights[order])
    inside = np.clip(np.minimum(ends, 0.75) - np.maximum(ends - weights[order], 0.25), 0, None)
    return float((inside * scores[order]).sum() / inside.sum())


def probability_of_improvement(one: Runs, other: Runs) -> float:
    """The probability that a run of ``one`` scores above a run of ``other`` on the same benchmark; ties count half."""
    return float(np.mean([_beats(a, b) for a, b in zip(one, other, strict=True)]))


def performance_profile(benchmarks: Runs, thresholds: np.ndarray) -> np.ndarray:
    """The share of runs that score above each threshold, averaged over benchmarks."""
    return np.mean([(np.asarray(runs)[:, None] > thresholds).mean(axis=0) for runs in benchmarks], axis=0)


def stratified_interval(
    statistic: Callable[..., float | np.ndarray], *methods: Runs, paired: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The percentile interval of a statistic of ``methods``; runs are resampled within each benchmark.

    By Hesterberg's (2004) bootknife: n draws from a random n - 1 of the runs. With few runs its spread is right; that
    of the plain bootstrap is too small by the factor sqrt((n - 1) / n).

    Args:
        paired: run s of every method and benchmark starts from base model s, so base models are resampled; methods and
            benchmarks have equally many runs.

    Returns:
        Low and high end, in the statistic's shape; NaN if any benchmark has fewer than :data:`MIN_RUNS` runs of a
        method, or if base models are paired and not all there.
    """
    counts = {len(runs) for method in methods for runs in method}
    if min(counts) < MIN_RUNS or (paired and len(counts) > 1):
        unknown = np.full(np.shape(statistic(*methods)), np.nan)
        return unknown, unknown
    rng = np.random.default_rng(derive_seed("report", "aggregates"))
    shared = _bootknife(rng, max(counts)) if paired else None
    again = [
        [np.asarray(runs)[_bootknife(rng, len(runs)) if shared is None else shared] for runs in method]
        for method in methods
    ]
    drawn = np.array([statistic(*([runs[i] for runs in method] for method in again)) for i in range(RESAMPLES)])
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return low, high


def _beats(a: np.ndarray, b: np.ndarray) -> float:
    difference = np.asarray(a)[:, None] - np.asarray(b)
    return float((difference > 0).mean() + 0.5 * (difference == 0).mean())


def _bootknife(rng: np.random.Generator, runs: int) -> np.ndarray:
    """Places, RESAMPLES x runs: each row drawn with replacement from all runs but one, which differs by row."""
    left_out = rng.integers(runs, size=(RESAMPLES, 1))
    drawn = rng.integers(runs - 1, size=(RESAMPLES, runs))
    return drawn + (drawn >= left_out)
