"""Small multiples: a grid of axes with one row per model and one column per benchmark, labels and legend."""

import textwrap
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from srpo.analysis.figures import style
from srpo.analysis.results import ABLATIONS, Results

Against = Literal["clock", "step"]
"""What time on the x axis is."""

POINTS = 120
"""Maximum number of points per line. A thousand points look the same in print and make the page many megabytes."""
MOST_BANDS = 5
"""Methods whose intervals are drawn around their scores; more intervals would hide the lines."""
FEW_RUNS = 3
"""A mean of so few runs is drawn without its interval, which is several times as wide as the runs lie apart and
hides the other lines. Its data keep the interval."""
COLUMNS = ["model", "benchmark", "method", "series", "step", "clock", "value", "smooth", "low", "high", "unit", "seeds"]
"""The columns of the data of lines."""

_HOUR = 3600.0
_MARKERS = 20  # about so many per line; hundreds would hide the line


class Panels:
    """A grid of axes for the planned runs: one row per model (or per model and method), one column per benchmark."""

    def __init__(self, title: str, results: Results, frame: pd.DataFrame, row_a_method: bool = False):
        self.results, self.frame = results, frame
        there = set(frame["method"])
        self.methods = [m for m in results.experiment.methods if m in there]
        plans = {model: results.plans[model] for model in results.experiment.models}
        self.rows: list[Any] = []
        for model, plan in plans.items():
            of_model = [m for m in self.methods if m in plan]
            if model in set(frame["model"]) or (of_model and not {*self.methods} <= {"srpo", *ABLATIONS}):
                self.rows += [(model, m) for m in of_model] if row_a_method else [model]
        self.styles = style.method_styles(results.experiment.methods)
        shown = {row[0] if row_a_method else row for row in self.rows}
        used = {b for model in shown for m in self.methods for b in plans[model].get(m, [])}
        self.benchmarks = [b for b in results.experiment.benchmarks if b in used]
        rows, columns = len(self.rows), len(self.benchmarks)
        self.figure = style.new_figure(min(12.0, max(6.0, 1.0 + 2.25 * columns)), 1.35 + 1.75 * rows, title)
        self.grid = self.figure.subplots(rows, columns, squeeze=False, sharey="row", sharex="col")

    def __iter__(self) -> Iterator[tuple[Axes, Any, str, pd.DataFrame]]:
        for i, row in enumerate(self.rows):
            model, method = row if isinstance(row, tuple) else (row, None)
            for j, benchmark in enumerate(self.benchmarks):
                axes = self.grid[i][j]
                here = self.frame[(self.frame["model"] == model) & (self.frame["benchmark"] == benchmark)]
                yield axes, model, benchmark, here[here["method"] == method] if method else here
                sns.despine(ax=axes)
                if i == 0:
                    axes.set_title(self.results.benchmark_title(benchmark))
                if not axes.lines:
                    axes.text(0.5, 0.5, "no data", transform=axes.transAxes, ha="center", color="#999999", size=8)

    def share_y(self, label: str) -> None:
        """Name the quantity on the left and the rows on the right."""
        for i, row in enumerate(self.rows):
            model, method = row if isinstance(row, tuple) else (row, None)
            self.grid[i][0].set_ylabel(label)
            names = [self.results.experiment.models[model].title] if len(self.results.experiment.models) > 1 else []
            names += [wrapped(self.results.method_title(method), 16)] if method else []
            name_row(self.grid[i][-1], "\n".join(names))

    def scores_y(self) -> None:
        """Limit the y axes to the range of scores; intervals may reach beyond it."""
        for axes in self.grid.flat:
            low, high = axes.get_ylim()
            axes.set_ylim(max(low, -3), min(high, 103))

    def time_axis(self, against: Against) -> None:
        """Label the x axis; the training clock in hours if it is long, with marks for the budgets."""
        for axes in self.grid[-1]:
            axes.set_xlabel("training step" if against == "step" else f"training clock, {clock_unit(self.results)[1]}")
            if against == "step":
                axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        if against == "step":
            return
        marks, end = budget_marks(self.results)
        highest = list(self.grid[0])
        for axes in highest:
            axes.set_title(axes.get_title(), pad=14)  # room for the budgets' names
        for axes in self.grid.flat:
            axes.set_xlim(0, end)
            for name, place in marks:
                axes.axvline(place, color="#BBBBBB", linestyle=":", linewidth=0.9, zorder=0)
                if axes in highest:
                    transform = axes.get_xaxis_transform()
                    about = {"ha": "center", "va": "bottom", "color": "#777777", "size": 7.5}
                    axes.text(place, 1.02, name, transform=transform, **about)

    def method_handles(self, markers: bool = False) -> list[Line2D]:
        """One legend entry per method."""
        handles = []
        for method in self.methods:
            options = self.styles[method] | ({} if markers else {"marker": ""})
            handles.append(Line2D([], [], label=self.results.method_title(method), **options))
        return handles


