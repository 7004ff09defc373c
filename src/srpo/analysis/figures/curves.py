"""The data of the figures as tidy frames. A figure is drawn from its frame only; the frame is also written as CSV."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from srpo.analysis.results.contrasts import LEVEL, PERCENT, Arm, contrast
from srpo.analysis.results.load import RUN_KEY, Results
from srpo.analysis.results.matrix import AVERAGE, BASE, planned
from srpo.analysis.results.sweeps import sweep_lines

POINTS = 120
"""Maximum number of points per line. A thousand points look the same in print and make the page many megabytes."""

SMOOTHING = 10
"""Lines of step metrics are centred rolling means over one tenth of a run's steps."""

COLUMNS = ["model", "benchmark", "method", "series", "step", "clock", "value", "smooth", "low", "high", "unit", "seeds"]


@dataclass(frozen=True)
class Series:
    """A drawn step metric: ``offset + factor * metric``; that of a branch only for methods that use the branch."""

    metric: str
    factor: float = 1.0
    offset: float = 0.0
    branch: str | None = None


def validation_curves(results: Results, methods: Iterable[str]) -> pd.DataFrame:
    """avg@k (percent) at every validation that all seeds have, with a pointwise 95 % interval over seeds and questions,
    or over questions if there is one seed.
    """
    lines = []
    for key, log in _lines(results.validations, methods):
        by_step = log.groupby("step")
        line = by_step.agg(clock=("clock", "mean"), value=("avg_at_k", "mean"), seeds=("seed", "count"))
        line = _of_all_seeds(line)
        line["value"] *= 100
        ends = [_band([list(scores)]) for step, scores in by_step["question_scores"] if step in line.index]
        names = dict(zip(("model", "benchmark", "method"), key, strict=True))
        line = line.assign(smooth=line["value"], series="", **names)
        lines.append(line.assign(**pd.DataFrame(ends, index=line.index)).reset_index())
    return _joined(lines)


def _band(benchmarks: list[list[np.ndarray]]) -> dict[str, float | str]:
    """The interval of the mean over benchmarks, in percent, as columns; the runs' scores are between 0 and 1."""
    if any(len({len(run) for run in runs}) > 1 for runs in benchmarks):
        return {"low": np.nan, "high": np.nan, "unit": ""}
    estimate = contrast([[Arm(100 * np.array(runs))] for runs in benchmarks], PERCENT)
    return {"low": estimate.low, "high": estimate.high, "unit": estimate.unit if estimate.has_interval else ""}


def sweep_curves(results: Results) -> pd.DataFrame:
    """avg@k at every validation of all runs of a sweep, with the columns of :func:`validation_curves`.

    ``model`` and ``method`` are the names before the sweep; ``setting`` is the value of the swept key.
    """
    trained = [line for line in sweep_lines(results) if line.method != BASE]
    points = {point[1:]: (line, point[0]) for line in trained for point in line.points}
    frame = validation_curves(results, {method for _, method in points})
    found = [points.get(key) for key in zip(frame["model"], frame["method"], strict=True)]
    frame = frame[[line is not None for line in found]]
    there = [line for line in found if line]
    return frame.assign(
        model=[line.model for line, _ in there],
        method=[line.method for line, _ in there],
        setting=[value for _, value in there],
    )


def average_curves(results: Results, methods: Iterable[str]) -> pd.DataFrame:
    """The latest avg@k (percent) at each time of the training clock, averaged over the benchmarks of all ``methods``.

    Intervals are those of :func:`validation_curves`. A line starts when every benchmark has a validation. It ends where
    a run stopped before the last budget.
    """
    logs = dict(list(results.validations.groupby(RUN_KEY, sort=False)))
    last = max(results.experiment.training.budget_seconds.values())
    ends = results.runs.set_index(RUN_KEY)["clock"].to_dict()
    moments = np.linspace(0, last, POINTS + 1)[1:]
    lines = []
    for model in results.experiment.models:
        plan = planned(results, model)
        there = [method for method in methods if method in plan]
        benchmarks = [b for b in results.experiment.benchmarks if there and all(b in plan[m] for m in there)]
        for method in there:
            cells = [[key for key in logs if key[:3] == (model, benchmark, method)] for benchmark in benchmarks]
            if not cells or not all(cells):
                continue
            rows = [_moment(moment, cells, logs, ends) for moment in moments]
            line = pd.DataFrame([row for row in rows if row])
            if len(line):
                lines.append(line.assign(model=model, benchmark=AVERAGE, method=method, series=""))
    return _joined(lines)


