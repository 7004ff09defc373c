"""The paper's figures and diagnostics, each drawn from a tidy frame: small multiples, a row a model, a column a
benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, NullFormatter

from srpo.analysis import style
from srpo.analysis.curves import Series, average_curves, metric_curves, validation_curves
from srpo.analysis.load import PHASES, Results, routed_methods
from srpo.analysis.run_tables import step_seconds
from srpo.analysis.score_tables import ablated
from srpo.analysis.scores import ABLATIONS, AVERAGE, BASE, PROTOCOLS, Scores, main_methods, planned
from srpo.analysis.sweeps import FALL, fall_note, original, original_title, sweep_curves, sweep_frame, values
from srpo.analysis.table import benchmark_title, budgets_listed, count_range, method_title
from srpo.contents import figures_of
from srpo.files import write_text

_HOUR = 3600.0
_MARKERS = 20  # a line at least; hundreds would hide it

Methods = Callable[[Results], list[str]]


@dataclass(frozen=True)
class FigureSpec:
    """A figure: ``data`` makes its frame, ``draw`` draws a frame that is not empty, ``caption`` describes it."""

    name: str
    title: str
    data: Callable[[Results], pd.DataFrame]
    draw: Callable[[FigureSpec, Results, pd.DataFrame], Figure]
    caption: Callable[[Results, pd.DataFrame], str]


@dataclass(frozen=True)
class Drawn:
    """A figure made: its caption and the frame it was drawn from, empty if there is nothing to show yet."""

    spec: FigureSpec
    frame: pd.DataFrame
    caption: str


@lru_cache(maxsize=1)
def prepare(results: Results) -> dict[str, Drawn]:
    """The frames and captions of the experiment's figures."""
    made = {}
    for name in figures_of(results.experiment):
        spec = FIGURES[name]
        frame = spec.data(results)
        made[name] = Drawn(spec, frame, spec.caption(results, frame))
    return made


def write_figures(results: Results, out_dir: Path) -> list[Path]:
    """Write every figure as PNG, SVG, CSV (what is drawn) and caption, and return the paths.

    A figure with nothing to show (yet) is written as a note that says so, so that the files the workflow expects
    always exist.
    """
    written: list[Path] = []
    with mpl.rc_context(style.rc()):
        for name, made in prepare(results).items():
            figure = made.spec.draw(made.spec, results, made.frame) if len(made.frame) else _note(made.spec, results)
            written += style.save(figure, Path(out_dir), name)
            texts = {"csv": csv_text(made.frame), "rst": f"{made.spec.title}. {made.caption}\n"}
            for kind, text in texts.items():
                written.append(Path(out_dir) / f"{name}.{kind}")
                write_text(written[-1], text)
    return written


def csv_text(frame: pd.DataFrame) -> str:
    """A figure's data with six significant digits, columns without any value left out."""
    kept = [c for c in frame.columns if frame.empty or (frame[c].notna() & (frame[c].astype(str) != "")).any()]
    return frame[kept].to_csv(index=False, lineterminator="\n", float_format="%.6g")


def _title(spec: FigureSpec, results: Results) -> str:
    """A figure says where it is from even without the report around it."""
    return f"{spec.title} · {results.experiment.title}"


def _note(spec: FigureSpec, results: Results) -> Figure:
    figure = style.new_figure(6, 1.2, _title(spec, results))
    figure.text(0.5, 0.4, "no data yet", ha="center", va="center", color="#777777")
    return figure


# ---------------------------------------------------------------- which methods


def _ablations(results: Results) -> list[str]:
    return [m for m in results.experiment.methods if m in ("srpo", *ABLATIONS)]


def _ablation_curves(results: Results) -> pd.DataFrame:
    """Of the models that have an ablation to compare with."""
    frame = validation_curves(results, _ablations(results))
    models = [model for model in results.experiment.models if ablated(results, model)]
    return frame[frame["model"].isin(models)]


def _sdpo_variants(results: Results) -> list[str]:
    methods = [m for m in ("sdpo", "sdpo_failed_only", "sdpo_correct_only") if m in results.experiment.methods]
    return methods if len(methods) > 1 else []


def _both_baselines(results: Results) -> list[str]:
    return [m for m in ("grpo", "sdpo") if m in results.experiment.methods]


def _all(results: Results) -> list[str]:
    return list(results.experiment.methods)


def _taught(results: Results) -> list[str]:
    return [name for name, method in results.experiment.methods.items() if method.routing.needs_teacher]


def _distilling(results: Results) -> list[str]:
    """Methods with a distillation loss; the mix of advantages has none."""
    return [name for name, method in results.experiment.methods.items() if "sdpo" in method.routing.branches]


