"""The same runs under other clocks: each counted again from its step log, nothing trained anew."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from srpo.analysis.claims import load_claims
from srpo.analysis.results import Results, estimate_columns
from srpo.analysis.statistics.contrasts import Values, available, combine
from srpo.analysis.statistics.cross_fit import WINDOW
from srpo.analysis.statistics.estimates import PERCENT
from srpo.training.clock import PHASES


@dataclass(frozen=True)
class OtherClock:
    """A way to count a step.

    Attributes:
        of_steps: from a run's step log to what each step adds.
        modelled: it needs FLOPs, so a modelled clock. Its seconds by phase are FLOPs at the clock's rates:
            generation at the rate of decoding, all else at the dense rate.
        measured: it differs by machine.
    """

    name: str
    of_steps: Callable[[pd.DataFrame], pd.Series]
    modelled: bool = False
    measured: bool = False


def _flops(steps: pd.DataFrame, generation: float) -> pd.Series:
    """Seconds of a modelled clock if decoding costs ``generation`` times as much, relative to all else."""
    rest = [f"phase_seconds/{phase}" for phase in PHASES if phase != "generate"]
    return generation * steps["phase_seconds/generate"] + steps[rest].sum(axis=1)


CLOCKS = (
    OtherClock("training clock", lambda steps: steps["step_seconds"]),
    OtherClock("steps", lambda steps: steps["step"] * 0 + 1),
    OtherClock("generated tokens", lambda steps: steps["phase_tokens/generate"]),
    OtherClock("generation half as dear", lambda steps: _flops(steps, 0.5), modelled=True),
    OtherClock("generation twice as dear", lambda steps: _flops(steps, 2.0), modelled=True),
    OtherClock("measured seconds", lambda steps: steps["wall_seconds"], measured=True),
)
"""Half the rate of decoding, or twice that of all else, makes generation twice as dear: budgets are what runs reach, so
only the ratio of the two rates matters."""


def recounted(steps: pd.DataFrame, clock: OtherClock) -> pd.Series:
    """The clock after each step of a run, by step; empty if the log lacks what it counts."""
    try:
        added = clock.of_steps(steps)
    except KeyError:
        return pd.Series(dtype=float)
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
    for model in results.experiment.models:
        pairs = compared_pairs(results, model)
        methods = list(dict.fromkeys(method for pair in pairs for method in pair))
        for clock in (c for c in CLOCKS if c.measured == measured and (modelled or not c.modelled)):
            values = _end_scores(results, model, methods, clock)
            for one, other in pairs:
                terms = {(one, clock.name): 1.0, (other, clock.name): -1.0}
                paired = results.experiment.draws_per_seed(model)
                over = available(values, terms, results.benchmarks(model, (one, other)), paired)
                estimate = combine(values, terms, over, PERCENT, results.arms(model), paired) if over else None
                key = {"model": model, "clock": clock.name, "method": one, "other": other, "benchmarks": len(over)}
                rows.append(key | estimate_columns("difference", estimate))
    names = ["model", "clock", "method", "other", "benchmarks", *estimate_columns("difference", None)]
    return pd.DataFrame(rows, columns=names)


def _end_scores(results: Results, model: str, methods: list[str], clock: OtherClock) -> Values:
    """End scores (percent, one per question) by benchmark, method and seed, within what all runs of a benchmark reach.

    A run that is not finished, or has too few validations within the budget, has none.
    """
    found: dict[tuple[str, str, str], dict[int, np.ndarray]] = {}
    for benchmark in results.experiment.benchmarks:
        runs = [run for run in results.counted if run[:2] == (model, benchmark) and run[2] in methods]
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
                found.setdefault((benchmark, run[2], clock.name), {})[run[3]] = 100 * np.vstack([*within]).mean(axis=0)
    return found
