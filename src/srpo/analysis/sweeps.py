"""What a swept setting does: scores and falls against its values, and how runs of one setting differ by seed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from srpo.analysis.curves import validation_curves
from srpo.analysis.grid import MISSING, Cell, Grid, Row, number
from srpo.analysis.load import Results
from srpo.analysis.logs import STRETCH, Logs
from srpo.analysis.scores import BASE, PROTOCOLS, Lookup, Scores, columns, combine, planned
from srpo.analysis.statistics import Estimate
from srpo.analysis.table import (
    Table,
    benchmark_title,
    budgets_listed,
    comparability,
    count_range,
    estimate_cell,
    intervals_note,
    listed,
    method_title,
)

FALL = "fall"
_FRAME = ["model", "method", "setting", "quantity", *columns("score", None), *columns("change", None), "seeds"]


@dataclass(frozen=True)
class Line:
    """One line of a dose-response: a method (of a model) at the values of the sweep.

    Attributes:
        model, method: what it is, under the name it had before it was swept.
        points: (value, model, method) as the runs are named. One point of value NaN is a method that is not swept.
        benchmarks: those that every point is planned on.
    """

    model: str
    method: str
    points: tuple[tuple[float, str, str], ...]
    benchmarks: tuple[str, ...]


def lines(results: Results) -> list[Line]:
    """The lines of a sweep: the untrained model first, then the methods in the matrix's order."""
    sweep = results.experiment.sweep
    if sweep is None:
        return []
    found: dict[tuple[str, str], list[tuple[float, str, str]]] = {}
    for model in results.experiment.models:
        for method in [BASE, *planned(results, model)]:
            variant = sweep.variants.get(model if sweep.kind == "models" else method)
            of = (variant.of if sweep.kind == "models" and variant else model, original(results, method))
            if variant or sweep.kind == "methods":  # a model that is not swept is no part of a sweep of models
                found.setdefault(of, []).append((variant.value if variant else math.nan, model, method))
    made = []
    for (model, method), points in found.items():
        planned_on = [_benchmarks(results, *point[1:]) for point in points]
        shared = tuple(b for b in planned_on[0] if all(b in there for there in planned_on))
        made.append(Line(model, method, tuple(points), shared))
    return made


def original(results: Results, name: str) -> str:
    """What a method or model was called before it was swept."""
    sweep = results.experiment.sweep
    return sweep.variants[name].of if sweep and name in sweep.variants else name


def original_title(results: Results, name: str) -> str:
    """Its title then."""
    experiment = results.experiment
    if experiment.sweep and name in experiment.sweep.titles:
        return experiment.sweep.titles[name]
    return experiment.models[name].title if name in experiment.models else method_title(results, name)


def values(results: Results) -> list[float]:
    """The values of the sweep in the file's order."""
    sweep = results.experiment.sweep
    return list(dict.fromkeys(variant.value for variant in sweep.variants.values())) if sweep else []


def _benchmarks(results: Results, model: str, method: str) -> list[str]:
    if method == BASE:
        trained = {b for benchmarks in planned(results, model).values() for b in benchmarks}
        return [b for name, b in results.experiment.bases() if name == model and b in trained]
    return planned(results, model)[method]


# ---------------------------------------------------------------- the frame


def sweep_frame(results: Results) -> pd.DataFrame:
    """Score within each budget (percent) and fall (points), averaged over benchmarks, of every point of every line.

    Returns:
        One row a line, setting and quantity (:data:`BASE`, a budget or :data:`FALL`): ``score`` with its interval,
        ``change`` against the line's first value with its own, and how many ``seeds`` are behind the score.
    """
    rows = []
    for line in lines(results):
        names = {str(i): point[1:] for i, point in enumerate(line.points)}
        budgets = [*results.experiment.training.budgets, FALL]
        for quantity in [BASE] if line.method == BASE else budgets:
            lookup = _lookup(results, names, quantity)
            for i, (value, *_) in enumerate(line.points):
                terms = {(str(i), quantity): 1.0}
                score = combine(lookup, terms, line.benchmarks)
                change = combine(lookup, terms | {("0", quantity): -1.0}, line.benchmarks) if i else None
                seeds = min((len(lookup(b, str(i), quantity)) for b in line.benchmarks), default=0)
                row = {"model": line.model, "method": line.method, "setting": value, "quantity": quantity}
                rows.append(row | columns("score", score) | columns("change", change) | {"seeds": seeds})
    return pd.DataFrame(rows, columns=_FRAME)


