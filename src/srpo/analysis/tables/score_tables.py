"""Scores as tables: the main table (1), the ablations (2), and differences between methods."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from srpo.analysis.paper import paper_scores
from srpo.analysis.results import ABLATIONS, AVERAGE, BASE, MISSING, SCORE_KEY, SCORE_TITLES, Results, estimate_columns
from srpo.analysis.statistics.contrasts import available
from srpo.analysis.tables.grid import Cell, Grid, Row, mark_best
from srpo.analysis.tables.table import Table, cells_at, comparability, count_range, grid_of, intervals_note, record_cell
from srpo.ground.text import joined

SCORES = ("in_training", "resampled", "selection_bias", "cross_fitted", "question_bias")

CEILING = 95.0
"""Percent; where two methods are above it, their difference is small whatever the methods do."""

_BIASES = ("selection_bias", "question_bias")
_SCORE_DIGITS = {f"{score}{end}": 1 for score in SCORES for end in ("", "_low", "_high")} | {"paper": 1}

# ---------------------------------------------------------------- table 1


def main_table(results: Results) -> Table:
    """Table 1: model x method x benchmark x budget with all scores, their biases, and the base models."""
    experiment, frame = results.experiment, _of_main_methods(results, SCORES)
    frame = results.in_order(_with_paper(frame, results))
    k, again = experiment.training.validation.rollouts, experiment.evaluation.rollouts
    views = {
        "in_training": f"In-training maximum (the paper's protocol), avg@{k}, percent",
        "resampled": f"Selected checkpoint, resampled, avg@{again}, percent",
        "cross_fitted": "Cross-fitted: selected on half of the test questions, reported on the other half, percent",
        "selection_bias": "Selection bias: in-training maximum minus the same checkpoint resampled, points",
        "question_bias": "Question bias: resampled minus cross-fitted, points",
        "paper": "Published numbers, percent",
    }
    shown = [value for value in views if value in frame]
    grids = [_score_grid(results, frame, value, views[value]) for value in shown]
    notes = [
        "In-training: the highest validation whose training clock is within the budget. As a maximum of noisy scores "
        "it is too high on average. Resampled: that checkpoint on the same questions with new samples. Cross-fitted: "
        "one half of the test questions selects the checkpoint, the other half measures it, in training. It has no "
        "bias from the selection, but is slightly too low, because half of the questions select less well. "
        f"Budgets: {results.budgets_listed}. {MISSING}: not measured (yet).",
        intervals_note(_units(frame))
        + " An interval of an in-training maximum takes the selected validation as given.",
        *comparability(results),
    ]
    return Table("table1", "Scores within each budget (the paper's table 1)", notes, frame, _SCORE_DIGITS, grids)


def ends_table(results: Results) -> Table:
    """The mean of the last three validations, without any selection: rows and columns as in table 1."""
    frame = results.in_order(_of_main_methods(results, ("end",)))
    notes = [
        "Mean of the last three validations within each budget, percent. It selects no checkpoint, so it shows a late "
        f"fall, which the score of the best checkpoint hides. {intervals_note(frame['end_unit'])}",
        *comparability(results),
    ]
    digits = dict.fromkeys(["end", "end_low", "end_high"], 1)
    return Table(
        "ends", "Scores at the end of each budget", notes, frame, digits, [_score_grid(results, frame, "end", "")]
    )


def ablated(results: Results, model: str) -> list[str]:
    """SRPO and its ablations in the order of comparison; empty if the matrix holds no ablation of it."""
    methods = [m for m in ("srpo", *ABLATIONS) if m in results.plans[model]]
    return methods if set(methods) & set(ABLATIONS) else []


def _of_main_methods(results: Results, scores: Sequence[str]) -> pd.DataFrame:
    models = results.experiment.models
    methods = {m: [BASE, *results.main_methods(m)] for m in models}
    return score_frame(results, methods, {model: results.benchmarks(model) for model in models}, scores)


def _units(frame: pd.DataFrame) -> list[str]:
    return [unit for score in SCORES for unit in frame[f"{score}_unit"]]


def _score_grid(results: Results, frame: pd.DataFrame, value: str, title: str) -> Grid:
    experiment = results.experiment
    budgets = list(experiment.training.budget_seconds)
    # the average comes first: it is the most important, and the last columns may not fit on a screen
    shown = [b for b in (AVERAGE, *experiment.benchmarks) if b in set(frame["benchmark"])]
    heads = [(results.benchmark_title(b), results.experiment.budget_title(budget)) for b in shown for budget in budgets]
    places = [(b, budget) for b in shown for budget in budgets]
    keys, columns, bias = ["model", "method"], ["benchmark", "budget"], value in _BIASES
    trained, untrained = frame[frame["method"] != BASE], frame[frame["method"] == BASE]
    best = trained.groupby(["model", *columns])[value].transform(lambda v: pd.Series(mark_best([*v]), v.index))
    cells = grid_of(trained.assign(best=best), keys, columns, value, sign=bias, best=None if bias else "best")
    # Validation never sees the untrained model: its resampled score is shown in both views.
    base = grid_of(untrained, "model", "benchmark", value if value in ("paper", "end") else "resampled")
    rows = []
    for model, spec in experiment.models.items():
        rows.append(Row(spec.title, heading=True))
        if not bias:
            spans = [replace(cell, span=len(budgets)) for cell in cells_at(base, model, shown)]
            rows.append(Row(results.method_title(BASE), [Cell(""), *spans]))
        for method in results.main_methods(model):
            there = {*results.plans[model][method], AVERAGE}
            found = zip(places, cells_at(cells, (model, method), places), strict=True)
            texts = [cell if place[0] in there else Cell("") for place, cell in found]
            rows.append(Row(results.method_title(method), [_seeds(frame, model, method, value, shown), *texts]))
    return Grid("Method", [("", "Seeds"), *heads], rows, title=title)


def _seeds(frame: pd.DataFrame, model: str, method: str, value: str, benchmarks: list[str]) -> Cell:
    """The number of seeds in a row's scores; empty for published numbers."""
    if value == "paper":
        return Cell("")
    of_row = frame[(frame["model"] == model) & (frame["method"] == method) & frame["benchmark"].isin(benchmarks)]
    return Cell(count_range(of_row[f"{value}_seeds"]))