def _weighted(results: Results) -> list[str]:
    return [name for name, method in results.experiment.methods.items() if method.entropy_beta > 0]


def _routed(results: Results) -> list[str]:
    return routed_methods(results.experiment)


# ---------------------------------------------------------------- curves


def _draw_scores(spec: FigureSpec, results: Results, frame: pd.DataFrame) -> Figure:
    """avg@k against the training clock, in a band of its interval."""
    panels = _Panels(spec, results, frame)
    base = results.bases.set_index(["model", "benchmark"])["avg_at_k"].to_dict()
    unit = _clock_unit(results)[0]
    averaged = set(frame["benchmark"]) == {AVERAGE}
    for axes, model, benchmark, here in panels:
        for method in panels.methods:
            line = here[here["method"] == method]
            look = panels.looks[method] | ({"marker": ""} if averaged else {})
            _plot(axes, line, line["clock"] / unit, **look)
        if (model, benchmark) in base:
            axes.axhline(100 * base[model, benchmark], color=style.BASE_COLOUR, linestyle="--", linewidth=1)
    panels.share_y(f"avg@{results.experiment.training.validation.rollouts}, %")
    panels.clock_axis()
    base_line = Line2D([], [], color=style.BASE_COLOUR, linestyle="--", linewidth=1, label="Base")
    shown = any((m, b) in base for m in panels.rows for b in panels.benchmarks)
    panels.legend([*panels.method_handles(markers=not averaged), *([base_line] if shown else [])])
    return panels.figure


@dataclass(frozen=True)
class _Metrics:
    """How a figure of step metrics looks: one line a method and series; several series differ in their dash."""

    series: dict[str, Series]
    label: str
    against: str = "step"
    log: bool = False

    def draw(self, spec: FigureSpec, results: Results, frame: pd.DataFrame) -> Figure:
        panels = _Panels(spec, results, frame)
        unit = _clock_unit(results)[0] if self.against == "clock" else 1.0
        dashes = dict(zip(self.series, style.SERIES_DASHES, strict=False))
        for axes, _, _, here in panels:
            for method in panels.methods:
                for series in self.series:
                    line = here[(here["method"] == method) & (here["series"] == series)]
                    look = panels.looks[method] | {"marker": ""}
                    look |= {"linestyle": dashes[series]} if len(dashes) > 1 else {}
                    _plot(axes, line, line[self.against] / unit, len(dashes) == 1, **look)
        if self.log:
            panels.log_y()
        panels.share_y(self.label)
        if self.against == "clock":
            panels.clock_axis()
        else:
            panels.label_x("training step")
        handles = panels.method_handles(dashes=len(dashes) == 1)
        if len(dashes) > 1:
            handles += [Line2D([], [], color="#555555", linestyle=dash, label=name) for name, dash in dashes.items()]
        panels.legend(handles)
        return panels.figure


@dataclass(frozen=True)
class _Parts:
    """How a figure of step metrics looks that are compared with each other: a row a model and method, a look a series.

    ``looks`` are as matplotlib takes them; ``limits`` are of the y axis, by default what the lines need.
    """

    series: dict[str, Series]
    looks: list[dict[str, Any]]
    label: str
    limits: tuple[float, float] | None = None
    log: bool = False

    def draw(self, spec: FigureSpec, results: Results, frame: pd.DataFrame) -> Figure:
        panels = _Panels(spec, results, frame, row_a_method=True)
        looks = dict(zip(self.series, self.looks, strict=True))
        for axes, _, _, here in panels:
            for name, look in looks.items():
                line = here[here["series"] == name]
                _plot(axes, line, line["step"], **look)
            if self.limits:
                axes.set_ylim(*self.limits)
        if self.log:
            panels.log_y()
        panels.share_y(self.label)
        panels.label_x("training step")
        panels.legend([Line2D([], [], label=name, **look) for name, look in looks.items()])
        return panels.figure


# ---------------------------------------------------------------- seconds a step