def _moment(moment: float, cells: list[list[tuple]], logs: Mapping, ends: Mapping) -> dict | None:
    """The average at one time of the clock; None if a benchmark has no validation yet."""
    groups = []
    for keys in cells:
        found = []
        for key in keys:
            place = np.searchsorted(logs[key]["clock"].to_numpy(), moment, side="right") - 1
            if place >= 0 and moment <= ends[key]:
                found.append(logs[key]["question_scores"].iloc[place])
        if not found:
            return None
        groups.append(found)
    if any(len({len(run) for run in runs}) > 1 for runs in groups):
        return None  # different test splits
    value = float(np.mean([100 * np.mean([run.mean() for run in runs]) for runs in groups]))
    return {"clock": moment, "value": value, "smooth": value, **_band(groups), "seeds": min(map(len, groups))}


def metric_curves(
    results: Results, methods: Iterable[str], series: Mapping[str, Series], log: bool = False
) -> pd.DataFrame:
    """Step metrics over training: the mean over seeds and that of their rolling means (``smooth``).

    With several seeds, ``smooth`` has a 95 % t interval over seeds.

    Args:
        log: the axis is logarithmic. Means and intervals are those of the logarithms, so that an interval does not
            reach below 0; values that are not above 0 are left out.
    """
    lines = []
    for key, steps in _lines(results.steps, methods):
        branches = {None, *results.experiment.methods[key[2]].routing.branches}
        for name, drawn in series.items():
            if drawn.metric not in steps or drawn.branch not in branches:
                continue
            runs = steps[["seed", "step", "clock"]].assign(value=drawn.offset + drawn.factor * steps[drawn.metric])
            runs = runs[runs["value"] > 0] if log else runs.dropna(subset=["value"])
            if runs.empty:
                continue
            window = max(1, int(runs.groupby("seed")["step"].count().max()) // SMOOTHING)
            runs["smooth"] = runs.groupby("seed")["value"].transform(
                lambda values, window=window: values.rolling(window, center=True, min_periods=1).mean()
            )
            if log:
                runs[["value", "smooth"]] = np.log(runs[["value", "smooth"]])
            by_step = runs.groupby("step")
            line = _of_all_seeds(by_step[["clock", "value", "smooth"]].mean().assign(seeds=by_step["seed"].count()))
            margin = _margin(by_step["smooth"].std()[line.index], line["seeds"])
            line = _line(line, key, margin, "seed", name)
            if log:
                drawn_columns = ["value", "smooth", "low", "high"]
                line[drawn_columns] = np.exp(line[drawn_columns])
            lines.append(line.iloc[:: max(1, -(-len(line) // POINTS))])
    return _joined(lines)


def _lines(log: pd.DataFrame, methods: Iterable[str]) -> Iterable[tuple[tuple[str, str, str], pd.DataFrame]]:
    """The rows of each model, benchmark and method, with all seeds."""
    there = log[log["method"].isin(list(methods))]
    return there.groupby(["model", "benchmark", "method"], sort=False)


def _of_all_seeds(line: pd.DataFrame) -> pd.DataFrame:
    """The steps that every seed has: runs end at other steps, and a mean over the longer ones would jump."""
    return line[line["seeds"] == line["seeds"].max()].copy()


def _margin(spread: pd.Series, count: pd.Series) -> pd.Series:
    """Half the width of a 95 % t interval; NaN for a single value."""
    return spread / np.sqrt(count) * stats.t.ppf((1 + LEVEL) / 2, np.maximum(count - 1, 1))


def _line(
    line: pd.DataFrame, key: tuple[str, str, str], margin: pd.Series, unit: str, series: str = ""
) -> pd.DataFrame:
    middle = line["smooth"] if "smooth" in line else line["value"]
    ends = {"smooth": middle, "low": middle - margin, "high": middle + margin}
    names = dict(zip(("model", "benchmark", "method"), key, strict=True))
    line = line.assign(**ends, series=series, **names)
    return line.assign(unit=np.where(line["low"].notna(), unit, "")).reset_index()


def _joined(lines: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(lines, ignore_index=True).reindex(columns=COLUMNS) if lines else pd.DataFrame(columns=COLUMNS)
