"""The scores taken apart: the answers that are right, wrong, unreadable, or cut at the length limit."""

import pandas as pd

from srpo.analysis.results import BASE, RUN_KEY, Results, records
from srpo.analysis.tables.table import Bold, Table, View, interval, number
from srpo.ground.text import joined

PARTS = {"right": "Right", "wrong": "Wrong", "unreadable": "Unreadable", "cut": "Cut"}
CUT = 5.0
"""Percent; above it, how many answers are cut may explain a difference of scores."""


def table(results: Results) -> Table:
    frame = shares(results)
    rows: list[tuple[str, list[str]]] = []
    for (model, benchmark), group in frame.groupby(["model", "benchmark"], sort=False):
        rows.append((Bold(results.run_title(model, benchmark)), []))
        rows += [(results.method_title(r["method"]), [number(r[part]) for part in PARTS]) for r in records(group)]
    sampling, longest = results.experiment.evaluation, results.experiment.training.max_response_length
    notes = [
        "Percent of all answers of the resampled score, mean over seeds: untrained, and within the last budget. Of the "
        "others, some are cut at the limit, in some the reward finds no answer, and the rest is wrong. "
        f"The evaluation draws {sampling.rollouts} answers to each test question, of {longest} tokens at most, at "
        f"temperature {sampling.temperature:g} with top-p {sampling.top_p:g}."
    ]
    views = [View("Method", [*PARTS.values()], rows)] if rows else []
    return Table("Answers: right, wrong, unreadable, cut", frame, notes if rows else [], dict.fromkeys(PARTS, 1), views)


def shares(results: Results) -> pd.DataFrame:
    """A row per model, benchmark and method at the last budget, untrained ones (``base``) first.

    Returns:
        The number of ``seeds``, and each of :data:`PARTS` in percent of all answers; no rows if none were counted, as
        in evaluations of older versions.
    """
    *_, last = results.budget_seconds
    trained = results.evaluations[results.evaluations["budget"] == last]
    rows = pd.concat([results.bases, trained]).reindex(columns=[*RUN_KEY, "k", "questions", *PARTS])
    rows[[*PARTS]] = rows[[*PARTS]].astype(float).mul(100 / (rows["k"] * rows["questions"]), axis=0)
    arms = rows.dropna().groupby(["model", "benchmark", "method"], sort=False)
    frame = arms[[*PARTS]].mean()
    frame.insert(0, "seeds", arms.size())
    return results.in_order(frame.reset_index())


def sentences(results: Results) -> list[str]:
    """Where many answers are cut, and which methods end below their untrained model."""
    found = []
    for (model, benchmark), arms in shares(results).groupby(["model", "benchmark"], sort=False):
        if arms["cut"].max() > CUT:  # also where two of them are as far apart
            cut = joined([f"{results.method_title(r['method'])} {number(r['cut'])} %" for r in records(arms)])
            found.append(f"{results.run_title(model, benchmark)}, answers cut at the limit and so not right: {cut}.")
    *_, last = results.budget_seconds
    for model, plan in results.plans.items():
        for method, benchmarks in plan.items():
            terms, below = {(method, last): 1.0, (BASE, BASE): -1.0}, []
            for benchmark in benchmarks:
                change = results.estimate(model, terms, [benchmark], "end")
                if change is not None and change.value < 0:
                    ends = interval(change.low, change.high) if change.covers_runs else ""
                    below.append(f"{results.benchmark_title(benchmark)} ({number(change.value)} {ends}".strip() + ")")
            if below:
                name = f"{results.experiment.models[model].title} · {results.method_title(method)}"
                what = f"ends below its untrained model on {joined(below)}; points, last three validations."
                found.append(f"{name} {what}")
    return found