def _draw_step_seconds(spec: FigureSpec, results: Results, frame: pd.DataFrame) -> Figure:
    """Mean seconds a step up to each budget, stacked by phase."""
    models = [m for m in results.experiment.models if m in set(frame["model"])]
    budgets = list(results.experiment.training.budgets)
    bars = max(len(planned(results, model)) for model in models)
    upright = bars > 6  # the variants of a sweep: side by side their names would touch
    width = max(6.0, min(12.0, len(budgets) * (1.1 + 0.62 * bars)))
    figure = style.new_figure(width, 1.4 + (3.2 if upright else 2.0) * len(models), _title(spec, results))
    grid = figure.subplots(len(models), len(budgets), squeeze=False, sharey="row")
    for row, model in enumerate(models):
        methods = [m for m in planned(results, model) if m in set(frame.loc[frame["model"] == model, "method"])]
        for column, budget in enumerate(budgets):
            axes = grid[row][column]
            _stack(axes, frame[(frame["model"] == model) & (frame["budget"] == budget)], methods)
            names = [method_title(results, m) for m in methods]
            axes.set_xticks(range(len(methods)), names if upright else map(_wrapped, names), rotation=90 * upright)
            axes.grid(axis="x", visible=False)
            sns.despine(ax=axes)
            if row == 0:
                axes.set_title(f"up to {budget}")
        grid[row][0].set_ylabel("seconds a step")
        _name_row(grid[row][-1], results.experiment.models[model].title)
        grid[row][0].set_ylim(0, grid[row][0].get_ylim()[1] * 1.08)
    handles = [Patch(facecolor=style.PHASE_COLOURS[p], label=p.replace("_", " ")) for p in PHASES]
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
    for i, row in enumerate(seconds.itertuples()):
        if pd.isna(row.step_seconds):
            continue
        if row.step_seconds_unit:
            ends = [[row.step_seconds - row.step_seconds_low], [row.step_seconds_high - row.step_seconds]]
            axes.errorbar(i, row.step_seconds, ends, color="#333333", linewidth=1, capsize=2)
        text = f"{row.step_seconds:.{2 if row.step_seconds < 10 else 1}f}"
        place = (i, row.step_seconds_high if row.step_seconds_unit else bottom.iloc[i])
        axes.annotate(text, place, (0, 2), textcoords="offset points", ha="center", size=8)


# ---------------------------------------------------------------- sweeps


def _draw_response(spec: FigureSpec, results: Results, frame: pd.DataFrame) -> Figure:
    """Scores within each budget and falls against the values of the sweep, which stand at equal distances."""
    rows = list(dict.fromkeys(frame["model"]))
    quantities = [q for q in (*results.experiment.training.budgets, FALL) if q in set(frame["quantity"])]
    quantities = quantities or list(results.experiment.training.budgets)
    width = min(12.0, 1.2 + 2.6 * len(quantities))
    figure = style.new_figure(width, 1.5 + 2.2 * len(rows), _title(spec, results))
    grid = figure.subplots(len(rows), len(quantities), squeeze=False, sharex=True)
    places = {value: i for i, value in enumerate(values(results))}
    looks = _swept_looks(results, frame)
    for row, model in enumerate(rows):
        for column, quantity in enumerate(quantities):
            axes = grid[row][column]
            here = frame[(frame["model"] == model) & frame["quantity"].isin([quantity, *([BASE] * (quantity != FALL))])]
            for i, method in enumerate(looks):
                line = here[here["method"] == method]
                shift = 0.09 * (i - (len(looks) - 2) / 2) * (method != BASE)  # bars would hide each other
                _respond(axes, line, [places.get(v, np.nan) + shift for v in line["setting"]], looks[method])
            if quantity != FALL and column:
                axes.sharey(grid[row][0])
                axes.tick_params(labelleft=False)
            if row == 0:
                axes.set_title("fall" if quantity == FALL else f"within {quantity}")
            axes.set_xticks(range(len(places)), [f"{value:g}" for value in places])
            axes.set_xlim(-0.5, len(places) - 0.5)
            axes.grid(axis="x", visible=False)
            sns.despine(ax=axes)
        grid[row][0].set_ylabel("score, %")
        if quantities[-1] == FALL:
            grid[row][-1].set_ylabel("points")
        if len(rows) > 1:
            _name_row(grid[row][-1], original_title(results, model))
    for axes in grid[-1]:
        axes.set_xlabel(results.experiment.sweep.label)
    handles = [Line2D([], [], label=original_title(results, method), **look) for method, look in looks.items()]
    _legend(figure, handles)
    return figure


def _respond(axes: Axes, line: pd.DataFrame, x: list[float], look: dict[str, Any]) -> None:
    """A line with the intervals of its points; what is not swept has no place on the axis and goes across."""
    if line.empty:
        return
    if line["setting"].isna().all():
        point = line.iloc[0]
        axes.axhline(point["score"], **look | {"marker": ""})
        if point["score_unit"] and "marker" in look:
            axes.axhspan(point["score_low"], point["score_high"], color=look["color"], alpha=style.BAND, linewidth=0)
        return
    axes.plot(x, line["score"], **look)
    if "marker" in look:
        ends = [line["score"] - line["score_low"], line["score_high"] - line["score"]]
        axes.errorbar(x, line["score"], ends, fmt="none", ecolor=look["color"], elinewidth=1, capsize=2)


