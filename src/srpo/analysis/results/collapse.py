"""Collapsed runs: those that end below the untrained model, or far below their own best.

An average over benchmarks hides a collapse on one of them, and a run that never rose has nothing to fall from. So runs
are counted, with the exact interval of a share. Runs of one base model count as alike as they are.

A run is judged by its estimates. With few test questions noise alone puts a run that stands still below the untrained
model, so the runs whose collapse is clear are counted apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from srpo.analysis.results.cross_fit import MIN_QUESTIONS, WINDOW
from srpo.analysis.results.estimates import Proportion
from srpo.analysis.results.load import Results
from srpo.analysis.results.matrix import AVERAGE, BASE, is_paired, planned
from srpo.analysis.results.run_logs import RunLogs
from srpo.analysis.results.scores import Scores

DROP = 5.0
"""Points below its best (cross-fitted) at which a run has collapsed."""
CLEAR = 2.0
"""Standard errors over the test questions beyond a limit at which a collapse is clear."""


@dataclass(frozen=True)
class RunEnd:
    """How a run ended.

    Attributes:
        below: whether it ends below the untrained model.
        dropped: whether it ends more than :data:`DROP` points below its best.
        clear: whether one of the two is clear, not noise of the questions and samples.
    """

    below: bool
    dropped: bool
    clear: bool

    @property
    def collapsed(self) -> bool:
        """Whether it is below or has dropped, by the estimates alone."""
        return self.below or self.dropped


def run_ends(results: Results, model: str, method: str, benchmark: str) -> dict[int, RunEnd]:
    """How each finished run ended, by seed.

    The end is the mean of the last :data:`~srpo.analysis.results.cross_fit.WINDOW` validations. A run of fewer than two
    windows cannot drop; without the untrained model's score none is counted.
    """
    scores, logs = Scores.of(results), RunLogs.of(results)
    base = scores.lookup(model, "resampled")(benchmark, BASE, BASE)
    last = list(results.experiment.training.budget_seconds)[-1]
    ends = scores.lookup(model, "end")(benchmark, method, last)
    drops = logs.late_drop(model)(benchmark, method, "end")
    counted = logs.number_of_validations(model)(benchmark, method, last)
    found = {}
    for seed, end in ends.items():
        untrained = base.get(seed if is_paired(results, model) else 0)
        if untrained is not None and len(untrained) == len(end) and counted[seed][0] >= WINDOW:
            lost, drop = untrained - end, drops.get(seed)
            dropped = drop is not None and float(drop.mean()) > DROP
            clear = _clearly_above(lost, 0.0) or (drop is not None and _clearly_above(drop, DROP))
            found[seed] = RunEnd(bool(end.mean() < untrained.mean()), dropped, clear)
    return found


def _clearly_above(values: np.ndarray, limit: float) -> bool:
    """Whether the mean of one value per question is above ``limit`` by more than :data:`CLEAR` standard errors."""
    size = len(values)
    if size < MIN_QUESTIONS:
        return False
    return bool(values.mean() - CLEAR * values.std(ddof=1) / np.sqrt(size) > limit)


def collapse_frame(results: Results) -> pd.DataFrame:
    """Runs, and how many of them collapsed, by model, method and benchmark, and over all benchmarks of a method.

    Returns:
        One row per model, method and benchmark: the numbers of ``runs``, of those that end ``below`` the untrained
        model, that have ``dropped``, that have ``collapsed`` (either), and whose collapse is ``clear``; ``percent``
        collapsed with its exact interval.
    """
    rows = []
    for model in results.experiment.models:
        for method, benchmarks in planned(results, model).items():
            ends = {b: run_ends(results, model, method, b) for b in benchmarks}
            grouped = {b: by_base_model(results, model, [of]) for b, of in ends.items()}
            if len(benchmarks) > 1:
                grouped |= {AVERAGE: by_base_model(results, model, [*ends.values()])}
            for benchmark, units in grouped.items():
                if units:
                    rows.append({"model": model, "method": method, "benchmark": benchmark} | _counted(units))
    names = ["model", "method", "benchmark", "runs", "below", "dropped", "collapsed", "clear"]
    return pd.DataFrame(rows, columns=[*names, "percent", "percent_low", "percent_high"])


def by_base_model(results: Results, model: str, ends: Iterable[Mapping[int, RunEnd]]) -> list[list[RunEnd]]:
    """The runs (of several benchmarks, by seed) that share a base model; each alone if all runs of ``model`` do."""
    if not is_paired(results, model):
        return [[run] for by_seed in ends for run in by_seed.values()]
    found: dict[int, list[RunEnd]] = {}
    for by_seed in ends:
        for seed, run in by_seed.items():
            found.setdefault(seed, []).append(run)
    return [*found.values()]


def share_of(units: Sequence[Sequence[RunEnd]], name: str) -> Proportion:
    """The share of runs for which the attribute ``name`` of :class:`RunEnd` is true."""
    return Proportion.of([[getattr(run, name) for run in unit] for unit in units])


def _counted(units: list[list[RunEnd]]) -> dict[str, float]:
    names = ("below", "dropped", "collapsed", "clear")
    counts = {name: sum(getattr(run, name) for unit in units for run in unit) for name in names}
    share = share_of(units, "collapsed")
    return (
        {"runs": share.runs} | counts | {"percent": share.value, "percent_low": share.low, "percent_high": share.high}
    )
