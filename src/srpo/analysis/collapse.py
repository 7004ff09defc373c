"""Collapsed runs: those that end below the untrained model, or far below their own best.

An average over benchmarks hides a collapse on one of them, and a run that never rose has nothing to fall from. So runs
are counted, with the exact interval of a share. Runs of one base model count as alike as they are.

A run is judged by its estimates. With few test questions noise alone puts a run that stands still below the untrained
model, so the runs whose collapse is clear are counted apart.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from srpo.analysis.results import AVERAGE, BASE, Results
from srpo.analysis.statistics.cross_fit import MIN_QUESTIONS, WINDOW
from srpo.analysis.statistics.deciding import Proportion

DROP = 5.0
"""Points below its best (cross-fitted) at which a run has collapsed."""
CLEAR = 2.0
"""Standard errors over the test questions beyond a limit at which a collapse is clear."""


ENDS = ["below", "dropped", "collapsed", "clear"]


def run_ends(results: Results, model: str, method: str, benchmarks: Iterable[str]) -> pd.DataFrame:
    """How each finished run ended.

    The end is the mean of the last three validations. A run of fewer than two windows of validations cannot drop;
    without the untrained model's score none is counted.

    Returns:
        One row per run: its ``benchmark``, ``seed`` and ``unit``, which runs of one base model share; whether it ends
        ``below`` the untrained model, has ``dropped`` more than :data:`DROP` points below its best, has ``collapsed``
        (either, by the estimates alone), and whether one of the two is ``clear``, not noise of questions and samples.
    """
    paired, last = results.experiment.draws_per_seed(model), list(results.budget_seconds)[-1]
    numbers = ("resampled", "late_drop", "validations", "end")
    untrained_of, drop_of, counted_of, end_of = (results.of(model, name) for name in numbers)
    rows: list[tuple] = []
    for benchmark in benchmarks:
        base, drops = untrained_of.get((benchmark, BASE, BASE), {}), drop_of.get((benchmark, method, "end"), {})
        counted = counted_of.get((benchmark, method, last), {})
        for seed, end in end_of.get((benchmark, method, last), {}).items():
            untrained = base.get(seed if paired else 0)
            if untrained is not None and len(untrained) == len(end) and counted[seed][0] >= WINDOW:
                lost, drop = untrained - end, drops.get(seed)
                below = bool(end.mean() < untrained.mean())
                dropped = drop is not None and float(drop.mean()) > DROP
                clear = _clearly_above(lost, 0.0) or (drop is not None and _clearly_above(drop, DROP))
                unit = seed if paired else len(rows)
                rows.append((benchmark, seed, unit, below, dropped, below or dropped, clear))
    return pd.DataFrame(rows, columns=["benchmark", "seed", "unit", *ENDS])


def _clearly_above(values: np.ndarray, limit: float) -> bool:
    """Whether the mean of one value per question is above ``limit`` by more than :data:`CLEAR` standard errors."""
    size = len(values)
    if size < MIN_QUESTIONS:
        return False
    return bool(values.mean() - CLEAR * values.std(ddof=1) / np.sqrt(size) > limit)


def share_of(ends: pd.DataFrame, name: str) -> Proportion:
    """The share of runs for which a column of :func:`run_ends` is true."""
    return Proportion.of([[*unit] for _, unit in ends.groupby("unit")[name]])


def collapse_frame(results: Results) -> pd.DataFrame:
    """Runs, and how many of them collapsed, by model, method and benchmark, and over all benchmarks of a method.

    Returns:
        One row per model, method and benchmark: the numbers of ``runs`` and of those that ended as each column of
        :func:`run_ends` says; ``percent`` collapsed with its exact interval.
    """
    rows = []
    for model in results.experiment.models:
        for method, benchmarks in results.plans[model].items():
            ends = run_ends(results, model, method, benchmarks)
            parts = dict([*ends.groupby("benchmark", sort=False)])
            if len(benchmarks) > 1 and len(ends):
                parts[AVERAGE] = ends
            for benchmark, part in parts.items():
                share = share_of(part, "collapsed")
                counts = [share.runs, *part[ENDS].sum(), share.value, share.low, share.high]
                rows.append([model, method, benchmark, *counts])
    names = ["model", "method", "benchmark", "runs", *ENDS]
    return pd.DataFrame(rows, columns=[*names, "percent", "percent_low", "percent_high"])
