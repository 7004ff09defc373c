"""The usual aggregates of reinforcement learning over runs and benchmarks, and scores without selection."""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from srpo.analysis.results.aggregates import (
    MIN_RUNS,
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)
from srpo.analysis.results.load import Results
from srpo.analysis.results.lookups import estimate_columns
from srpo.analysis.results.matrix import is_paired, main_methods, model_benchmarks, planned
from srpo.analysis.results.scores import PROTOCOLS, SUMMARIES, Scores
from srpo.analysis.results.titles import method_title
from srpo.analysis.tables.grid import Cell, Grid, Row
from srpo.analysis.tables.table import Table, comparability, intervals_note, record_cell

THRESHOLDS = (50.0, 60.0, 70.0, 80.0, 90.0, 95.0)
_IMPROVEMENT = [f"{name}{end}" for name in ("iqm_difference", "improvement") for end in ("", "_low", "_high")]


def aggregates_table(results: Results) -> Table:
    """Interquartile mean, SRPO's probability of improvement, performance profile, area under the curve, end score.

    At the last budget, over the benchmarks of table 1, for methods that have a run on each of them.
    """
    scores, rows = Scores.of(results), []
    budget = list(results.experiment.training.budget_seconds)[-1]
    grids, profiles = [], []
    for model, spec in results.experiment.models.items():
        methods = [method for method in main_methods(results) if method in planned(results, model)]
        runs = {method: _runs(scores, results, model, method, budget) for method in methods}
        body, profile = [], []
        for method in methods:
            if not runs[method]:
                continue
            row = {"model": model, "method": method, "budget": budget, "benchmarks": len(runs[method])}
            row |= {"iqm": interquartile_mean(runs[method])}
            rival = runs.get("srpo") if method != "srpo" else None
            if rival is not None and len(rival) == len(runs[method]):
                row |= _sampled("iqm_difference", _difference, is_paired(results, model), rival, runs[method])
                row |= _sampled("improvement", _percent, is_paired(results, model), rival, runs[method])
            else:
                row |= dict.fromkeys(_IMPROVEMENT, math.nan)
            for name in SUMMARIES:
                over = model_benchmarks(results, model)
                row |= estimate_columns(name, scores.estimate(model, {(method, budget): 1.0}, over, name))
            shares = 100 * performance_profile(runs[method], np.array(THRESHOLDS))
            row |= {f"above_{level:g}": share for level, share in zip(THRESHOLDS, shares, strict=True)}
            rows.append(row)
            label = method_title(results, method)
            names = ("iqm", "iqm_difference", "improvement", *SUMMARIES)
            body.append(Row(label, [record_cell(row, name) for name in names]))
            profile.append(Row(label, [Cell(f"{share:.0f}") for share in shares]))
        if body:
            heads = [
                "Interquartile mean",
                "SRPO's minus this",
                "SRPO is better, %",
                "Area under the curve",
                "Score at the end",
            ]
            grids.append(Grid("Method", [("", head) for head in heads], body, spec.title))
            levels = [("Runs above", f"{level:g} %") for level in THRESHOLDS]
            profiles.append(Grid("Method", levels, profile, f"{spec.title}, performance profile, % of runs"))
    frame = pd.DataFrame(rows, columns=_COLUMNS)
    notes = [
        f"At {budget}; each benchmark counts the same. Interquartile mean: the mean of the middle half of all runs' "
        f"scores ({PROTOCOLS[scores.protocol]}). SRPO is better: the probability that a run of SRPO scores above one "
        "of the method on the same benchmark (Agarwal et al. 2021). The intervals of both comparisons "
        f"resample runs within each benchmark, and cover other runs on the same questions. With fewer than {MIN_RUNS} "
        "runs per benchmark they would cover too little and are left out. Area under the curve: mean "
        "score in the training time of the budget; score at the end: the mean of the last three validations. Neither "
        f"selects a checkpoint. {intervals_note([*frame['area_unit'], *frame['end_unit']])}",
        *comparability(results),
    ]
    numbers = [c for c in _COLUMNS if c not in ("model", "method", "budget", "benchmarks") and not c.endswith("_unit")]
    digits = dict.fromkeys(numbers, 1)
    return Table("aggregates", "Aggregates over runs", notes if rows else [], frame, digits, [*grids, *profiles])


def _runs(scores: Scores, results: Results, model: str, method: str, budget: str) -> list[np.ndarray]:
    """Scores of the runs of a method, percent, one array per benchmark; empty unless every benchmark has a run."""
    over = [name for name in model_benchmarks(results, model) if name not in scores.incomparable]
    found = [scores.lookup(model, scores.protocol)(benchmark, method, budget) for benchmark in over]
    return [np.array([run.mean() for run in runs.values()]) for runs in found] if all(found) else []


def _percent(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    return 100 * probability_of_improvement(one, other)


def _difference(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    return interquartile_mean(one) - interquartile_mean(other)


def _sampled(name: str, statistic: Callable[..., float], paired: bool, *methods: list[np.ndarray]) -> dict[str, float]:
    """A statistic with its interval as columns."""
    low, high = stratified_interval(statistic, *methods, paired=paired)
    return {name: statistic(*methods), f"{name}_low": float(low), f"{name}_high": float(high)}


_COLUMNS = [
    *("model", "method", "budget", "benchmarks"),
    "iqm",
    *_IMPROVEMENT,
    *(column for name in SUMMARIES for column in estimate_columns(name, None)),
    *(f"above_{level:g}" for level in THRESHOLDS),
]
