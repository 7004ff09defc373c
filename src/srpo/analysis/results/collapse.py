"""Collapsed runs: those that end below the untrained model, or far below their own best.

An average over benchmarks hides a collapse on one of them, and a run that never rose has nothing to fall from. So runs
are counted, with the exact interval of a share.
"""

import numpy as np
import pandas as pd

from srpo.analysis.results.cross_fit import WINDOW
from srpo.analysis.results.estimates import Proportion
from srpo.analysis.results.load import Results
from srpo.analysis.results.matrix import AVERAGE, BASE, is_paired, planned
from srpo.analysis.results.run_logs import RunLogs
from srpo.analysis.results.scores import Scores

DROP = 5.0
"""Points below its best (cross-fitted) at which a run has collapsed."""


def run_ends(results: Results, model: str, method: str, benchmark: str) -> dict[int, dict[str, bool]]:
    """Of each finished run, by seed: whether it ends ``below`` the untrained model, and whether it has ``dropped``.

    The end is the mean of the last :data:`~srpo.analysis.results.cross_fit.WINDOW` validations. Both are judged by the
    estimates alone. A run of fewer than two windows cannot drop; without the untrained model's score none is counted.
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
            dropped = seed in drops and float(drops[seed].mean()) > DROP
            found[seed] = {"below": bool(end.mean() < untrained.mean()), "dropped": dropped}
    return found


def collapse_frame(results: Results) -> pd.DataFrame:
    """Runs, and how many of them collapsed, by model, method and benchmark, and over all benchmarks of a method.

    Returns:
        One row per model, method and benchmark: the numbers of ``runs``, of those that end ``below`` the untrained
        model, that have ``dropped``, and that have ``collapsed`` (either); ``percent`` collapsed with its exact
        interval.
    """
    rows = []
    for model in results.experiment.models:
        for method, benchmarks in planned(results, model).items():
            by_benchmark = {b: [*run_ends(results, model, method, b).values()] for b in benchmarks}
            together = [run for runs in by_benchmark.values() for run in runs]
            if len(benchmarks) > 1:
                by_benchmark |= {AVERAGE: together}
            for benchmark, runs in by_benchmark.items():
                if runs:
                    key = {"model": model, "method": method, "benchmark": benchmark, "runs": len(runs)}
                    rows.append(key | _counted(runs))
    names = ["model", "method", "benchmark", "runs", "below", "dropped", "collapsed"]
    return pd.DataFrame(rows, columns=[*names, "percent", "percent_low", "percent_high"])


def _counted(runs: list[dict[str, bool]]) -> dict[str, float]:
    flags = np.array([[run["below"], run["dropped"]] for run in runs])
    share = Proportion.of(int(flags.any(axis=1).sum()), len(runs))
    counts = {"below": int(flags[:, 0].sum()), "dropped": int(flags[:, 1].sum()), "collapsed": share.successes}
    return counts | {"percent": share.value, "percent_low": share.low, "percent_high": share.high}
