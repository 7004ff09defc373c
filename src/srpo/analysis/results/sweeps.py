"""A sweep as frames: score and late drop at each value of the swept setting."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from srpo.analysis.results.cross_fit import WINDOW
from srpo.analysis.results.estimates import PERCENT
from srpo.analysis.results.load import Results
from srpo.analysis.results.lookups import Lookup, combine, estimate_columns
from srpo.analysis.results.matrix import BASE, is_paired, planned
from srpo.analysis.results.run_logs import RunLogs
from srpo.analysis.results.scores import Scores
from srpo.analysis.results.titles import original_name

LATE_DROP = "late_drop"
"""Name of the quantity in the CSV, beside the budgets."""
_ESTIMATES = [*estimate_columns("score", None), *estimate_columns("change", None)]


@dataclass(frozen=True)
class Line:
    """One line of the figure: a method of a model at the values of the sweep.

    Attributes:
        model, method: the names before the sweep.
        points: (value, model, method) with the names of the runs. A method that is not swept has one point of value
            NaN.
        benchmarks: those on which every point is planned.
    """

    model: str
    method: str
    points: tuple[tuple[float, str, str], ...]
    benchmarks: tuple[str, ...]


def sweep_lines(results: Results) -> list[Line]:
    """The lines of a sweep: the untrained model first, then the methods in the matrix's order."""
    sweep = results.experiment.sweep
    if sweep is None:
        return []
    found: dict[tuple[str, str], list[tuple[float, str, str]]] = {}
    for model in results.experiment.models:
        for method in [BASE, *planned(results, model)]:
            variant = sweep.variants.get(model if sweep.kind == "models" else method)
            of = (variant.of if sweep.kind == "models" and variant else model, original_name(results, method))
            if variant or sweep.kind == "methods":  # in a sweep of models only the swept models are shown
                found.setdefault(of, []).append((variant.value if variant else math.nan, model, method))
    made = []
    for (model, method), points in found.items():
        planned_on = [_benchmarks(results, *point[1:]) for point in points]
        shared = tuple(b for b in planned_on[0] if all(b in there for there in planned_on))
        made.append(Line(model, method, tuple(points), shared))
    return made


def sweep_values(results: Results) -> list[float]:
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
    """Score within each budget (percent) and late drop (points) of every point of every line, averaged over benchmarks.

    Returns:
        One row per line, setting and quantity (:data:`BASE`, a budget or :data:`LATE_DROP`): ``score`` with its
        interval, ``change`` against the line's first value with its own, and the number of ``seeds`` of the score.
    """
    rows = []
    for line in sweep_lines(results):
        names = {str(i): point[1:] for i, point in enumerate(line.points)}
        budgets = [*results.experiment.training.budget_seconds, LATE_DROP]
        for quantity in [BASE] if line.method == BASE else budgets:
            lookup = _lookup(results, names, quantity)
            paired = all(is_paired(results, model) for _, model, _ in line.points)
            for i, (value, *_) in enumerate(line.points):
                terms = {(str(i), quantity): 1.0}
                bounds = None if quantity == LATE_DROP else PERCENT
                score = combine(lookup, terms, line.benchmarks, bounds, paired=paired)
                first = {("0", quantity): -1.0}
                change = combine(lookup, terms | first, line.benchmarks, paired=paired) if i else None
                seeds = min((len(lookup(b, str(i), quantity)) for b in line.benchmarks), default=0)
                row = {"model": line.model, "method": line.method, "setting": value, "quantity": quantity}
                row |= estimate_columns("score", score) | estimate_columns("change", change)
                rows.append(row | {"seeds": seeds})
    return pd.DataFrame(rows, columns=["model", "method", "setting", "quantity", *_ESTIMATES, "seeds"])


def _lookup(results: Results, points: dict[str, tuple[str, str]], quantity: str) -> Lookup:
    """The values of a quantity. Points are numbered and take the place of methods, so models can be compared too."""
    scores, logs = Scores.of(results), RunLogs.of(results)

    def lookup(benchmark: str, point: str, when: str) -> Mapping[int, np.ndarray]:
        model, method = points[point]
        if quantity == LATE_DROP:
            return logs.late_drop(model)(benchmark, method, "end")
        return scores.lookup(model, "resampled" if method == BASE else scores.protocol)(benchmark, method, when)

    return lookup


def late_drop_note() -> str:
    """Definition of the late drop."""
    return (
        f"Late drop: the number of points by which the last {WINDOW} validations are below the best {WINDOW} in a row. "
        "One half of the questions selects the best, the other half measures it; noise can make it negative."
    )