def _lookup(results: Results, points: dict[str, tuple[str, str]], quantity: str) -> Lookup:
    """A quantity's values by the points' numbers in the place of methods, so that models can be compared, too."""
    scores, logs = Scores.of(results), Logs.of(results)

    def lookup(benchmark: str, point: str, when: str) -> dict[int, np.ndarray]:
        model, method = points[point]
        if quantity == FALL:
            return logs.fall(model)(benchmark, method, "end")
        return scores.lookup(model, "resampled" if method == BASE else scores.protocol)(benchmark, method, when)

    return lookup


def sweep_curves(results: Results) -> pd.DataFrame:
    """avg@k at every validation of all runs of a sweep, as :func:`~srpo.analysis.curves.validation_curves` has it,
    with ``model`` and ``method`` as they were called before the sweep, and the ``setting`` that they had.
    """
    points = {point[1:]: (line, point[0]) for line in lines(results) if line.method != BASE for point in line.points}
    frame = validation_curves(results, {method for _, method in points})
    found = [points.get(key) for key in zip(frame["model"], frame["method"], strict=True)]
    frame = frame[[line is not None for line in found]]
    there = [line for line in found if line]
    return frame.assign(
        model=[line.model for line, _ in there],
        method=[line.method for line, _ in there],
        setting=[value for _, value in there],
    )


# ---------------------------------------------------------------- the table


def sweep_table(results: Results) -> Table:
    """Scores and falls against the values of the sweep, and the change from its first value at the last budget."""
    frame, experiment = sweep_frame(results), results.experiment
    budgets = list(experiment.training.budgets)
    records = {(r["model"], r["method"], str(r["setting"]), r["quantity"]): r for r in frame.to_dict("records")}
    body: list[Row] = []
    over = set()
    for model in dict.fromkeys(line.model for line in lines(results)):
        body.append(Row(original_title(results, model), heading=True))
        for line in [line for line in lines(results) if line.model == model]:
            over.add(line.benchmarks)
            for value, *_ in line.points:
                body.append(_row(results, line, value, budgets, records))
    heads = [("", "Seeds"), *(("Score, percent", budget) for budget in budgets), ("", "Fall, points")]
    heads.append((f"Change at {budgets[-1]}", "from the first value"))
    label = experiment.sweep.label if experiment.sweep else ""
    notes = [
        f"Score: {PROTOCOLS[Scores.of(results).protocol]}, averaged over the benchmarks "
        f"({' or '.join(listed(benchmark_title(results, b) for b in names) for names in sorted(over))}). "
        f"Budgets: {budgets_listed(results)}. {fall_note()} "
        f"Change: the score minus that of the line's first {label}; green: its interval lies above 0, red italics: "
        f"below. {MISSING}: not measured (yet).",
        intervals_note([*frame["score_unit"], *frame["change_unit"]]),
        *comparability(results),
    ]
    digits = {f"{name}{end}": 1 for name in ("score", "change") for end in ("", "_low", "_high")}
    grids = [Grid("Method", heads, body)] if body else []
    return Table("sweep", f"Scores by {label}", notes if body else [], frame, digits, grids)


def fall_note() -> str:
    """What a fall is."""
    return (
        f"Fall: points by which the last {STRETCH} validations lie below the best {STRETCH} in a row; noise alone "
        "makes a small one."
    )


