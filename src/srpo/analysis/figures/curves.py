"""The data of the figures as tidy frames. A figure is drawn from its frame only; the frame is also written as CSV."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
from scipy import stats

from srpo.analysis.results import Results, RunKey, by_run
from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.estimates import LEVEL, PERCENT, Estimate

POINTS = 120
"""Maximum number of points per line. A thousand points look the same in print and make the page many megabytes."""

MOST_BANDS = 5
"""Methods whose intervals are drawn around their scores; more intervals would hide the lines."""

FEW_RUNS = 3
"""A mean of so few runs is drawn without its interval, which is several times as wide as the runs lie apart and
hides the other lines. Its data keep the interval."""

SMOOTHING = 10
"""Lines of step metrics are centred rolling means over one tenth of a run's steps."""

COLUMNS = ["model", "benchmark", "method", "series", "step", "clock", "value", "smooth", "low", "high", "unit", "seeds"]


@dataclass(frozen=True)
class Series:
    """A drawn step metric: ``factor * metric``; the metric of a branch is drawn only for methods that use the branch.

    ``bounds`` are the least and the largest possible value; its intervals stay within them.
    """

    metric: str
    factor: float = 1.0
    branch: str | None = None
    bounds: tuple[float, float] = (0.0, math.inf)


def clock_curves(results: Results, methods: Iterable[str]) -> pd.DataFrame:
    """The latest avg@k (percent) of each run at common times of the training clock, averaged over runs.

    Runs take different numbers of steps within a budget, so equal steps are not equal times. A line starts when every
    run has a validation. It goes on to the end of the longest run; a finished one keeps its last score, and ``seeds``
    counts the runs that are in each point.
    The intervals are pointwise, over seeds and questions, if there are several seeds.
    """
    chosen = {*methods}
    by_arm: dict[tuple[str, str, str], list[RunKey]] = {}
    for run in results.validation_logs:
        by_arm.setdefault(run[:3], []).append(run)
    lines = [_clock_line(results, runs, arm) for arm, runs in by_arm.items() if arm[2] in chosen]
    return _joined([line for line in lines if len(line)])


