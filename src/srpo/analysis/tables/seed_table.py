"""How much scores depend on the training seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from srpo.analysis.results.contrasts import PERCENT, Estimate
from srpo.analysis.results.load import Results
from srpo.analysis.results.lookups import Lookup, combine, estimate_columns
from srpo.analysis.results.matrix import planned
from srpo.analysis.results.scores import PROTOCOLS, Scores
from srpo.analysis.results.titles import benchmark_title, method_title
from srpo.analysis.tables.grid import Cell, Grid, Row, number
from srpo.analysis.tables.table import Table, comparability, intervals_note, record_cell


def seeds_table(results: Results) -> Table:
    """How much the score depends on the training seed: the score of every seed at the last budget, their standard
    deviation, and for comparison the interval that is reported when there is one seed only.
    """
    scores, rows, body = Scores.of(results), [], []
    budget = list(results.experiment.training.budget_seconds)[-1]
    seeds = sorted({run.seed for run in results.experiment.runs()})
    for model, spec in results.experiment.models.items():
        lookup = scores.lookup(model, scores.protocol)
        body.append(Row(spec.title, heading=True))
        for method, benchmarks in planned(results, model).items():
            for benchmark in benchmarks:
                by_seed = lookup(benchmark, method, budget)
                singles = [_alone(lookup, benchmark, method, budget, seed) for seed in by_seed]
                half = [(one.high - one.low) / 2 for one in singles if one and one.has_interval]
                means = {seed: values.mean() for seed, values in by_seed.items()}
                spread = float(np.std([*means.values()], ddof=1)) if len(means) > 1 else math.nan
                row: dict[str, Any] = {"model": model, "method": method, "benchmark": benchmark, "budget": budget}
                row |= {f"seed{seed}": means.get(seed, math.nan) for seed in seeds}
                row |= estimate_columns("mean", scores.estimate(model, {(method, budget): 1.0}, [benchmark]))
                row |= {"spread": spread, "one_seed_half_width": float(np.mean(half)) if half else math.nan}
                rows.append(row)
                mean = record_cell(row, "mean")
                before = [Cell(number(row[f"seed{seed}"])) for seed in seeds]
                after = [Cell(number(row[name])) for name in ("spread", "one_seed_half_width")]
                label = f"{method_title(results, method)} · {benchmark_title(results, benchmark)}"
                body.append(Row(label, [*before, mean, *after]))
    names = ["model", "method", "benchmark", "budget", *(f"seed{seed}" for seed in seeds)]
    frame = pd.DataFrame(rows, columns=[*names, *estimate_columns("mean", None), "spread", "one_seed_half_width"])
    heads = [("Seed", str(seed)) for seed in seeds]
    heads += [("", "Mean"), ("", "Standard deviation"), ("", "± of one seed alone")]
    notes = [
        f"Percent within {budget} ({PROTOCOLS[scores.protocol]}). Standard deviation: between training seeds. "
        "± of one seed alone: half the width of the 95 % interval over test questions of a single seed, averaged over "
        "the seeds. It does not include the spread between seeds.",
        intervals_note(frame["mean_unit"]),
        *comparability(results),
    ]
    digits = {c: 1 for c in frame.columns if c not in ("model", "method", "benchmark", "budget", "mean_unit")}
    grids = [Grid("Method", heads, body)] if rows else []
    return Table("seeds", "Scores of each training seed", notes if rows else [], frame, digits, grids)


def _alone(lookup: Lookup, benchmark: str, method: str, budget: str, seed: int) -> Estimate | None:
    """The estimate from one seed only."""
    return combine(lambda *key: {seed: lookup(*key)[seed]}, {(method, budget): 1.0}, [benchmark], PERCENT)