def _draw_sweep_curves(spec: FigureSpec, results: Results, frame: pd.DataFrame) -> Figure:
    """A column a value, a row a model and benchmark; methods that are not swept are the same in all columns."""
    rows = list(dict.fromkeys(zip(frame["model"], frame["benchmark"], strict=True)))
    sweep, columns = results.experiment.sweep, values(results)
    width, height = min(12.0, max(6.0, 1.0 + 2.25 * len(columns))), 1.35 + 1.9 * len(rows)
    figure = style.new_figure(width, height, _title(spec, results))
    grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey="row")
    looks = _swept_looks(results, frame)
    unit, name = _clock_unit(results)
    budgets = results.experiment.training.budgets
    for i, (model, benchmark) in enumerate(rows):
        of_row = frame[(frame["model"] == model) & (frame["benchmark"] == benchmark)]
        for j, value in enumerate(columns):
            axes, here = grid[i][j], of_row[(of_row["setting"] == value) | of_row["setting"].isna()]
            for method, look in looks.items():
                line = here[here["method"] == method]
                _plot(axes, line, line["clock"] / unit, **look)
            for seconds in budgets.values():
                axes.axvline(seconds / unit, color="#BBBBBB", linestyle=":", linewidth=0.9, zorder=0)
            axes.set_xlim(0, 1.03 * max(budgets.values()) / unit)
            sns.despine(ax=axes)
            if i == 0:
                axes.set_title(f"{sweep.label} = {value:g}")
            if i == len(rows) - 1:
                axes.set_xlabel(f"training clock, {name}")
        grid[i][0].set_ylabel(f"avg@{results.experiment.training.validation.rollouts}, %")
        title = benchmark_title(results, benchmark)
        several = len({model for model, _ in rows}) > 1
        _name_row(grid[i][-1], f"{original_title(results, model)}\n{title}" if several else title)
    handles = [Line2D([], [], label=original_title(results, method), **look) for method, look in looks.items()]
    _legend(figure, handles)
    return figure


# ---------------------------------------------------------------- panels