# ---------------------------------------------------------------- table 2


def ablation_table(results: Results) -> Table:
    """Table 2: the ablations averaged over benchmarks, and their differences to the variant that they ablate."""
    models = [model for model in results.experiment.models if ablated(results, model)]
    methods = {model: ablated(results, model) for model in models}
    covered = {model: results.benchmarks(model, methods[model]) for model in models}
    frame = score_frame(results, methods, covered)
    single = {model: names[0] for model, names in covered.items() if len(names) == 1}  # it is its own average
    only = frame[frame["benchmark"] == frame["model"].map(single)].assign(benchmark=AVERAGE)
    frame = pd.concat([frame, only], ignore_index=True)
    frame = results.in_order(_with_differences(_with_paper(frame, results), results, covered))
    titles = {
        "in_training": "In-training maximum (the paper's protocol), percent",
        "resampled": "Selected checkpoint, resampled, percent",
        "paper": "Published numbers, percent",
    }
    shown = {value: title for value, title in titles.items() if value in frame and models}
    grids = [_ablation_grid(results, frame, methods, value, title) for value, title in shown.items()]
    over = [
        f"{results.experiment.models[model].title}: mean over {joined([results.benchmark_title(b) for b in names])}."
        for model, names in covered.items()
    ]
    notes = [
        "Each variant is compared with the row above it, as in the paper: the unweighted variant with SRPO, "
        "the advantage mix with the unweighted variant.",
        *over,
        intervals_note(_units(frame)),
        *comparability(results),
    ]
    numbers = [*_SCORE_DIGITS, *(c for c in frame.columns if "_difference" in c and not c.endswith("_unit"))]
    return Table(
        "table2", "Ablations (the paper's table 2)", notes if models else [], frame, dict.fromkeys(numbers, 1), grids
    )


