"""The gaps of an experiment's base models, measured before training, beside what their runs gained."""

from typing import Any

import numpy as np
import pandas as pd

from srpo.analysis.gap import forecast, sign
from srpo.analysis.results import BASE, Results, estimate_columns
from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.estimates import Estimate

METHODS = ("grpo", "sdpo", "srpo")
"""Methods whose gains stand beside the gap."""


def gap_frame(results: Results) -> pd.DataFrame:
    """A row per base model and benchmark with a gap.

    Returns:
        Columns: model, base_model, benchmark; ``says`` (:data:`~srpo.analysis.gap.SENTENCES`); in percent or
        points, with ``_low`` and ``_high``: each estimate of ``gap.json``, ``gain_grpo`` and so on (:func:`gain`).
        ``expected_gain`` has a prediction interval (:func:`~srpo.analysis.gap.forecast`).
    """
    rows = []
    for (model, benchmark, seed), gap in results.gaps.items():
        base = results.experiment.base_models(model)[seed].name
        row: dict[str, Any] = {"model": model, "base_model": base, "benchmark": benchmark}
        estimates = gap["estimates"]
        shown = estimates.get("gap")
        row["says"] = sign(shown["low"], shown["high"]) if shown else "no sibling"
        for name, estimate in estimates.items():
            row |= {name: estimate["value"], f"{name}_low": estimate["low"], f"{name}_high": estimate["high"]}
        if "expected_gain" in row:
            ends = forecast(row["expected_gain"], row["student"])
            row |= dict(zip(("expected_gain_low", "expected_gain_high"), ends, strict=True))
        for method in METHODS:
            row |= estimate_columns(f"gain_{method}", gain(results, model, benchmark, method, seed))
        rows.append(row)
    return pd.DataFrame(rows)


def gain(results: Results, model: str, benchmark: str, method: str, seed: int) -> Estimate | None:
    """What the runs that start from a base model end above it: points on test questions, by the score that decides.

    Args:
        seed: of the base model; 0 if all runs of ``model`` share one, and then it is the mean over runs.

    Returns:
        None as long as no run has reached the last budget, or if the test questions differ.
    """
    values, last = results.of(model, results.deciding), [*results.budget_seconds][-1]
    runs, untrained = values.get((benchmark, method, last), {}), values.get((benchmark, BASE, BASE), {}).get(seed)
    ended = [scored for s, scored in runs.items() if s == seed or not results.experiment.draws_per_seed(model)]
    if untrained is None or not ended or benchmark in results.incomparable:
        return None
    return contrast([[Arm(np.array(ended)), Arm(-untrained[None], fixed=True)]])


def held(pairs: pd.DataFrame, method: str) -> tuple[int, int]:
    """In how many pairs the interval of the gain by the law holds what ``method`` gained, and of how many.

    Args:
        pairs: the columns ``expected_gain_low``, ``expected_gain_high`` and ``gain_<method>``; without one of the three
            a pair does not count.
    """
    columns = ["expected_gain_low", "expected_gain_high", f"gain_{method}"]
    known = pairs.reindex(columns=columns).astype(float).dropna()
    low, high, gained = (known[column] for column in columns)
    return int(gained.between(low, high).sum()), len(known)