class _Panels:
    """A grid of axes, one row a model (or a model and method), one column a benchmark, for what is planned."""

    def __init__(self, spec: FigureSpec, results: Results, frame: pd.DataFrame, row_a_method: bool = False):
        self.results, self.frame = results, frame
        there = set(frame["method"])
        self.methods = [m for m in results.experiment.methods if m in there]
        plans = {model: planned(results, model) for model in results.experiment.models}
        self.rows: list[Any] = []
        for model, plan in plans.items():
            of_model = [m for m in self.methods if m in plan]
            if model in set(frame["model"]) or (of_model and not {*self.methods} <= {"srpo", *ABLATIONS}):
                self.rows += [(model, m) for m in of_model] if row_a_method else [model]
        self.looks = _looks(results)
        if set(frame["benchmark"]) == {AVERAGE}:
            self.benchmarks = [AVERAGE]
        else:
            shown = {row[0] if row_a_method else row for row in self.rows}
            used = {b for model in shown for m in self.methods for b in plans[model].get(m, [])}
            self.benchmarks = [b for b in results.experiment.benchmarks if b in used]
        # One column: models side by side, so that the page is not half empty.
        self.turned = self.benchmarks == [AVERAGE]
        rows, columns = (1, len(self.rows)) if self.turned else (len(self.rows), len(self.benchmarks))
        width = min(12.0, max(6.0, 1.0 + (4.2 if self.turned else 2.25) * columns))
        self.figure = style.new_figure(width, 1.35 + (2.4 if self.turned else 1.75) * rows, _title(spec, results))
        grid = self.figure.subplots(rows, columns, squeeze=False, sharey="row", sharex="col")
        self.grid = grid.T if self.turned else grid

    def __iter__(self) -> Iterator[tuple[Axes, Any, str, pd.DataFrame]]:
        for i, row in enumerate(self.rows):
            model, method = row if isinstance(row, tuple) else (row, None)
            for j, benchmark in enumerate(self.benchmarks):
                axes = self.grid[i][j]
                here = self.frame[(self.frame["model"] == model) & (self.frame["benchmark"] == benchmark)]
                yield axes, model, benchmark, here[here["method"] == method] if method else here
                sns.despine(ax=axes)
                if self.turned:
                    axes.set_title(self.results.experiment.models[model].title)
                elif i == 0:
                    axes.set_title(benchmark_title(self.results, benchmark))
                if not axes.lines:
                    axes.text(0.5, 0.5, "no data yet", transform=axes.transAxes, ha="center", color="#999999", size=8)

    def share_y(self, label: str) -> None:
        """Name the quantity on the left and the rows on the right."""
        if self.turned:
            self.grid[0][0].set_ylabel(f"{label}, average")
            return
        for i, row in enumerate(self.rows):
            model, method = row if isinstance(row, tuple) else (row, None)
            name = self.results.experiment.models[model].title
            self.grid[i][0].set_ylabel(label)
            _name_row(
                self.grid[i][-1], f"{name}\n{_wrapped(method_title(self.results, method), 16)}" if method else name
            )

    def log_y(self) -> None:
        """Logarithmic axes as high as the lines need: the lower ends of bands may lie below 0."""
        for row in self.grid:
            heights = [value for axes in row for line in axes.lines for value in line.get_ydata() if value > 0]
            for axes in row if heights else ():
                axes.set_yscale("log")
                narrow = max(heights) < 100 * min(heights)
                axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if narrow else (1,)))
                axes.yaxis.set_major_formatter("{x:g}")
                axes.yaxis.set_minor_formatter(NullFormatter())
                axes.set_ylim(min(heights) / 1.3, max(heights) * 1.3)

    def _lowest(self) -> Iterable[Axes]:
        return self.grid[:, 0] if self.turned else self.grid[-1]

    def label_x(self, label: str) -> None:
        """Name the x axis below the lowest row."""
        for axes in self._lowest():
            axes.set_xlabel(label)

    def clock_axis(self) -> None:
        """Count the training clock in hours if it is long, and mark the budgets."""
        clock = self.results.experiment.training
        unit, name = _clock_unit(self.results)
        self.label_x(f"training clock, {name}")
        highest = list(self.grid[:, 0] if self.turned else self.grid[0])
        for axes in highest:
            axes.set_title(axes.get_title(), pad=14)  # room for the budgets' names
        for axes in self.grid.flat:
            axes.set_xlim(0, 1.03 * max(clock.budgets.values()) / unit)
            for budget, seconds in clock.budgets.items():
                axes.axvline(seconds / unit, color="#BBBBBB", linestyle=":", linewidth=0.9, zorder=0)
                if axes in highest:
                    place = (seconds / unit, 1.02)
                    transform = axes.get_xaxis_transform()
                    axes.text(*place, budget, transform=transform, ha="center", va="bottom", color="#777777", size=7.5)

    def method_handles(self, markers: bool = False, dashes: bool = True) -> list[Line2D]:
        """One legend entry a method."""
        handles = []
        for method in self.methods:
            look = self.looks[method] | ({} if markers else {"marker": ""}) | ({} if dashes else {"linestyle": "-"})
            handles.append(Line2D([], [], label=method_title(self.results, method), **look))
        return handles

    def legend(self, handles: list[Line2D]) -> None:
        """One legend for the figure, below the panels."""
        _legend(self.figure, handles)