def _with_differences(frame: pd.DataFrame, results: Results, covered: dict[str, list[str]]) -> pd.DataFrame:
    """Each variant minus the one that it ablates, question by question."""
    rows = []
    for model, method, benchmark, budget in frame[SCORE_KEY].itertuples(index=False, name=None):
        other = ABLATIONS.get(method)
        terms = {(method, budget): 1.0, (other, budget): -1.0}
        over = covered[model] if benchmark == AVERAGE else [benchmark]
        row: dict[str, Any] = {"compared_with": other}
        for score in ("in_training", "resampled"):
            found = results.estimate(model, terms, over, score) if other else None
            row |= estimate_columns(f"{score}_difference", found)
        rows.append(row)
    differences = ("in_training_difference", "resampled_difference")
    names = ["compared_with", *(name for score in differences for name in estimate_columns(score, None))]
    frame = pd.concat([frame, pd.DataFrame(rows, index=frame.index, columns=names)], axis=1)
    if "paper" in frame:
        known = frame.set_index(SCORE_KEY)["paper"].to_dict()
        keys = zip(frame["model"], frame["compared_with"], frame["benchmark"], frame["budget"], strict=True)
        frame["paper_difference"] = frame["paper"] - [known.get(key, math.nan) for key in keys]
    return frame


def _ablation_grid(results: Results, frame: pd.DataFrame, methods: dict, value: str, title: str) -> Grid:
    budgets = list(results.budget_seconds)
    averages = frame[frame["benchmark"] == AVERAGE]
    scores = grid_of(averages, ["model", "method"], "budget", value)
    differences = grid_of(averages, ["model", "method"], "budget", f"{value}_difference", sign=True)
    rows = []
    for model, names in methods.items():
        rows.append(Row(results.experiment.models[model].title, heading=True))
        for method in names:
            cells = [_seeds(frame, model, method, value, [AVERAGE]), *cells_at(scores, (model, method), budgets)]
            compared = cells_at(differences, (model, method), budgets)
            cells += compared if method in ABLATIONS else [Cell("")] * len(budgets)
            rows.append(Row(results.method_title(method), cells))
    heads = [
        ("", "Seeds"),
        *(("Average", results.experiment.budget_title(b)) for b in budgets),
        *(("Difference to the row above", results.experiment.budget_title(b)) for b in budgets),
    ]
    return Grid("Variant", heads, rows, title=title)


# ---------------------------------------------------------------- differences


def differences_table(results: Results) -> Table:
    """SRPO minus every other method, on each benchmark and on average."""
    rows, grids = [], []
    budgets = list(results.budget_seconds)
    for model, spec in results.experiment.models.items():
        plan, body = results.plans[model], []
        others = [method for method in plan if method != "srpo"] if "srpo" in plan else []
        shared = {other: results.benchmarks(model, ("srpo", other)) for other in others}
        shown = [b for b in results.experiment.benchmarks if any(b in there for there in shared.values())]
        places = [*([AVERAGE] if len(shown) > 1 else []), *shown]  # as in table 1
        for other in others:
            cells = []
            for place in places:
                for budget in budgets:
                    terms = {("srpo", budget): 1.0, (other, budget): -1.0}
                    over = shared[other] if place == AVERAGE else [place]
                    over = available(results.of(model, results.deciding), terms, over)
                    estimate = results.estimate(model, terms, over)
                    key: dict[str, Any] = {"model": model, "method": other, "benchmark": place, "budget": budget}
                    rows.append(key | {"benchmarks": len(over)} | estimate_columns("difference", estimate))
                    cells.append(record_cell(rows[-1], "difference", sign=True))
            body.append(Row(f"SRPO minus {results.method_title(other)}", cells))
        if body:
            heads = [
                (results.benchmark_title(b), results.experiment.budget_title(budget))
                for b in places
                for budget in budgets
            ]
            grids.append(Grid("", heads, body, title=spec.title))
    names = [*SCORE_KEY, "benchmarks", *estimate_columns("difference", None)]
    frame = results.in_order(pd.DataFrame(rows, columns=names))
    notes = [
        f"Points ({SCORE_TITLES[results.deciding]}), on the same questions. Averages are over the benchmarks that have both "
        "scores. Intervals are not corrected for their number. "
        f"{intervals_note(frame['difference_unit'])}"
    ]
    if full := _near_ceiling(results):
        notes.append(
            f"Near the ceiling at the last budget: {joined(full)}. Two or more methods are above {CEILING:g} % there: "
            "their difference is small whatever the methods do."
        )
    digits = dict.fromkeys(["difference", "difference_low", "difference_high"], 1)
    return Table("differences", "SRPO minus the other methods", notes if grids else [], frame, digits, grids)


