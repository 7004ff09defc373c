"""Scores by model, benchmark, method and budget, in percent.

Two scores stand side by side. ``in_training`` is the paper's protocol: the highest avg@k among the
validations whose training clock is within the budget. ``resampled`` is the score of the checkpoint that
this maximum selected, sampled anew, so that the noise that made it the maximum does not flatter it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import numpy as np
import pandas as pd

from srpo.analysis.load import RUN_KEY, Results, tidy

CELL = ["model", "method", "benchmark", "budget"]
AVERAGE = "average"
BASE = "base"
Protocol = Literal["in_training", "resampled"]

# Table 2 of the paper: the variant each ablation is compared with.
ABLATIONS = {"srpo_without_weighting": "srpo", "advantage_mix": "srpo_without_weighting"}


def run_scores(results: Results) -> pd.DataFrame:
    """One row per run and budget with both scores and their per-question vectors."""
    evaluated = results.evaluations.set_index([*RUN_KEY, "budget"])
    clock = results.runs.set_index(RUN_KEY)["clock"]
    finished = results.runs.set_index(RUN_KEY)["status"] == "finished"
    validations = dict(list(results.validations.groupby(RUN_KEY)))
    rows = []
    for key in results.runs[RUN_KEY].itertuples(index=False, name=None):
        for budget, seconds in results.experiment.training.budgets.items():
            row = dict(zip(RUN_KEY, key, strict=True)) | {"budget": budget}
            # A run that has not used up the budget yet may still improve on what it has: no score.
            if key in validations and (finished[key] or clock[key] >= seconds):
                within = validations[key][validations[key]["clock"] <= seconds]
                if len(within):
                    best = within.loc[within["avg_at_k"].idxmax()]
                    row |= {"in_training": 100 * best["avg_at_k"], "in_training_questions": best["question_scores"]}
            if (*key, budget) in evaluated.index:
                cell = evaluated.loc[(*key, budget)]
                row |= {"resampled": 100 * cell["avg_at_k"], "resampled_questions": cell["question_scores"]}
            rows.append(row)
    return tidy(rows, ["budget", "in_training", "in_training_questions", "resampled", "resampled_questions"])


def cell_scores(results: Results) -> pd.DataFrame:
    """Mean over seeds for every planned cell, base models (budget ``base``) first.

    ``seeds`` and ``resampled_seeds`` count the runs behind each mean. Every planned cell has a row.
    """
    runs = run_scores(results)
    grouped = runs.groupby(CELL, sort=False)
    cells = grouped.agg(
        in_training=("in_training", "mean"),
        seeds=("in_training", "count"),
        resampled=("resampled", "mean"),
        resampled_seeds=("resampled", "count"),
    ).reset_index()
    measured = results.bases.set_index(["model", "benchmark"])["avg_at_k"].to_dict()
    bases = pd.DataFrame(
        {
            "model": model,
            "method": BASE,
            "benchmark": benchmark,
            "budget": BASE,
            "in_training": np.nan,
            "seeds": 0,
            "resampled": 100 * measured.get((model, benchmark), np.nan),
            "resampled_seeds": int((model, benchmark) in measured),
        }
        for model, benchmark in results.experiment.bases()
    )
    return pd.concat([bases, cells], ignore_index=True) if len(cells) else bases


def average_scores(cells: pd.DataFrame, benchmarks: list[str]) -> pd.DataFrame:
    """The mean over ``benchmarks`` of each model, method and budget; missing unless all are there."""
    rows = []
    for key, group in cells[cells["benchmark"].isin(benchmarks)].groupby(["model", "method", "budget"], sort=False):
        row = dict(zip(["model", "method", "budget"], key, strict=True)) | {"benchmark": AVERAGE}
        complete = len(group) == len(benchmarks)
        for protocol, count in (("in_training", "seeds"), ("resampled", "resampled_seeds")):
            row[protocol] = group[protocol].mean(skipna=False) if complete else np.nan
            row[count] = int(group[count].min()) if complete else 0
        rows.append(row)
    return pd.DataFrame(rows, columns=[*CELL, "in_training", "seeds", "resampled", "resampled_seeds"])


# ---------------------------------------------------------------- the matrix


def planned(results: Results, model: str) -> dict[str, list[str]]:
    """The methods planned for ``model``, each with its benchmarks, in the matrix's order."""
    plan: dict[str, list[str]] = {}
    for run in results.experiment.runs():
        if run.model == model and run.benchmark not in plan.setdefault(run.method, []):
            plan[run.method].append(run.benchmark)
    return plan


def main_methods(results: Results) -> list[str]:
    """The methods of table 1: all that are not ablations."""
    return [m for m in results.experiment.methods if m not in ABLATIONS]


def model_benchmarks(results: Results, model: str, methods: Iterable[str] | None = None) -> list[str]:
    """The benchmarks over which methods of ``model`` are averaged: those planned for every one of ``methods``.

    Without ``methods``, the benchmarks of table 1's methods together, or those of the base evaluations.
    """
    plan = planned(results, model)
    if methods is not None:
        sets = [plan[m] for m in methods if m in plan]
        return [b for b in results.experiment.benchmarks if sets and all(b in s for s in sets)]
    trained = {b for method in main_methods(results) for b in plan.get(method, [])}
    trained = trained or {b for m, b in results.experiment.bases() if m == model}
    return [b for b in results.experiment.benchmarks if b in trained]


# ---------------------------------------------------------------- differences


def difference(
    runs: pd.DataFrame, model: str, pair: tuple[str, str], budget: str, benchmarks: list[str], protocol: Protocol
) -> tuple[float, float] | None:
    """``pair[0]`` minus ``pair[1]`` averaged over ``benchmarks``, in points, and its standard error.

    The standard error is that of the paired differences over test questions: it says how much another
    draw of questions and samples would move the difference, not how much another training seed would.
    None unless every benchmark has both scores.
    """
    differences, variances = [], []
    for benchmark in benchmarks:
        sides = [_seed_mean(runs, (model, method, benchmark, budget), protocol) for method in pair]
        if sides[0] is None or sides[1] is None or len(sides[0]) != len(sides[1]):
            return None
        paired = 100 * (sides[0] - sides[1])
        differences.append(paired.mean())
        variances.append(paired.var(ddof=1) / len(paired) if len(paired) > 1 else math.inf)
    if not differences:
        return None
    return float(np.mean(differences)), float(math.sqrt(sum(variances)) / len(benchmarks))


def _seed_mean(runs: pd.DataFrame, cell: tuple[str, ...], protocol: Protocol) -> np.ndarray | None:
    """Per-question scores averaged over seeds."""
    matches = (runs[CELL] == list(cell)).all(axis=1)
    vectors = [v for v in runs.loc[matches, f"{protocol}_questions"] if isinstance(v, list)]
    if not vectors or len({len(v) for v in vectors}) > 1:
        return None
    return np.mean(np.array(vectors, dtype=float), axis=0)