def _clock_line(results: Results, runs: list[RunKey], arm: tuple[str, str, str]) -> pd.DataFrame:
    """The mean over runs at the times of their validations and at the end."""
    end = min(max(results.budget_seconds.values()), max(results.run_rows[run]["clock"] for run in runs))
    times = np.unique(np.concatenate([results.validation_logs[run]["clock"] for run in runs]))
    times = times[times < end]
    rows = [_moment(time, runs, results) for time in [*times[:: max(1, -(-len(times) // POINTS))], end]]
    names = dict(zip(("model", "benchmark", "method"), arm, strict=True)) | {"series": ""}
    return pd.DataFrame([row | names for row in rows if row])


def _moment(moment: float, runs: list[RunKey], results: Results) -> dict | None:
    """The mean at one time of the clock; None if a run has no validation yet, or all were broken off."""
    scores = []
    for log in (results.validation_logs[run] for run in runs if results.reached(run, moment)):
        place = int(np.searchsorted(log["clock"].to_numpy(), moment, side="right")) - 1
        if place < 0:
            return None
        scores.append(log["question_scores"].iloc[place])
    if len({len(run) for run in scores}) != 1:
        return None  # none, or different test splits
    value = float(100 * np.mean([run.mean() for run in scores]))
    return {"clock": moment, "value": value, "smooth": value, **_band(scores), "seeds": len(scores)}


def _band(runs: list[np.ndarray]) -> dict[str, float | str]:
    """The interval of the mean over runs, in percent, as columns; the runs' scores are between 0 and 1."""
    estimate = contrast([[Arm(100 * np.array(runs))]], PERCENT)
    if not (estimate.has_interval and estimate.several_seeds):  # of one run, an interval says nothing about another
        return {"low": np.nan, "high": np.nan, "unit": ""}
    return {"low": estimate.low, "high": estimate.high, "unit": estimate.sampling_unit}


ALARM = "first alarm of a run"
"""The series of the marks in figure 3."""


def curves_with_alarms(results: Results, methods: Iterable[str]) -> pd.DataFrame:
    """:func:`clock_curves`, and a point where a run gave its first alarm, at its latest avg@k before (percent)."""
    frame, marks = clock_curves(results, chosen := {*methods}), []
    alarms = results.signals[results.signals["level"] == "alarm"].sort_values("step", kind="stable")
    for run, signals in by_run(alarms).items():
        if run[2] not in chosen or run not in results.validation_logs or run in results.repeated:
            continue
        first, log = signals.iloc[0], results.validation_logs[run]
        before = log[log["step"] <= first["step"]]
        if len(before):
            value = 100 * before["avg_at_k"].iloc[-1]
            names = dict(zip(("model", "benchmark", "method"), run, strict=False))
            place = {"step": first["step"], "clock": first["clock"], "value": value, "smooth": value}
            marks.append(names | place | {"series": ALARM, "seeds": 1})
    return _joined([frame, pd.DataFrame(marks)]) if marks else frame


@dataclass(frozen=True)
class ScoreLine:
    """A method's line in a panel of figure 3, as the drawn figure and the page show it.

    ``points`` has clock (seconds), value, low and high (percent; missing if no band is drawn); ``alarms`` has the
    marks of :data:`ALARM`.
    """

    method: str
    points: pd.DataFrame
    alarms: pd.DataFrame


def score_lines(results: Results, frame: pd.DataFrame, model: str, benchmark: str) -> list[ScoreLine]:
    """The lines of a panel, in the experiment's order, from the frame of :func:`curves_with_alarms`."""
    here, methods = frame[(frame["model"] == model) & (frame["benchmark"] == benchmark)], frame["method"].nunique()
    lines = []
    for method in results.experiment.methods:
        own = here[here["method"] == method]
        points, alarms = (own[own["series"] == series] for series in ("", ALARM))
        if len(own):
            lines.append(ScoreLine(method, as_drawn(points, methods > MOST_BANDS), alarms))
    return lines


def as_drawn(line: pd.DataFrame, bands_hide: bool = False) -> pd.DataFrame:
    """A line without the interval of few runs (:data:`FEW_RUNS`), or of any if its band would hide other lines."""
    return line.assign(low=np.nan, high=np.nan) if bands_hide or line["seeds"].max() <= FEW_RUNS else line


def untrained_scores(results: Results) -> dict[tuple[str, str], float]:
    """The mean avg@k of the untrained models (percent) by model and benchmark."""
    means = 100 * results.bases.groupby(["model", "benchmark"])["avg_at_k"].mean()
    return cast(dict[tuple[str, str], float], means.to_dict())


def metric_curves(results: Results, methods: Iterable[str], series: Mapping[str, Series]) -> pd.DataFrame:
    """Step metrics over training: the mean over seeds, and the mean of their rolling means (``smooth``).

    With several seeds, ``smooth`` has a 95 % interval over seeds.
    """
    lines = []
    for key, steps in _lines(results.steps, methods):
        branches = {None, *results.experiment.methods[key[2]].branches}
        for name, drawn in series.items():
            if drawn.metric not in steps or drawn.branch not in branches:
                continue
            runs = (
                steps[["seed", "step", "clock"]]
                .assign(value=drawn.factor * steps[drawn.metric])
                .dropna(subset=["value"])
            )
            if runs.empty:
                continue
            window = max(1, int(runs.groupby("seed")["step"].count().max()) // SMOOTHING)
            runs["smooth"] = runs.groupby("seed")["value"].transform(
                lambda values, window=window: values.rolling(window, center=True, min_periods=1).mean()
            )
            by_step = runs.groupby("step")
            line = by_step[["clock", "value", "smooth"]].mean().assign(seeds=by_step["seed"].count())
            # the steps that every seed has: runs end at other steps, and a mean over the longer ones would jump
            line = line[line["seeds"] == line["seeds"].max()]
            low, high = _over_seeds(line["smooth"], by_step["smooth"].std()[line.index], line["seeds"], drawn.bounds)
            names = dict(zip(("model", "benchmark", "method"), key, strict=True))
            unit = np.where(np.isnan(low), "", "seed")
            line = line.assign(low=low, high=high, unit=unit, series=name, **names).reset_index()
            lines.append(line.iloc[:: max(1, -(-len(line) // POINTS))])
    return _joined(lines)


def _over_seeds(
    mean: pd.Series, spread: pd.Series, count: pd.Series, bounds: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """The ends of 95 % intervals over seeds, within ``bounds``; NaN for a single seed.

    Student's t interval may leave the bounds. The interval of a share is that of scores (:attr:`Estimate.bounds`), that
    of a positive number the t interval of its logarithm, whose error is the relative error.
    """
    error = (spread / np.sqrt(count)).to_numpy()
    quantile = stats.t.ppf((1 + LEVEL) / 2, np.maximum(count - 1, 1))
    middle = mean.to_numpy()
    if math.isinf(bounds[1]):
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = np.exp(quantile * error / middle)
        return middle / factor, middle * factor
    inside = (middle > bounds[0]) & (middle < bounds[1])
    ends = [
        Estimate(m, error=e, dof=n - 1, bounds=bounds).interval() if there and e > 0 else (m + 0 * e, m + 0 * e)
        for m, e, n, there in zip(middle, error, count, inside, strict=True)
    ]
    return np.array([low for low, _ in ends]), np.array([high for _, high in ends])


def _lines(log: pd.DataFrame, methods: Iterable[str]) -> Iterable[tuple[tuple[str, str, str], pd.DataFrame]]:
    """The rows of each model, benchmark and method, with all seeds."""
    there = log[log["method"].isin(list(methods))]
    grouped = there.groupby(["model", "benchmark", "method"], sort=False)
    return cast(Iterable[tuple[tuple[str, str, str], pd.DataFrame]], grouped)


def _joined(lines: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(lines, ignore_index=True).reindex(columns=COLUMNS) if lines else pd.DataFrame(columns=COLUMNS)
