"""Scores as tables: the main table (1), the ablations (2), and differences between methods."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from srpo.analysis.results.load import Results
from srpo.analysis.results.lookups import available, estimate_columns
from srpo.analysis.results.matrix import (
    ABLATIONS,
    AVERAGE,
    BASE,
    SCORE_KEY,
    ablated,
    in_matrix_order,
    main_methods,
    model_benchmarks,
    planned,
)
from srpo.analysis.results.paper import paper_scores
from srpo.analysis.results.scores import SCORES, TITLES, Scores, score_frame
from srpo.analysis.results.titles import MISSING, benchmark_title, budgets_listed, count_range, method_title
from srpo.analysis.tables.grid import Cell, Grid, Row, mark_best
from srpo.analysis.tables.table import Table, cells_at, comparability, grid_of, intervals_note, record_cell
from srpo.ground.text import joined

CEILING = 95.0
"""Percent; where two methods are above it, their difference is small whatever the methods do."""

_BIASES = ("selection_bias", "question_bias")
_SCORE_DIGITS = {f"{score}{end}": 1 for score in SCORES for end in ("", "_low", "_high")} | {"paper": 1}

# ---------------------------------------------------------------- table 1


def main_table(results: Results) -> Table:
    """Table 1: model x method x benchmark x budget with all scores, their biases, and the base models."""
    experiment, frame = results.experiment, _of_main_methods(results, SCORES)
    frame = in_matrix_order(_with_paper(frame, results), results)
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
        f"Budgets: {budgets_listed(results)}. {MISSING}: not measured (yet).",
        intervals_note(_units(frame))
        + " An interval of an in-training maximum takes the selected validation as given.",
        *comparability(results),
    ]
    return Table("table1", "Scores within each budget (the paper's table 1)", notes, frame, _SCORE_DIGITS, grids)


def ends_table(results: Results) -> Table:
    """The mean of the last three validations, without any selection: rows and columns as in table 1."""
    frame = in_matrix_order(_of_main_methods(results, ("end",)), results)
    notes = [
        "Mean of the last three validations within each budget, percent. It selects no checkpoint, so it shows a late "
        f"fall, which the score of the best checkpoint hides. {intervals_note(frame['end_unit'])}",
        *comparability(results),
    ]
    digits = dict.fromkeys(["end", "end_low", "end_high"], 1)
    return Table(
        "ends", "Scores at the end of each budget", notes, frame, digits, [_score_grid(results, frame, "end", "")]
    )


def _of_main_methods(results: Results, scores: Sequence[str]) -> pd.DataFrame:
    models = results.experiment.models
    methods = {m: [BASE, *(n for n in main_methods(results) if n in planned(results, m))] for m in models}
    return score_frame(results, methods, {model: model_benchmarks(results, model) for model in models}, scores)


def _units(frame: pd.DataFrame) -> list[str]:
    return [unit for score in SCORES for unit in frame[f"{score}_unit"]]


def _score_grid(results: Results, frame: pd.DataFrame, value: str, title: str) -> Grid:
    experiment = results.experiment
    budgets = list(experiment.training.budget_seconds)
    # the average comes first: it is the most important, and the last columns may not fit on a screen
    shown = [b for b in (AVERAGE, *experiment.benchmarks) if b in set(frame["benchmark"])]
    heads = [
        (benchmark_title(results, b), results.experiment.budget_title(budget)) for b in shown for budget in budgets
    ]
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
            rows.append(Row(method_title(results, BASE), [Cell(""), *spans]))
        for method in (m for m in main_methods(results) if m in planned(results, model)):
            there = {*planned(results, model)[method], AVERAGE}
            found = zip(places, cells_at(cells, (model, method), places), strict=True)
            texts = [cell if place[0] in there else Cell("") for place, cell in found]
            rows.append(Row(method_title(results, method), [_seeds(frame, model, method, value, shown), *texts]))
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
    covered = {model: model_benchmarks(results, model, methods[model]) for model in models}
    frame = score_frame(results, methods, covered)
    single = {model: names[0] for model, names in covered.items() if len(names) == 1}  # it is its own average
    only = frame[frame["benchmark"] == frame["model"].map(single)].assign(benchmark=AVERAGE)
    frame = pd.concat([frame, only], ignore_index=True)
    frame = in_matrix_order(_with_differences(_with_paper(frame, results), results, covered), results)
    titles = {
        "in_training": "In-training maximum (the paper's protocol), percent",
        "resampled": "Selected checkpoint, resampled, percent",
        "paper": "Published numbers, percent",
    }
    shown = {value: title for value, title in titles.items() if value in frame and models}
    grids = [_ablation_grid(results, frame, methods, value, title) for value, title in shown.items()]
    over = [
        f"{results.experiment.models[model].title}: mean over {joined([benchmark_title(results, b) for b in names])}."
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
    scores, rows = Scores.of(results), []
    for model, method, benchmark, budget in frame[SCORE_KEY].itertuples(index=False, name=None):
        other = ABLATIONS.get(method)
        terms = {(method, budget): 1.0, (other, budget): -1.0}
        over = covered[model] if benchmark == AVERAGE else [benchmark]
        row: dict[str, Any] = {"compared_with": other}
        for score in ("in_training", "resampled"):
            found = scores.estimate(model, terms, over, score) if other else None
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
    budgets = list(results.experiment.training.budget_seconds)
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
            rows.append(Row(method_title(results, method), cells))
    heads = [
        ("", "Seeds"),
        *(("Average", results.experiment.budget_title(b)) for b in budgets),
        *(("Difference to the row above", results.experiment.budget_title(b)) for b in budgets),
    ]
    return Grid("Variant", heads, rows, title=title)


# ---------------------------------------------------------------- differences


def differences_table(results: Results) -> Table:
    """SRPO minus every other method, on each benchmark and on average."""
    scores, rows, grids = Scores.of(results), [], []
    budgets = list(results.experiment.training.budget_seconds)
    for model, spec in results.experiment.models.items():
        plan, body = planned(results, model), []
        others = [method for method in plan if method != "srpo"] if "srpo" in plan else []
        shared = {other: model_benchmarks(results, model, ("srpo", other)) for other in others}
        shown = [b for b in results.experiment.benchmarks if any(b in there for there in shared.values())]
        places = [*([AVERAGE] if len(shown) > 1 else []), *shown]  # as in table 1
        for other in others:
            cells = []
            for place in places:
                for budget in budgets:
                    terms = {("srpo", budget): 1.0, (other, budget): -1.0}
                    over = shared[other] if place == AVERAGE else [place]
                    over = available(scores.lookup(model, scores.deciding), terms, over)
                    estimate = scores.estimate(model, terms, over)
                    key: dict[str, Any] = {"model": model, "method": other, "benchmark": place, "budget": budget}
                    rows.append(key | {"benchmarks": len(over)} | estimate_columns("difference", estimate))
                    cells.append(record_cell(rows[-1], "difference", sign=True))
            body.append(Row(f"SRPO minus {method_title(results, other)}", cells))
        if body:
            heads = [
                (benchmark_title(results, b), results.experiment.budget_title(budget))
                for b in places
                for budget in budgets
            ]
            grids.append(Grid("", heads, body, title=spec.title))
    names = [*SCORE_KEY, "benchmarks", *estimate_columns("difference", None)]
    frame = in_matrix_order(pd.DataFrame(rows, columns=names), results)
    notes = [
        f"Points ({TITLES[scores.deciding]}), on the same questions. Averages are over the benchmarks that have both "
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
    scores, methods = Scores.of(results), main_methods(results)
    budget, found = list(results.experiment.training.budget_seconds)[-1], []
    for model, spec in results.experiment.models.items():
        for benchmark in model_benchmarks(results, model):
            ends = [scores.estimate(model, {(method, budget): 1.0}, [benchmark]) for method in methods]
            if sum(end is not None and end.value > CEILING for end in ends) > 1:
                title = benchmark_title(results, benchmark)
                found.append(f"{title} ({spec.title})" if len(results.experiment.models) > 1 else title)
    return found


# ---------------------------------------------------------------- the paper's numbers


def _with_paper(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    if not results.experiment.comparable_with_paper:
        return frame
    return frame.merge(paper_scores(results.experiment), how="left", on=SCORE_KEY)
