"""Step metrics over training: their frame, and a figure with a line per method."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats

from srpo.analysis.figures.panels import FEW_RUNS, POINTS, Against, Panels, clock_unit, joined, legend, plot
from srpo.analysis.results import Results
from srpo.analysis.statistics.estimates import LEVEL, Estimate

SMOOTHING = 10
"""Lines of step metrics are centred rolling means over one tenth of a run's steps."""
SMOOTHED = (
    "Lines: centred rolling means over a tenth of the steps, and over seeds. Faint: single steps. Bands: pointwise "
    f"95 % intervals over training seeds; none of {FEW_RUNS} seeds or fewer."
)
"""How to read the lines, for captions."""


@dataclass(frozen=True)
class Series:
    """A drawn step metric: ``factor * metric``; the metric of a branch is drawn only for methods that use the branch.

    ``bounds`` are the least and the largest possible value; its intervals stay within them.
    """

    metric: str
    factor: float = 1.0
    branch: str | None = None
    bounds: tuple[float, float] = (0.0, math.inf)


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
    return joined(lines)


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


def draw_by_method(title: str, results: Results, frame: pd.DataFrame, label: str, against: Against = "step") -> Figure:
    """A metric with one panel per model and benchmark, and lines by method."""
    panels = Panels(title, results, frame)
    unit = clock_unit(results)[0] if against == "clock" else 1.0
    for axes, _, _, here in panels:
        for method in panels.methods:
            line = here[here["method"] == method]
            plot(axes, line, line[against] / unit, **panels.styles[method] | {"marker": ""})
    panels.share_y(label)
    panels.time_axis(against)
    legend(panels.figure, panels.method_handles())
    return panels.figure
