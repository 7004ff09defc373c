"""Table 1: the scores of each method within each budget."""

from collections.abc import Mapping

import pandas as pd

from srpo.analysis.results import AVERAGE, BASE, MISSING, SCORE_KEY, Results, estimate_columns
from srpo.analysis.tables.table import Bold, Table, View, cells, comparability, count_range, intervals_note

SCORES = ("in_training", "resampled", "selection_bias", "cross_fitted", "question_bias")
DIGITS = {f"{score}{end}": 1 for score in SCORES for end in ("", "_low", "_high")} | {"paper": 1}


def table(results: Results) -> Table:
    """Model x method x benchmark x budget with all scores, their biases, and the base models."""
    experiment = results.experiment
    methods = {model: [BASE, *results.main_methods(model)] for model in experiment.models}
    averaged = {model: results.benchmarks(model) for model in experiment.models}
    frame = results.in_order(with_paper(score_frame(results, methods, averaged), results))
    k, again = experiment.training.validation.rollouts, experiment.evaluation.rollouts
    titles = {
        "in_training": f"In-training maximum (the paper's protocol), avg@{k}, percent",
        "resampled": f"Selected checkpoint, resampled, avg@{again}, percent",
        "cross_fitted": "Cross-fitted: selected on half of the test questions, reported on the other half, percent",
        "selection_bias": "Selection bias: in-training maximum minus the same checkpoint resampled, points",
        "question_bias": "Question bias: resampled minus cross-fitted, points",
        "paper": "Published numbers, percent",
    }
    notes = [
        "In-training: the highest validation whose training clock is within the budget. As a maximum of noisy scores "
        "it is too high on average. Resampled: that checkpoint on the same questions with new samples. Cross-fitted: "
        "one half of the test questions selects the checkpoint, the other half measures it, in training. It has no "
        "bias from the selection, but is slightly too low, because half of the questions select less well. Means "
        "over base models are over those that every method has; the column Seeds has their number. "
        f"Budgets: {results.budgets_listed}. {MISSING}: not measured (yet).",
        intervals_note(frame) + " An interval of an in-training maximum takes the selected validation as given.",
        *comparability(results),
    ]
    views = [score_view(results, frame, value, title) for value, title in titles.items() if value in frame]
    return Table("Scores within each budget (the paper's table 1)", frame, notes, DIGITS, views)


def score_frame(
    results: Results, methods: Mapping[str, list[str]], average_over: Mapping[str, list[str]]
) -> pd.DataFrame:
    """Mean over seeds with its interval for every planned score, base models (budget ``base``) first.

    Args:
        methods: which methods of each model; :data:`BASE` is one.
        average_over: the benchmarks of each model's rows of benchmark ``average``; none if fewer than two.

    Returns:
        One row per :data:`SCORE_KEY`: each of :data:`SCORES` in percent or points with ``_low``, ``_high``, the
        ``_unit`` of its interval and the number of its ``_seeds``. An average is missing unless all its benchmarks have
        a score. If seeds are base models, means are over the seeds of which every method has all these benchmarks.
    """
    rows = []
    for model, names in methods.items():
        for method in names:
            for budget in [BASE] if method == BASE else results.budget_seconds:
                averaged = {benchmark: [benchmark] for benchmark in results.benchmarks(model, [method])}
                if len(average_over.get(model, ())) > 1:
                    averaged[AVERAGE] = average_over[model]
                for name, over in averaged.items():
                    row: dict[str, float | str] = dict(zip(SCORE_KEY, (model, method, name, budget), strict=True))
                    for score in SCORES:
                        same = _same_seeds(results, model, names, over, budget, score)
                        estimate = None
                        if method != BASE or score == "resampled":  # no validation selects the untrained model
                            estimate = results.estimate(model, {(method, budget): 1.0}, over, score, same)
                        values = results.of(model, score)
                        seeds = min(len(values[b, method, budget]) for b in over) if estimate else 0
                        counted = min(seeds, len(same)) if same is not None else seeds
                        row |= estimate_columns(score, estimate) | {f"{score}_seeds": counted}
                    rows.append(row)
    columns = [f"{score}{end}" for score in SCORES for end in ("", "_low", "_high", "_unit", "_seeds")]
    return pd.DataFrame(rows, columns=[*SCORE_KEY, *columns])


def _same_seeds(
    results: Results, model: str, methods: list[str], benchmarks: list[str], budget: str, score: str
) -> set[int] | None:
    """The base models of which each of ``methods`` that has any has all ``benchmarks``; None if seeds are none."""
    values = results.of(model, score)
    budget = [*results.budget_seconds][-1] if budget == BASE else budget
    places = [[(b, method, BASE if method == BASE else budget) for b in benchmarks] for method in methods]
    there = [s for of in places if (s := set.intersection(*({*values.get(place, {})} for place in of)))]
    return set.intersection(*there) if there and results.experiment.draws_per_seed(model) else None


def with_paper(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """``frame`` with the published numbers, if the experiment can be compared with them."""
    published = results.paper_scores
    return frame if published is None else frame.merge(published, how="left", on=SCORE_KEY)


def score_view(results: Results, frame: pd.DataFrame, value: str, title: str) -> View:
    """The scores of one kind, a row per model and method; the average comes first, as the most important."""
    budgets = list(results.budget_seconds)
    shown = [b for b in (AVERAGE, *results.experiment.benchmarks) if b in set(frame["benchmark"])]
    places = [(b, budget) for b in shown for budget in budgets]
    trained, bias = frame[frame["method"] != BASE], value.endswith("_bias")
    # Best is who has the highest number at the shown decimal, if there are two to compare.
    at_decimal = trained[value].map(lambda v: round(v, 1))
    rivals = at_decimal.groupby([trained[key] for key in ("model", "benchmark", "budget")])
    best = (at_decimal == rivals.transform("max")) & (rivals.transform("count") > 1)
    texts = cells(trained.assign(best=best), SCORE_KEY, value, sign=bias, best=None if bias else "best")
    # Validation never sees the untrained model: its resampled score is shown in both views.
    of_base = value if value == "paper" else "resampled"
    base = cells(frame[frame["method"] == BASE], ["model", "benchmark"], of_base)
    rows: list[tuple[str, list[str]]] = []
    for model, spec in results.experiment.models.items():
        rows.append((Bold(spec.title), []))
        if not bias:
            once = [base.get((model, b), MISSING) if budget == budgets[0] else "" for b, budget in places]
            rows.append((results.method_title(BASE), ["", *once]))
        for method in results.main_methods(model):
            there = {*results.plans[model][method], AVERAGE}
            found = [texts.get((model, method, *place), MISSING) if place[0] in there else "" for place in places]
            rows.append((results.method_title(method), [seeds(frame, model, method, value, shown), *found]))
    heads = [(results.benchmark_title(b), results.experiment.budget_title(budget)) for b, budget in places]
    return View("Method", [("", "Seeds"), *heads], rows, title)


def seeds(frame: pd.DataFrame, model: str, method: str, value: str, benchmarks: list[str]) -> str:
    """The number of seeds in a row's scores; empty for published numbers."""
    if value == "paper":
        return ""
    of_row = frame[(frame["model"] == model) & (frame["method"] == method) & frame["benchmark"].isin(benchmarks)]
    return count_range(of_row[f"{value}_seeds"])
