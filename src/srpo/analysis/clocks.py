"""The same runs under other clocks: each counted again from its step log, nothing trained anew."""

import math

import numpy as np
import pandas as pd

from srpo.analysis.claims import load_claims
from srpo.analysis.results import Results, estimate_columns
from srpo.analysis.statistics.contrasts import Values, available, combine
from srpo.analysis.statistics.cross_fit import WINDOW
from srpo.analysis.statistics.estimates import PERCENT
from srpo.training.clock import PHASES

MEASURED = "measured seconds"
"""The clock that differs by machine."""
ADDED = {
    "training clock": "step_seconds",
    "steps": None,
    "generated tokens": "phase_tokens/generate",
    MEASURED: "wall_seconds",
}
"""What a step adds to each clock: a column of the step log, or 1."""
GENERATION = {"generation half as dear": 0.5, "generation twice as dear": 2.0}
"""Clocks on which decoding costs so many times as much, relative to all else; they need the FLOPs of a modelled clock.

Budgets are what runs reach, so only the ratio of the two rates matters.
"""


def recounted(steps: pd.DataFrame, clock: str) -> pd.Series:
    """The clock after each step of a run, by step; empty if the log lacks what it counts."""
    columns = ["phase_seconds/generate"] if clock in GENERATION else [ADDED[clock]] if ADDED[clock] else []
    if not {*columns} <= {*steps}:
        return pd.Series(dtype=float)
    added = steps[columns[0]] if columns else pd.Series(1.0, steps.index)
    if clock in GENERATION:
        rest = [f"phase_seconds/{phase}" for phase in PHASES if phase != "generate"]
        added = GENERATION[clock] * added + steps[rest].sum(axis=1)
    counted = pd.Series(added.to_numpy(dtype=float).cumsum(), steps["step"].astype(int))
    return counted if counted.notna().all() else pd.Series(dtype=float)


def compared_pairs(results: Results, model: str) -> list[tuple[str, str]]:
    """The pairs of methods that table 1's claims compare at the last budget, if the model has both."""
    terms = [c.quantity.terms for c in load_claims() if c.block == "primary" and c.quantity.kind == "score"]
    pairs = [
        (of[0][1], of[1][1]) for of in terms if len(of) == 2 and of[0][0] == 1 and {of[0][2], of[1][2]} == {"last"}
    ]
    plan = results.plans[model]
    return [(one, other) for one, other in dict.fromkeys(pairs) if one != other and {one, other} <= plan.keys()]


def clock_frame(results: Results, measured: bool = False) -> pd.DataFrame:
    """Differences of end scores under each clock, each benchmark at the largest budget that all its runs reach.

    Args:
        measured: the clocks that differ by machine, instead of the others.

    Returns:
        One row per model, clock and pair: ``difference`` in points with its interval, averaged over ``benchmarks``.
        A score is the mean of the last validations within the budget
        (:data:`~srpo.analysis.statistics.cross_fit.WINDOW` of them), without any selection.
    """
    rows, modelled = [], results.experiment.training.clock.kind == "modelled"
    clocks = [MEASURED] if measured else [name for name in ADDED if name != MEASURED] + [*GENERATION] * modelled
    for model in results.experiment.models:
        pairs = compared_pairs(results, model)
        methods = list(dict.fromkeys(method for pair in pairs for method in pair))
        for clock in clocks:
            values = _end_scores(results, model, methods, clock)
            for one, other in pairs:
                terms = {(one, clock): 1.0, (other, clock): -1.0}
                paired = results.experiment.draws_per_seed(model)
                over = available(values, terms, results.benchmarks(model, (one, other)), paired)
                estimate = combine(values, terms, over, PERCENT, paired) if over else None
                key = {"model": model, "clock": clock, "method": one, "other": other, "benchmarks": len(over)}
                rows.append(key | estimate_columns("difference", estimate))
    names = ["model", "clock", "method", "other", "benchmarks", *estimate_columns("difference", None)]
    return pd.DataFrame(rows, columns=names)


def _end_scores(results: Results, model: str, methods: list[str], clock: str) -> Values:
    """End scores (percent, one per question) by benchmark, method and seed, within what all runs of a benchmark reach.

    A run that is not finished, or has too few validations within the budget, has none.
    """
    found: dict[tuple[str, str, str], dict[int, np.ndarray]] = {}
    for benchmark in results.experiment.benchmarks:
        runs = [run for run in results.run_rows if run[:2] == (model, benchmark) and run[2] in methods]
        runs = [run for run in runs if results.reached(run, math.inf)]  # a run that continues would move the budget
        counted = {run: recounted(results.step_logs[run], clock) for run in runs if run in results.step_logs}
        counted = {run: times for run, times in counted.items() if len(times)}
        limit = min((times.iloc[-1] for times in counted.values()), default=0.0)
        for run, times in counted.items():
            log = results.validation_logs.get(run)
            if log is None:
                continue
            within = log[log["step"].astype(int).map(times) <= limit]["question_scores"].tail(WINDOW)
            if len(within) == WINDOW and within.map(len).nunique() == 1:
                found.setdefault((benchmark, run[2], clock), {})[run[3]] = 100 * np.vstack([*within]).mean(axis=0)
    return found
