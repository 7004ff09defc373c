"""Table 2: the ablations averaged over benchmarks, and their differences to the variant that they ablate."""

import math
from typing import Any

import pandas as pd

from srpo.analysis.results import ABLATIONS, AVERAGE, MISSING, SCORE_KEY, Results, estimate_columns
from srpo.analysis.tables.table import Bold, Table, View, cells, comparability, intervals_note
from srpo.analysis.tables.table1 import DIGITS, score_frame, seeds, with_paper
from srpo.ground.text import joined

_TITLES = {
    "in_training": "In-training maximum (the paper's protocol), percent",
    "resampled": "Selected checkpoint, resampled, percent",
    "paper": "Published numbers, percent",
}


def table(results: Results) -> Table:
    methods = {model: _ablated(results, model) for model in results.experiment.models if _ablated(results, model)}
    covered = {model: results.benchmarks(model, names) for model, names in methods.items()}
    frame = score_frame(results, methods, covered)
    single = {model: names[0] for model, names in covered.items() if len(names) == 1}  # it is its own average
    only = frame[frame["benchmark"] == frame["model"].map(single)].assign(benchmark=AVERAGE)
    frame = pd.concat([frame, only], ignore_index=True)
    frame = results.in_order(_with_differences(with_paper(frame, results), results, covered))
    over = [
        f"{results.experiment.models[model].title}: mean over {joined([results.benchmark_title(b) for b in names])}."
        for model, names in covered.items()
    ]
    notes = [
        "Each variant is compared with the row above it, as in the paper: the unweighted variant with SRPO, "
        "the advantage mix with the unweighted variant.",
        *over,
        intervals_note(frame),
        *comparability(results),
    ]
    numbers = [*DIGITS, *(c for c in frame.columns if "_difference" in c and not c.endswith("_unit"))]
    views = [_view(results, frame, methods, value) for value in _TITLES if value in frame and methods]
    title = "Ablations (the paper's table 2)"
    return Table(title, frame, notes if methods else [], dict.fromkeys(numbers, 1), views)


def _ablated(results: Results, model: str) -> list[str]:
    """SRPO and its ablations in the order of comparison; empty if the matrix holds no ablation of it."""
    methods = [m for m in ("srpo", *ABLATIONS) if m in results.plans[model]]
    return methods if {*methods} & {*ABLATIONS} else []


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


def _view(results: Results, frame: pd.DataFrame, methods: dict[str, list[str]], value: str) -> View:
    budgets, averages = list(results.budget_seconds), frame[frame["benchmark"] == AVERAGE]
    scores = cells(averages, ["model", "method", "budget"], value)
    differences = cells(averages, ["model", "method", "budget"], f"{value}_difference", sign=True)
    rows: list[tuple[str, list[str]]] = []
    for model, names in methods.items():
        rows.append((Bold(results.experiment.models[model].title), []))
        for method in names:
            texts = [of.get((model, method, b), MISSING) for of in (scores, differences) for b in budgets]
            compared = texts if method in ABLATIONS else texts[: len(budgets)]
            counted = seeds(frame, model, method, value, [AVERAGE])
            rows.append((results.method_title(method), [counted, *compared]))
    groups = ("Average", "Difference to the row above")
    heads = [(group, results.experiment.budget_title(b)) for group in groups for b in budgets]
    return View("Variant", [("", "Seeds"), *heads], rows, _TITLES[value])