def _near_ceiling(results: Results) -> list[str]:
    """The benchmarks on which two of a model's methods or more end above :data:`CEILING`."""
    budget, found = list(results.budget_seconds)[-1], []
    for model, spec in results.experiment.models.items():
        for benchmark in results.benchmarks(model):
            methods = results.main_methods(model)
            ends = [results.estimate(model, {(method, budget): 1.0}, [benchmark]) for method in methods]
            if sum(end is not None and end.value > CEILING for end in ends) > 1:
                title = results.benchmark_title(benchmark)
                found.append(f"{title} ({spec.title})" if len(results.experiment.models) > 1 else title)
    return found


# ---------------------------------------------------------------- the paper's numbers


def _with_paper(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    if not results.experiment.comparable_with_paper:
        return frame
    return frame.merge(paper_scores(results.experiment), how="left", on=SCORE_KEY)


def score_frame(
    results: Results,
    methods: Mapping[str, list[str]],
    average_over: Mapping[str, list[str]],
    shown: Sequence[str] = SCORES,
) -> pd.DataFrame:
    """Mean over seeds with its interval for every planned score, base models (budget ``base``) first.

    Args:
        shown: which scores: of :data:`SCORES`, and ``end``.
        methods: which methods of each model; :data:`BASE` is one.
        average_over: the benchmarks of each model's rows of benchmark ``average``; none if fewer than two.

    Returns:
        One row per :data:`SCORE_KEY`: each of ``shown`` in percent or points with
        ``_low``, ``_high``, the ``_unit`` of its interval and the number of its ``_seeds``. An average is missing
        unless all its benchmarks have a score.
    """
    rows = []
    for model, names in methods.items():
        for method in names:
            benchmarks = results.benchmarks(model, [method])
            for budget in [BASE] if method == BASE else results.budget_seconds:
                averaged = {benchmark: [benchmark] for benchmark in benchmarks}
                if len(average_over.get(model, ())) > 1:
                    averaged[AVERAGE] = average_over[model]
                for name, over in averaged.items():
                    row: dict[str, float | str] = dict(zip(SCORE_KEY, (model, method, name, budget), strict=True))
                    for score in shown:
                        estimate = results.estimate(model, {(method, budget): 1.0}, over, score)
                        values = results.of(model, score)
                        seeds = [len(values[b, method, budget]) for b in over] if estimate else [0]
                        row |= estimate_columns(score, estimate) | {f"{score}_seeds": min(seeds)}
                    rows.append(row)
    values = [f"{score}{end}" for score in shown for end in ("", "_low", "_high", "_unit", "_seeds")]
    frame = pd.DataFrame(rows, columns=[*SCORE_KEY, *values])
    base = frame["method"] == BASE  # the base score is not a maximum over validations
    for score in {*shown} - {"resampled", "end"}:
        frame.loc[base, [score, f"{score}_low", f"{score}_high"]] = np.nan
        frame.loc[base, f"{score}_unit"], frame.loc[base, f"{score}_seeds"] = "", 0
    return frame