def _row(results: Results, line: Line, value: float, budgets: list[str], records: dict[tuple, dict]) -> Row:
    """A method at one value; the untrained model's score stands in the place of all budgets."""
    sweep = results.experiment.sweep
    title = original_title(results, line.method)
    label = title if math.isnan(value) else f"{title}, {sweep.label} = {value:.12g}"
    found = {quantity: records.get((line.model, line.method, str(value), quantity)) for quantity in (*budgets, FALL)}
    if line.method == BASE:
        base = records[line.model, BASE, str(value), BASE]
        return Row(label, [Cell(""), _cell(base, "score", span=len(budgets)), Cell(""), Cell("")])
    last = found[budgets[-1]]
    change = _cell(last, "change", sign=True) if value != line.points[0][0] and not math.isnan(value) else Cell("")
    return Row(
        label,
        [
            Cell(count_range([last["seeds"]])),
            *(_cell(found[budget], "score") for budget in budgets),
            _cell(found[FALL], "score"),
            Cell(change.text, last["change_low"] > 0, last["change_high"] < 0, interval=change.interval),
        ],
    )


def _cell(record: dict, name: str, sign: bool = False, **looks: int) -> Cell:
    if math.isnan(record[name]):
        return Cell(MISSING, **looks)
    return estimate_cell(Estimate(record[name], record[f"{name}_low"], record[f"{name}_high"]), sign=sign, **looks)


# ---------------------------------------------------------------- seeds


def seeds_table(results: Results) -> Table:
    """How much the training seed decides: the score at the last budget of every seed, their spread, and beside it the
    interval that one seed alone would have been given.
    """
    scores, rows, body = Scores.of(results), [], []
    budget = list(results.experiment.training.budgets)[-1]
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
                row = {"model": model, "method": method, "benchmark": benchmark, "budget": budget}
                row |= {f"seed{seed}": means.get(seed, math.nan) for seed in seeds}
                row |= columns("mean", combine(lookup, {(method, budget): 1.0}, [benchmark]))
                row |= {"spread": spread, "one_seed_half_width": float(np.mean(half)) if half else math.nan}
                rows.append(row)
                mean = Cell(MISSING) if math.isnan(row["mean"]) else _cell(row, "mean")
                before = [Cell(number(row[f"seed{seed}"])) for seed in seeds]
                after = [Cell(number(row[name])) for name in ("spread", "one_seed_half_width")]
                label = f"{method_title(results, method)} · {benchmark_title(results, benchmark)}"
                body.append(Row(label, [*before, mean, *after]))
    names = ["model", "method", "benchmark", "budget", *(f"seed{seed}" for seed in seeds)]
    frame = pd.DataFrame(rows, columns=[*names, *columns("mean", None), "spread", "one_seed_half_width"])
    heads = [("Seed", str(seed)) for seed in seeds]
    heads += [("", "Mean"), ("", "Standard deviation"), ("", "± of one seed alone")]
    notes = [
        f"Percent within {budget} ({PROTOCOLS[scores.protocol]}). Standard deviation: between training seeds. "
        "Beside it half the 95 % interval over test questions that one seed alone is given, averaged over the seeds: "
        "it knows nothing of other seeds.",
        intervals_note(frame["mean_unit"]),
        *comparability(results),
    ]
    digits = {c: 1 for c in frame.columns if c not in ("model", "method", "benchmark", "budget", "mean_unit")}
    grids = [Grid("Method", heads, body)] if rows else []
    return Table("seeds", "Scores of each training seed", notes if rows else [], frame, digits, grids)


def _alone(lookup: Lookup, benchmark: str, method: str, budget: str, seed: int) -> Estimate | None:
    """The estimate from one seed as if there were no other."""
    return combine(lambda *key: {seed: lookup(*key)[seed]}, {(method, budget): 1.0}, [benchmark])
