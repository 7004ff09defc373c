"""How much scores depend on the training seed."""

import itertools
import math
from typing import Any

import numpy as np
import pandas as pd

from srpo.analysis.results.estimates import PERCENT, Estimate
from srpo.analysis.results.load import Results
from srpo.analysis.results.lookups import Lookup, available, combine, estimate_columns, shared_seeds
from srpo.analysis.results.matrix import AVERAGE, is_paired, main_methods, model_benchmarks, planned
from srpo.analysis.results.scores import PROTOCOLS, Scores
from srpo.analysis.results.titles import benchmark_title, method_title
from srpo.analysis.tables.grid import Cell, Grid, Row, number
from srpo.analysis.tables.table import Table, comparability, intervals_note, record_cell


def seeds_table(results: Results) -> Table:
    """How much the score depends on the training seed: the score of every seed at the last budget, their standard
    deviation, and for comparison the interval that is reported when there is one seed only.

    If every seed has its own base model, also the differences of methods on each base model, averaged over benchmarks,
    with the standard errors by benchmark and by base model.
    """
    scores, body = Scores.of(results), []
    rows: list[dict[str, Any]] = []
    budget = list(results.experiment.training.budget_seconds)[-1]
    compared: list[Grid] = []
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
        differences = _differences(results, model, budget) if is_paired(results, model) else []
        if differences:
            rows += differences
            compared.append(_difference_grid(results, model, differences, seeds))
    names = ["model", "method", "benchmark", "budget", *(f"seed{seed}" for seed in seeds)]
    names += [*estimate_columns("mean", None), "spread", "one_seed_half_width"]
    frame = pd.DataFrame(rows, columns=names + (_ERRORS if compared else []))
    heads = [("Seed", str(seed)) for seed in seeds]
    heads += [("", "Mean"), ("", "Standard deviation"), ("", "± of one seed alone")]
    notes = [
        f"Percent within {budget} ({PROTOCOLS[scores.protocol]}). Standard deviation: between training seeds. "
        "± of one seed alone: half the width of the 95 % interval over test questions of a single seed, averaged over "
        "the seeds. It does not include the spread between seeds.",
        intervals_note(frame["mean_unit"]),
        *([_PAIRED_NOTE] if compared else []),
        *comparability(results),
    ]
    digits = {c: 1 for c in frame.columns if c not in ("model", "method", "benchmark", "budget", "mean_unit")}
    grids = [Grid("Method", heads, body), *compared] if rows else []
    return Table("seeds", "Scores of each training seed", notes if rows else [], frame, digits, grids)


_ERRORS = ["error_by_benchmark", "error_by_base_model"]
_PAIRED_NOTE = (
    "Each seed starts every method from another base model, so methods are compared on the same base models. "
    "Standard error of a difference, by benchmark: as if base models shifted each benchmark independently; by base "
    "model: from one number per base model. No interval is narrower than either gives."
)


def _differences(results: Results, model: str, budget: str) -> list[dict[str, Any]]:
    """Every pair of the main methods: the difference on each base model, averaged over the benchmarks they share."""
    scores, rows = Scores.of(results), []
    methods = [method for method in main_methods(results) if method in planned(results, model)]
    for other, one in itertools.combinations(methods, 2):
        lookup, terms = scores.lookup(model, scores.protocol), {(one, budget): 1.0, (other, budget): -1.0}
        over = available(lookup, terms, model_benchmarks(results, model, (one, other)), paired=True)
        estimate = scores.estimate(model, terms, over) if over else None
        if estimate is None or estimate.errors is None:
            continue
        found = [{m: lookup(benchmark, m, budget) for m in (one, other)} for benchmark in over]
        seeds = shared_seeds([runs for arms in found for runs in arms.values()])
        by_seed = {s: float(np.mean([arms[one][s].mean() - arms[other][s].mean() for arms in found])) for s in seeds}
        row: dict[str, Any] = {"model": model, "method": f"{one}-{other}", "benchmark": AVERAGE, "budget": budget}
        row |= {f"seed{seed}": value for seed, value in by_seed.items()}
        row |= estimate_columns("mean", estimate) | dict(zip(_ERRORS, estimate.errors, strict=True))
        rows.append(row | {"spread": float(np.std([*by_seed.values()], ddof=1))})
    return rows


def _difference_grid(results: Results, model: str, rows: list[dict[str, Any]], seeds: list[int]) -> Grid:
    body = []
    for row in rows:
        one, other = row["method"].split("-")
        before = [Cell(number(row.get(f"seed{seed}", math.nan), sign=True)) for seed in seeds]
        after = [Cell(number(row[name], 2)) for name in ("spread", *_ERRORS)]
        label = f"{method_title(results, one)} minus {method_title(results, other)}"
        body.append(Row(label, [*before, record_cell(row, "mean"), *after]))
    heads = [("Base model", str(seed)) for seed in seeds] + [("", "Mean"), ("", "Standard deviation")]
    heads += [("Standard error", "by benchmark"), ("Standard error", "by base model")]
    return Grid("Difference", heads, body, f"{results.experiment.models[model].title}, differences, points")


def _alone(lookup: Lookup, benchmark: str, method: str, budget: str, seed: int) -> Estimate | None:
    """The estimate from one seed only."""
    return combine(lambda *key: {seed: lookup(*key)[seed]}, {(method, budget): 1.0}, [benchmark], PERCENT)