def _plot(axes: Axes, line: pd.DataFrame, x: pd.Series, faint: bool = True, **look: Any) -> None:
    """A line in its interval's band, with what was smoothed away behind it if ``faint``."""
    if line.empty:
        return
    if faint and not np.array_equal(line["value"], line["smooth"]):
        axes.plot(x, line["value"], color=look["color"], alpha=style.FAINT, linewidth=0.8)
    some = max(1, len(line) // _MARKERS)
    axes.plot(x, line["smooth"], markeredgecolor="white", markeredgewidth=0.4, markevery=some, **look)
    if line["low"].notna().any():
        axes.fill_between(x, line["low"], line["high"], color=look["color"], alpha=style.BAND, linewidth=0)


def _legend(figure: Figure, handles: list[Line2D]) -> None:
    """One legend below everything, in as many columns as fit."""
    entry = 0.55 + 0.075 * max(len(handle.get_label()) for handle in handles)  # inches
    columns = max(1, min(len(handles), 5, int(figure.get_figwidth() / entry)))
    figure.set_figheight(figure.get_figheight() + 0.2 * (-(-len(handles) // columns) - 1))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _looks(results: Results) -> dict[str, dict[str, Any]]:
    """How each method's line looks, the variants of a sweep as shades of the method they are of."""
    sweep = results.experiment.sweep
    variants = {name: v.of for name, v in sweep.variants.items()} if sweep and sweep.kind == "methods" else {}
    return style.method_looks(results.experiment.methods, variants)


def _swept_looks(results: Results, frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """How the lines of ``frame`` look, under the names from before the sweep."""
    methods = dict.fromkeys(original(results, method) for method in results.experiment.methods)
    looks = style.method_looks(methods, {})
    looks[BASE] = {"color": style.BASE_COLOUR, "linestyle": "--", "linewidth": 1}
    return {method: look for method, look in looks.items() if method in set(frame["method"])}


def _clock_unit(results: Results) -> tuple[float, str]:
    long = max(results.experiment.training.budgets.values()) > 2 * _HOUR
    return (_HOUR, "h") if long else (1.0, "s")


def _name_row(axes: Axes, name: str) -> None:
    name = "\n".join(_wrapped(line, 20) for line in name.split("\n"))
    axes.annotate(name, (1.03, 0.5), xycoords="axes fraction", rotation=-90, ha="left", va="center", fontweight="bold")


def _wrapped(title: str, width: int = 10) -> str:
    """Break a long title over lines, so that neighbours do not touch."""
    lines, current = [], ""
    for word in title.split():
        if current and len(current) + len(word) >= width:
            lines.append(current)
            current = word
        else:
            current = f"{current} {word}".strip()
    return "\n".join([*lines, current])


# ---------------------------------------------------------------- captions


def _bands(frame: pd.DataFrame) -> str:
    """From how many seeds lines are, and what their bands are."""
    if frame.empty:
        return ""
    seeds = count_range(frame["seeds"])
    lines = "One seed a line" if seeds == "1" else f"Lines are means over {seeds} seeds"
    units = {unit for unit in frame["unit"] if unit}
    over = {"seed": "training seeds", "question": "test questions"}
    bands = " or ".join(text for unit, text in over.items() if unit in units)
    return f"{lines}; bands are pointwise 95 % t intervals over {bands}." if bands else f"{lines}, no intervals."


_SMOOTHED = "Lines are centred rolling means over a tenth of the steps."


def _clock_note(results: Results) -> str:
    return f"Dotted verticals: the budgets ({budgets_listed(results)})."


def _score_caption(what: str, results: Results, frame: pd.DataFrame) -> str:
    k = results.experiment.training.validation.rollouts
    return (
        f"{what}: mean reward over {k} samples of each test question (avg@{k}) at every in-training validation, "
        f"against the training clock. Dashed: the untrained model. {_clock_note(results)} {_bands(frame)}"
    ).strip()


def _average_caption(what: str, results: Results, frame: pd.DataFrame) -> str:
    k = results.experiment.training.validation.rollouts
    return (
        f"{what}: at each moment of the training clock the latest avg@{k}, averaged over the benchmarks, from when all "
        f"have one. {_clock_note(results)} {_bands(frame)}"
    ).strip()


def _metric_caption(what: str, faint: bool, clock: bool, results: Results, frame: pd.DataFrame) -> str:
    smoothed = f"{_SMOOTHED} Faint: single steps." if faint else _SMOOTHED
    return " ".join(filter(None, (what, smoothed, _clock_note(results) if clock else "", _bands(frame))))


def _step_seconds_caption(results: Results, frame: pd.DataFrame) -> str:
    bars = "Bars: 95 % t intervals over training seeds." if (frame["step_seconds_unit"] == "seed").any() else ""
    seeds = f"From {count_range(frame['seeds'])} seeds." if len(frame) else ""
    return (
        f"Seconds of the {results.experiment.training.clock.kind} training clock a step, averaged over the steps up to "
        "each budget and over the benchmarks on which every method of the model has reached it, by phase. "
        f"{seeds} {bars}"
    ).strip()


def _response_caption(results: Results, frame: pd.DataFrame) -> str:
    if frame.empty:
        return ""
    trained = frame[frame["method"] != BASE]
    over = {
        "seed": "training seeds (t)",
        "question": "test questions (bootstrap; not another training seed)",
        "benchmark": "benchmarks (t)",
    }
    bars = " or ".join(text for unit, text in over.items() if unit in set(trained["score_unit"]))
    seeds = count_range(trained["seeds"])
    return (
        f"Score within each budget ({PROTOCOLS[Scores.of(results).protocol]}) and fall, averaged over the benchmarks, "
        f"against {results.experiment.sweep.label}, whose values stand at equal distances. {fall_note()} "
        f"Dashed grey: the untrained model. From {seeds} {'seed' if seeds == '1' else 'seeds'} a point. "
        + (f"Bars: 95 % intervals over {bars}." if bars else "No intervals.")
    )


def _sweep_curves_caption(results: Results, frame: pd.DataFrame) -> str:
    if frame.empty:
        return ""
    k = results.experiment.training.validation.rollouts
    return (
        f"avg@{k} at every in-training validation, against the training clock, a column a value of "
        f"{results.experiment.sweep.label}. {_clock_note(results)} {_bands(frame)}"
    )


# ---------------------------------------------------------------- the figures


def _scores(name: str, title: str, methods: Methods, what: str) -> FigureSpec:
    data = lambda results: validation_curves(results, methods(results))  # noqa: E731
    return FigureSpec(name, title, data, _draw_scores, partial(_score_caption, what))


def _averages(name: str, title: str, methods: Methods, what: str) -> FigureSpec:
    data = lambda results: average_curves(results, methods(results))  # noqa: E731
    return FigureSpec(name, title, data, _draw_scores, partial(_average_caption, what))


def _metrics(name: str, title: str, methods: Methods, looks: _Metrics | _Parts, what: str) -> FigureSpec:
    data = lambda results: metric_curves(results, methods(results), looks.series)  # noqa: E731
    faint = isinstance(looks, _Parts) or len(looks.series) == 1
    clock = isinstance(looks, _Metrics) and looks.against == "clock"
    return FigureSpec(name, title, data, looks.draw, partial(_metric_caption, what, faint, clock))


def _percent(metric: str) -> Series:
    return Series(metric, 100.0)


_BRANCH_LOOKS = [{"color": colour, "linewidth": 2.4} for colour in style.BRANCH_COLOURS.values()]
_SHARES = (-3.0, 103.0)

FIGURES = {
    spec.name: spec
    for spec in (
        _scores("learning_curves", "Test score over training (figure 3)", main_methods, "Table 1's methods"),
        _averages("grpo_and_sdpo", "GRPO against SDPO (figure 1a)", _both_baselines, "GRPO and SDPO"),
        _averages(
            "sdpo_variants",
            "What SDPO distils (figure 1b)",
            _sdpo_variants,
            "SDPO on all, on wrong only and on correct rollouts only, as far as they were run",
        ),
        FigureSpec(
            "ablation_curves",
            "Test score over training, ablations",
            _ablation_curves,
            _draw_scores,
            partial(_score_caption, "SRPO and its ablations"),
        ),
        _metrics(
            "response_length",
            "Response length over training (figure 4a)",
            _all,
            _Metrics({"": Series("response_length/mean")}, "response length, tokens", "clock"),
            "Mean length of the training rollouts, against the training clock.",
        ),
        FigureSpec(
            "step_seconds",
            "Mean seconds a training step (figure 4b)",
            step_seconds,
            _draw_step_seconds,
            _step_seconds_caption,
        ),
        _metrics(
            "routing",
            "Where rollouts go (figure 5)",
            _routed,
            _Parts(
                {
                    "routed to GRPO": _percent("routing/grpo_fraction"),
                    "routed to SDPO": _percent("routing/sdpo_fraction"),
                    "correct": _percent("routing/correct_fraction"),
                    "teacher available": _percent("routing/teacher_available_fraction"),
                },
                [
                    *_BRANCH_LOOKS,
                    # often on top of the share routed to GRPO, so that it must let that line through
                    {"color": "#111111", "linewidth": 0.9, "linestyle": (0, (4, 3))},
                    {"color": "#888888", "linestyle": ":"},
                ],
                "share of rollouts, %",
                _SHARES,
            ),
            "Shares of each step's rollouts: routed to either branch, correct, and with a teacher available (another "
            "rollout of the question is correct).",
        ),
        _metrics(
            "teacher_entropy",
            "Uncertainty of the self-teacher (figure 1c)",
            _taught,
            _Metrics({"": Series("teacher/entropy")}, "teacher entropy, nats"),
            "Mean entropy of the teacher's next-token distribution over the rollouts that a method distils: all that "
            "have a teacher for SDPO and the mix, only wrong ones for SRPO, so that levels are not comparable between "
            "methods, trends are.",
        ),
        _metrics(
            "solved_groups",
            "Groups all right or all wrong",
            _all,
            _Metrics(
                {
                    "all right": _percent("routing/all_correct_groups"),
                    "all wrong": _percent("routing/all_wrong_groups"),
                },
                "share of groups, %",
            ),
            "Share of questions whose rollouts are all right or all wrong: neither has an advantage, and the wrong "
            "ones have no teacher.",
        ),
        _metrics(
            "top_k_mass",
            "Probability outside the top K",
            _taught,
            _Metrics(
                {
                    "student": Series("student/top_k_mass", -1.0, 1.0),
                    "teacher": Series("teacher/top_k_mass", -1.0, 1.0),
                },
                "mass of the tail bucket",
                log=True,
            ),
            "Mean probability that student and teacher give to tokens outside the student's top K, which the "
            "divergence sees as one bucket.",
        ),
        _metrics(
            "loss_by_token",
            "Where the distillation loss falls: kinds of token",
            _distilling,
            _Parts(
                {
                    "reasoning": _percent("distillation_share/reasoning"),
                    "first answer token": _percent("distillation_share/answer_start"),
                    "rest of the answer": _percent("distillation_share/answer_rest"),
                    "format": _percent("distillation_share/format"),
                },
                style.SERIES_LOOKS,
                "share of the loss, %",
                _SHARES,
            ),
            "Shares of a step's distillation loss by the token it falls on: before the answer, the first token after "
            "<answer>, the rest of the answer, and format (tags, end of sequence); together 100 %.",
        ),
        _metrics(
            "loss_by_position",
            "Where the distillation loss falls: position",
            _distilling,
            _Parts(
                {
                    f"{name} quarter": _percent(f"distillation_share/quarter_{i}")
                    for i, name in enumerate(("first", "second", "third", "last"), 1)
                },
                style.SERIES_LOOKS,
                "share of the loss, %",
            ),
            "Shares of a step's distillation loss by the quarter of its response that a token lies in; together 100 %.",
        ),
        _metrics(
            "copying",
            "Copying the sibling's answer",
            _distilling,
            _Metrics(
                {"student": _percent("copying/student"), "teacher": _percent("copying/teacher")},
                "share of rollouts, %",
            ),
            "Share of distilled rollouts after whose own reasoning the most likely first answer token, to the student "
            "and to the self-teacher, is the one of the sibling that the teacher is shown.",
        ),
        _metrics(
            "weights",
            "Dynamic weights",
            _weighted,
            _Parts(
                {
                    "largest": Series("weights/max"),
                    "90 % quantile": Series("weights/p90"),
                    "median": Series("weights/median"),
                    "10 % quantile": Series("weights/p10"),
                },
                style.SERIES_LOOKS,
                "token weight",
                log=True,
            ),
            "Quantiles of the dynamic weights of a step's distilled tokens.",
        ),
        _metrics(
            "weighting_effect",
            "What weighting does",
            _weighted,
            _Metrics(
                {
                    "effective share of tokens": _percent("weights/effective_fraction"),
                    "weighted loss, of unweighted": _percent("weights/loss_scale"),
                },
                "percent",
            ),
            "How many tokens the weights leave, as a share of the distilled ones: (sum of weights)² / (number x sum of "
            "squared weights), 100 % if all weigh the same. And the step's weighted divergence in percent of the "
            "unweighted one: below 100 %, weighting makes the distillation loss smaller as a whole.",
        ),
        _metrics(
            "clip_fraction",
            "Clipped tokens",
            _all,
            _Metrics({"": _percent("actor/clip_fraction")}, "clipped tokens, %"),
            "Share of the policy-gradient branch's tokens whose probability ratio was clipped.",
        ),
        _metrics(
            "rollout_weight",
            "Rollout correction",
            _all,
            _Metrics({"": Series("actor/rollout_is_weight", 1.0, -1.0)}, "mean weight minus 1"),
            "Mean truncated ratio of the trainer's to the rollout engine's token probabilities, minus 1: 0 where they "
            "agree.",
        ),
        _metrics(
            "rollout_truncated",
            "Truncated rollout corrections",
            _all,
            _Metrics({"": _percent("actor/rollout_is_truncated_fraction")}, "truncated tokens, %"),
            "Share of tokens whose ratio of the trainer's to the rollout engine's probability was cut to its limit.",
        ),
        _metrics(
            "gradient_norm",
            "Gradient norm",
            _all,
            _Metrics({"": Series("actor/grad_norm")}, "gradient norm"),
            "Norm of a step's gradient before clipping.",
        ),
        _metrics(
            "branch_norms",
            "Gradient norm of each branch",
            _routed,
            _Parts(
                {"GRPO branch": Series("grad_norm/policy"), "SDPO branch": Series("grad_norm/distillation")},
                _BRANCH_LOOKS,
                "gradient norm",
                log=True,
            ),
            "Norm of the gradient of each branch's part of the loss, before clipping, over a step's first mini-batch. "
            "Measured every few steps (training.branch_gradients_every), if both branches have rollouts there.",
        ),
        FigureSpec(
            "sweep_response",
            "Scores against the swept setting",
            lambda results: sweep_frame(results).dropna(subset=["score"]),
            _draw_response,
            _response_caption,
        ),
        FigureSpec(
            "sweep_curves",
            "Test score over training, by the swept setting",
            sweep_curves,
            _draw_sweep_curves,
            _sweep_curves_caption,
        ),
    )
}
