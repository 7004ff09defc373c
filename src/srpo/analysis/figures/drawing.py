"""Draws each kind of figure from a title and a frame that is not empty."""

from dataclasses import dataclass
from typing import Any

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from srpo.analysis.figures import style
from srpo.analysis.figures.curves import ALARM, Series, as_drawn, score_lines, untrained_scores
from srpo.analysis.figures.panels import Against, Panels, clock_unit, legend, name_row, plot, wrapped
from srpo.analysis.results import Results, records
from srpo.training.clock import PHASES

# ---------------------------------------------------------------- curves


_ALARM_STYLE: dict[str, Any] = {"linestyle": "none", "marker": "X", "markersize": 7, "markeredgecolor": "white"}


def draw_scores(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    """avg@k against the training clock, with the band of its interval."""
    panels, base = Panels(title, results, frame), untrained_scores(results)
    unit, _ = clock_unit(results)
    for axes, model, benchmark, _ in panels:
        for line in score_lines(results, frame, model, benchmark):
            look = panels.styles[line.method]
            plot(axes, line.points, line.points["clock"] / unit, **look)
            axes.plot(line.alarms["clock"] / unit, line.alarms["value"], **_ALARM_STYLE, color=look["color"])
        if (model, benchmark) in base:
            axes.axhline(base[model, benchmark], color=style.BASE_COLOUR, linestyle="--", linewidth=1)
    panels.share_y(f"avg@{results.experiment.training.validation.rollouts}, %")
    panels.scores_y()
    panels.time_axis("clock")
    handles = panels.method_handles(markers=True)
    if any((m, b) in base for m in panels.rows for b in panels.benchmarks):
        handles.append(Line2D([], [], color=style.BASE_COLOUR, linestyle="--", linewidth=1, label="untrained"))
    if (frame["series"] == ALARM).any():
        handles.append(Line2D([], [], color="#555555", label=ALARM, **_ALARM_STYLE))
    legend(panels.figure, handles)
    return panels.figure


@dataclass(frozen=True)
class LinesByMethod:
    """A figure of one step metric with a line per method."""

    metric: Series
    label: str
    against: Against = "step"

    @property
    def series(self) -> dict[str, Series]:
        """The metric, as :func:`metric_curves` takes it."""
        return {"": self.metric}

    def draw(self, title: str, results: Results, frame: pd.DataFrame) -> Figure:
        """One panel per model and benchmark, with lines by method."""
        panels = Panels(title, results, frame)
        unit = clock_unit(results)[0] if self.against == "clock" else 1.0
        for axes, _, _, here in panels:
            for method in panels.methods:
                line = as_drawn(here[here["method"] == method])
                plot(axes, line, line[self.against] / unit, **panels.styles[method] | {"marker": ""})
        panels.share_y(self.label)
        panels.time_axis(self.against)
        legend(panels.figure, panels.method_handles())
        return panels.figure


@dataclass(frozen=True)
class LinesBySeries:
    """A figure that compares step metrics with each other: one row per model and method, one line per series.

    ``styles`` are arguments of matplotlib, one per series. ``limits`` are the ends of the y axis.
    """

    series: dict[str, Series]
    styles: list[dict[str, Any]]
    label: str
    limits: tuple[float, float]

    def draw(self, title: str, results: Results, frame: pd.DataFrame) -> Figure:
        """One panel per model, method and benchmark, with lines by series."""
        panels = Panels(title, results, frame, row_a_method=True)
        there = set(frame["series"])
        styles = {name: own for name, own in zip(self.series, self.styles, strict=True) if name in there}
        for axes, _, _, here in panels:
            for name, options in styles.items():
                line = as_drawn(here[here["series"] == name])
                plot(axes, line, line["step"], **options)
            axes.set_ylim(*self.limits)
        panels.share_y(self.label)
        panels.time_axis("step")
        legend(panels.figure, [Line2D([], [], label=name, **options) for name, options in styles.items()])
        return panels.figure


# ---------------------------------------------------------------- seconds per step


def draw_step_seconds(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    """Mean seconds per step up to each budget, stacked by phase."""
    models = [m for m in results.experiment.models if m in set(frame["model"])]
    budgets = list(results.budget_seconds)
    bars = max(len(results.plans[model]) for model in models)
    upright = bars > 6  # variants of a method: their names would overlap side by side
    width = max(6.0, min(12.0, len(budgets) * (1.1 + 0.62 * bars)))
    figure = style.new_figure(width, 1.4 + (3.2 if upright else 2.0) * len(models), title)
    grid = figure.subplots(len(models), len(budgets), squeeze=False, sharey="row")
    for row, model in enumerate(models):
        methods = [m for m in results.plans[model] if m in set(frame.loc[frame["model"] == model, "method"])]
        for column, budget in enumerate(budgets):
            axes = grid[row][column]
            _stack(axes, frame[(frame["model"] == model) & (frame["budget"] == budget)], methods)
            names = [results.method_title(m) for m in methods]
            axes.set_xticks(range(len(methods)), names if upright else map(wrapped, names), rotation=90 * upright)
            axes.grid(axis="x", visible=False)
            sns.despine(ax=axes)
            if row == 0:
                axes.set_title(f"up to {results.experiment.budget_title(budget)}")
        grid[row][0].set_ylabel("seconds per step")
        if len(models) > 1:
            name_row(grid[row][-1], results.experiment.models[model].title)
        grid[row][0].set_ylim(0, grid[row][0].get_ylim()[1] * 1.08)
    drawn = [phase for phase in PHASES if frame[phase].sum() > 0]
    handles = [Patch(facecolor=style.PHASE_COLOURS[p], label=p.replace("_", " ")) for p in drawn]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _stack(axes: Axes, frame: pd.DataFrame, methods: list[str]) -> None:
    seconds = frame.set_index("method").reindex(methods)
    bottom = pd.Series(0.0, index=methods)
    for phase in PHASES:
        heights = seconds[phase].astype(float).fillna(0.0)
        colour = style.PHASE_COLOURS[phase]
        axes.bar(range(len(methods)), heights, 0.72, bottom=bottom, color=colour, edgecolor="white", linewidth=0.4)
        bottom += heights
    for i, row in enumerate(records(seconds)):
        mean, low, high = (row[f"step_seconds{end}"] for end in ("", "_low", "_high"))
        if pd.isna(mean):
            continue
        if row["step_seconds_unit"]:
            axes.errorbar(i, mean, [[mean - low], [high - mean]], color="#333333", linewidth=1, capsize=2)
        place = (i, high if row["step_seconds_unit"] else bottom.iloc[i])
        text = f"{mean:.{2 if mean < 10 else 1}f}"
        axes.annotate(text, place, (0, 2), textcoords="offset points", ha="center", size=8)