def joined(lines: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(lines, ignore_index=True).reindex(columns=COLUMNS) if lines else pd.DataFrame(columns=COLUMNS)


def plot(axes: Axes, line: pd.DataFrame, x: pd.Series, band: bool = True, **options: Any) -> None:
    """Draw a line, the band of its interval unless it has few runs, and faintly the values before smoothing."""
    if line.empty:
        return
    if not np.array_equal(line["value"], line["smooth"]):
        axes.plot(x, line["value"], color=options["color"], alpha=style.FAINT, linewidth=0.8)
    some = max(1, len(line) // _MARKERS)
    axes.plot(x, line["smooth"], markeredgecolor="white", markeredgewidth=0.4, markevery=some, **options)
    if band and line["seeds"].max() > FEW_RUNS and line["low"].notna().any():
        axes.fill_between(x, line["low"], line["high"], color=options["color"], alpha=style.BAND, linewidth=0)


def legend(figure: Figure, handles: list[Line2D]) -> None:
    """Draw one legend below the axes, with as many columns as fit."""
    entry = 0.55 + 0.075 * max(len(str(handle.get_label())) for handle in handles)  # inches
    columns = max(1, min(len(handles), 5, int(figure.get_figwidth() / entry)))
    figure.set_figheight(figure.get_figheight() + 0.2 * (-(-len(handles) // columns) - 1))
    by_row = [handle for column in range(columns) for handle in handles[column::columns]]  # matplotlib fills columns
    figure.legend(handles=by_row, loc="outside lower center", ncols=columns)


def clock_unit(results: Results) -> tuple[float, str]:
    """The unit of the training clock in figures: its length in seconds and its name; hours if the clock is long."""
    long = max(results.budget_seconds.values()) > 2 * _HOUR
    return (_HOUR, "h") if long else (1.0, "s")


def budget_marks(results: Results) -> tuple[list[tuple[str, float]], float]:
    """The short names of the budgets with their places on an axis of the clock (:func:`clock_unit`), and its end.

    Where all runs end before half of the last budget, the axis ends with them and later budgets have no mark.
    """
    (unit, _), budgets = clock_unit(results), results.budget_seconds
    last, longest = max(budgets.values()), results.runs["clock"].max()
    end = longest if longest < last / 2 else last
    names = {name: results.experiment.budget_title(name).removeprefix("budget ") for name in budgets}
    return [(names[name], s / unit) for name, s in budgets.items() if s <= end], 1.03 * end / unit


def name_row(axes: Axes, name: str) -> None:
    """Write a row's name at the right of its last panel."""
    name = "\n".join(wrapped(line, 20) for line in name.split("\n"))
    axes.annotate(name, (1.03, 0.5), xycoords="axes fraction", rotation=-90, ha="left", va="center", fontweight="bold")


def wrapped(title: str, width: int = 10) -> str:
    """Break a long title into lines, so that neighbouring titles do not overlap."""
    return "\n".join(textwrap.wrap(title, width, break_long_words=False, break_on_hyphens=False))
