"""The paper's figures, drawn from the logs: small multiples, one row a model, one column a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from srpo.analysis import style
from srpo.analysis.load import PHASES, RUN_KEY, Results
from srpo.analysis.scores import ABLATIONS, main_methods, planned
from srpo.analysis.tables import benchmark_title, budgets_listed, method_title, step_seconds

_HOUR = 3600.0
_SMOOTHED_FRACTION = 10  # per-step values are noisy: lines are rolling means over a tenth of the steps


@dataclass(frozen=True)
class FigureSpec:
    """A figure: ``draw`` makes it, or returns None as long as there is nothing to show."""

    name: str
    title: str
    draw: Callable[[Results], Figure | None]
    caption: Callable[[Results], str]


def write_figures(results: Results, out_dir: Path) -> list[Path]:
    """Write every figure as PNG and SVG and return the paths.

    A figure with nothing to show (yet) is written as a note that says so, so that the files of
    :data:`FIGURES` always exist.
    """
    written: list[Path] = []
    with mpl.rc_context(style.rc()):
        for name, spec in FIGURES.items():
            figure = spec.draw(results) or _note(spec, results)
            written += style.save(figure, Path(out_dir), name)
    return written


def has_data(name: str, results: Results) -> bool:
    """Whether a figure would show anything."""
    source, column, methods = _SOURCES[name](results)
    there = source[source["method"].isin(methods)][column]
    return bool(there.notna().any())


def _title(name: str, results: Results) -> str:
    """A figure says where it is from even without the report around it."""
    return f"{FIGURES[name].title} · {results.experiment.title}"


def _note(spec: FigureSpec, results: Results) -> Figure:
    figure = style.new_figure(6, 1.2, _title(spec.name, results))
    figure.text(0.5, 0.4, "no data yet", ha="center", va="center", color="#777777")
    return figure


# ---------------------------------------------------------------- learning curves


def draw_learning_curves(results: Results) -> Figure | None:
    """avg@k of table 1's methods against the training clock."""
    return _validation_curves(results, "learning_curves", main_methods(results))


def draw_ablation_curves(results: Results) -> Figure | None:
    """avg@k of SRPO and its ablations against the training clock."""
    return _validation_curves(results, "ablation_curves", _ablations(results))


def _ablations(results: Results) -> list[str]:
    methods = [m for m in results.experiment.methods if m in ("srpo", *ABLATIONS)]
    return methods if set(methods) & set(ABLATIONS) else []


def _validation_curves(results: Results, name: str, methods: list[str]) -> Figure | None:
    data = results.validations.assign(percent=100 * results.validations["avg_at_k"])
    panels = _Panels.of(results, name, methods)
    if panels is None:
        return None
    k = results.experiment.training.validation.rollouts
    base = results.bases.set_index(["model", "benchmark"])["avg_at_k"].to_dict()
    for axes, model, benchmark in panels:
        _curves(axes, data, results, (model, benchmark), methods, "percent", "clock", markers=True)
        if (model, benchmark) in base:
            axes.axhline(100 * base[(model, benchmark)], color=style.BASE_COLOUR, linestyle="--", linewidth=1)
    panels.share_y(f"avg@{k}, %")
    panels.clock_axis()
    base_line = Line2D([], [], color=style.BASE_COLOUR, linestyle="--", linewidth=1, label="Base")
    panels.legend([*_method_handles(results, panels.methods, markers=True), *([base_line] if base else [])])
    return panels.figure


# ---------------------------------------------------------------- curves of step metrics


def draw_response_length(results: Results) -> Figure | None:
    """Mean response length of table 1's methods against the training clock."""
    panels = _metric_curves(results, "response_length", main_methods(results), "response_length/mean", "clock")
    if panels is None:
        return None
    panels.share_y("response length, tokens")
    panels.clock_axis()
    return panels.figure


def draw_teacher_entropy(results: Results) -> Figure | None:
    """Mean entropy of the self-teacher over training."""
    panels = _metric_curves(results, "teacher_entropy", _taught(results), "teacher/entropy", "step")
    if panels is None:
        return None
    panels.share_y("teacher entropy, nats")
    panels.label_x("training step")
    return panels.figure


def _taught(results: Results) -> list[str]:
    return [name for name, method in results.experiment.methods.items() if method.routing.needs_teacher]


def _metric_curves(results: Results, name: str, methods: list[str], metric: str, x: str) -> _Panels | None:
    panels = _Panels.of(results, name, methods)
    if panels is None:
        return None
    for axes, model, benchmark in panels:
        _curves(axes, results.steps, results, (model, benchmark), methods, metric, x)
    panels.legend(_method_handles(results, panels.methods))
    return panels


# ---------------------------------------------------------------- routing

_SHARES = {
    "routing/grpo_fraction": {"label": "routed to GRPO", "color": "#0072B2", "linewidth": 2.4},
    "routing/sdpo_fraction": {"label": "routed to SDPO", "color": "#D55E00", "linewidth": 2.4},
    # often on top of the share routed to GRPO, so that it must let that line through
    "routing/correct_fraction": {"label": "correct", "color": "#111111", "linewidth": 0.9, "linestyle": (0, (4, 3))},
    "routing/teacher_available_fraction": {"label": "teacher available", "color": "#888888", "linestyle": ":"},
}


def draw_routing(results: Results) -> Figure | None:
    """Shares of rollouts by branch, correct, and with a teacher, one row a model and routed method."""
    methods = _routed(results)
    panels = _Panels.of(results, "routing", methods, row_a_method=True)
    if panels is None:
        return None
    for axes, row, benchmark in panels:
        model, method = row
        for metric, look in _SHARES.items():
            data = results.steps.assign(percent=100 * results.steps[metric])
            runs = data[(data["model"] == model) & (data["benchmark"] == benchmark) & (data["method"] == method)]
            _line(axes, runs.dropna(subset=["percent"]), "percent", "step", **look)
        axes.set_ylim(-3, 103)
    panels.share_y("share of rollouts, %")
    panels.label_x("training step")
    panels.legend([Line2D([], [], **look) for look in _SHARES.values()])
    return panels.figure


def _routed(results: Results) -> list[str]:
    """Methods that send some rollouts to each of the two branches."""
    return [n for n, m in results.experiment.methods.items() if {"sdpo", "grpo"} <= {*m.routing.branches}]


# ---------------------------------------------------------------- seconds a step


def draw_step_seconds(results: Results) -> Figure | None:
    """Mean seconds a step up to each budget, stacked by phase."""
    table = step_seconds(results).dropna(subset=["step_seconds"])
    models = [m for m in results.experiment.models if m in set(table["model"])]
    if not models:
        return None
    budgets = list(results.experiment.training.budgets)
    bars = max(len(planned(results, model)) for model in models)
    width = max(6.0, min(12.0, len(budgets) * (1.1 + 0.62 * bars)))
    figure = style.new_figure(width, 1.4 + 2.0 * len(models), _title("step_seconds", results))
    grid = figure.subplots(len(models), len(budgets), squeeze=False, sharey="row")
    for row, model in enumerate(models):
        methods = [m for m in planned(results, model) if m in set(table.loc[table["model"] == model, "method"])]
        for column, budget in enumerate(budgets):
            axes = grid[row][column]
            _stack(axes, table[(table["model"] == model) & (table["budget"] == budget)], methods)
            axes.set_xticks(range(len(methods)), [_wrapped(method_title(results, m)) for m in methods])
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


def _stack(axes: Axes, table: pd.DataFrame, methods: list[str]) -> None:
    seconds = table.set_index("method").reindex(methods)
    bottom = pd.Series(0.0, index=methods)
    for phase in PHASES:
        heights = seconds[f"phase_seconds/{phase}"].fillna(0.0)
        colour = style.PHASE_COLOURS[phase]
        axes.bar(range(len(methods)), heights, 0.72, bottom=bottom, color=colour, edgecolor="white", linewidth=0.4)
        bottom += heights
    for i, total in enumerate(seconds["step_seconds"]):
        if not pd.isna(total):
            axes.annotate(
                f"{total:.{2 if total < 10 else 1}f}",
                (i, bottom.iloc[i]),
                (0, 2),
                textcoords="offset points",
                ha="center",
                size=8,
            )


def _name_row(axes: Axes, name: str) -> None:
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


# ---------------------------------------------------------------- panels


class _Panels:
    """A grid of axes, one row a model (or a model and method), one column a benchmark."""

    def __init__(self, results: Results, name: str, rows: list[Any], benchmarks: list[str], methods: list[str]):
        self.results, self.rows, self.benchmarks, self.methods = results, rows, benchmarks, methods
        width = min(12.0, max(6.0, 1.0 + 2.25 * len(benchmarks)))
        self.figure = style.new_figure(width, 1.35 + 1.75 * len(rows), _title(name, results))
        self.grid = self.figure.subplots(len(rows), len(benchmarks), squeeze=False, sharey="row", sharex=True)

    @classmethod
    def of(cls, results: Results, name: str, methods: list[str], row_a_method: bool = False) -> _Panels | None:
        """Panels for what is planned of ``methods``; None if nothing of it is there to draw yet."""
        if not has_data(name, results):
            return None
        plans = {model: planned(results, model) for model in results.experiment.models}
        rows: list[Any] = []
        for model, plan in plans.items():
            there = [m for m in methods if m in plan]
            if name == "ablation_curves" and not {*there} & {*ABLATIONS}:
                continue
            rows += [(model, m) for m in there] if row_a_method else [model] * bool(there)
        shown = {row[0] if row_a_method else row for row in rows}
        used = {b for model in shown for m in methods for b in plans[model].get(m, [])}
        drawn = [m for m in methods if any(m in plans[model] for model in shown)]
        return cls(results, name, rows, [b for b in results.experiment.benchmarks if b in used], drawn)

    def __iter__(self) -> Iterator[tuple[Axes, Any, str]]:
        for i, row in enumerate(self.rows):
            for j, benchmark in enumerate(self.benchmarks):
                axes = self.grid[i][j]
                yield axes, row, benchmark
                if i == 0:
                    axes.set_title(benchmark_title(self.results, benchmark))
                if not axes.lines:
                    axes.text(0.5, 0.5, "no data yet", transform=axes.transAxes, ha="center", color="#999999", size=8)

    def share_y(self, label: str) -> None:
        """Name the quantity on the left and the rows on the right."""
        for i, row in enumerate(self.rows):
            model, method = row if isinstance(row, tuple) else (row, None)
            name = self.results.experiment.models[model].title
            self.grid[i][0].set_ylabel(label)
            _name_row(
                self.grid[i][-1], f"{name}\n{_wrapped(method_title(self.results, method), 16)}" if method else name
            )

    def label_x(self, label: str) -> None:
        """Name the x axis below the lowest row."""
        for axes in self.grid[-1]:
            axes.set_xlabel(label)

    def clock_axis(self) -> None:
        """Count the training clock in hours if it is long, and mark the budgets."""
        clock = self.results.experiment.training
        unit, name = _clock_unit(self.results)
        self.label_x(f"training clock, {name}")
        for axes in self.grid[0]:
            axes.set_title(axes.get_title(), pad=14)  # room for the budgets' names
        for axes in self.grid.flat:
            axes.set_xlim(0, 1.03 * max(clock.budgets.values()) / unit)
            for budget, seconds in clock.budgets.items():
                axes.axvline(seconds / unit, color="#BBBBBB", linestyle=":", linewidth=0.9, zorder=0)
                if axes in self.grid[0]:
                    place = (seconds / unit, 1.02)
                    transform = axes.get_xaxis_transform()
                    axes.text(*place, budget, transform=transform, ha="center", va="bottom", color="#777777", size=7.5)

    def legend(self, handles: list[Line2D]) -> None:
        """One legend for the figure, below the panels."""
        self.figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5))


def _clock_unit(results: Results) -> tuple[float, str]:
    long = max(results.experiment.training.budgets.values()) > 2 * _HOUR
    return (_HOUR, "h") if long else (1.0, "s")


# ---------------------------------------------------------------- lines


def _curves(
    axes: Axes,
    data: pd.DataFrame,
    results: Results,
    place: tuple[str, str],
    methods: list[str],
    value: str,
    x: str,
    markers: bool = False,
) -> None:
    """One line a method in the panel of a (model, benchmark)."""
    colours = style.method_colours(results.experiment.methods)
    unit = _clock_unit(results)[0] if x == "clock" else 1.0
    here = data[(data["model"] == place[0]) & (data["benchmark"] == place[1])].dropna(subset=[value])
    for method in methods:
        runs = here[here["method"] == method]
        look = style.method_line(method)
        if not markers:
            look.pop("marker")
        _line(axes, runs.assign(**{x: runs[x] / unit}), value, x, color=colours[method], **look)


def _line(axes: Axes, runs: pd.DataFrame, value: str, x: str, **look: Any) -> None:
    """The mean over seeds at each step, in a band from the lowest to the highest seed.

    Long noisy lines are drawn faint, with their rolling mean on top.
    """
    if runs.empty:
        return
    window = max(1, runs.groupby(RUN_KEY)["step"].count().max() // _SMOOTHED_FRACTION) if "marker" not in look else 1
    smooth = runs.groupby(RUN_KEY)[value].transform(lambda v: v.rolling(window, center=True, min_periods=1).mean())
    by_step = runs.assign(smooth=smooth).groupby("step")
    middle = by_step[[x, value, "smooth"] if x != "step" else [value, "smooth"]].mean().reset_index()
    if window > 1:
        axes.plot(middle[x], middle[value], color=look["color"], alpha=style.FAINT, linewidth=0.8)
    axes.plot(middle[x], middle["smooth"], markeredgecolor="white", markeredgewidth=0.4, **look)
    if runs["seed"].nunique() > 1:
        low, high = by_step["smooth"].min(), by_step["smooth"].max()
        axes.fill_between(middle[x], low, high, color=look["color"], alpha=0.15, linewidth=0)
    sns.despine(ax=axes)


def _method_handles(results: Results, methods: list[str], markers: bool = False) -> list[Line2D]:
    colours = style.method_colours(results.experiment.methods)
    handles = []
    for method in methods:
        look = style.method_line(method)
        if not markers:
            look.pop("marker")
        handles.append(Line2D([], [], color=colours[method], label=method_title(results, method), **look))
    return handles


# ---------------------------------------------------------------- captions


def _seeds(results: Results) -> str:
    counts = results.runs[results.runs["status"] != "not started"].groupby(["model", "benchmark", "method"])["seed"]
    most = int(counts.nunique().max()) if len(counts) else 0
    if most <= 1:
        return "One seed a line."
    return f"Lines are means over up to {most} seeds, bands reach from the lowest to the highest."


_SMOOTHING = "Faint: each step; strong: centred rolling mean over a tenth of the steps."


def _clock_note(results: Results) -> str:
    return f"Dotted verticals: the budgets ({budgets_listed(results)})."


def _validation_caption(what: str) -> Callable[[Results], str]:
    def caption(results: Results) -> str:
        k = results.experiment.training.validation.rollouts
        return (
            f"{what}: mean reward over {k} samples of each test question (avg@{k}) at every in-training "
            f"validation, against the training clock. Dashed: the untrained model. {_clock_note(results)} "
            f"{_seeds(results)}"
        )

    return caption


FIGURES = {
    spec.name: spec
    for spec in (
        FigureSpec(
            "learning_curves",
            "Test score over training",
            draw_learning_curves,
            _validation_caption("Table 1's methods"),
        ),
        FigureSpec(
            "ablation_curves",
            "Test score over training, ablations",
            draw_ablation_curves,
            _validation_caption("SRPO and its ablations"),
        ),
        FigureSpec(
            "response_length",
            "Response length over training",
            draw_response_length,
            lambda r: (
                f"Mean length of the training rollouts, against the training clock. {_SMOOTHING} "
                f"{_clock_note(r)} {_seeds(r)}"
            ),
        ),
        FigureSpec(
            "step_seconds",
            "Mean seconds a training step",
            draw_step_seconds,
            lambda r: (
                f"Seconds of the {r.experiment.training.clock.kind} training clock a step, averaged over the steps up "
                "to each budget and over the benchmarks on which every method of the model has reached it, by phase."
            ),
        ),
        FigureSpec(
            "routing",
            "Where SRPO sends rollouts",
            draw_routing,
            lambda r: (
                "Shares of each step's rollouts: routed to either branch, correct, and with a teacher available "
                f"(another rollout of the question is correct). {_SMOOTHING} {_seeds(r)}"
            ),
        ),
        FigureSpec(
            "teacher_entropy",
            "Uncertainty of the self-teacher",
            draw_teacher_entropy,
            lambda r: (
                "Mean entropy of the teacher's next-token distribution over the rollouts that a method distils: all "
                "that have a teacher for SDPO and the mix, only wrong ones for SRPO, so that levels are not comparable "
                f"between methods, trends are. {_SMOOTHING} {_seeds(r)}"
            ),
        ),
    )
}

_SOURCES: dict[str, Callable[[Results], tuple[pd.DataFrame, str, list[str]]]] = {
    "learning_curves": lambda r: (r.validations, "avg_at_k", main_methods(r)),
    "ablation_curves": lambda r: (r.validations, "avg_at_k", _ablations(r)),
    "response_length": lambda r: (r.steps, "response_length/mean", main_methods(r)),
    "step_seconds": lambda r: (step_seconds(r), "step_seconds", list(r.experiment.methods)),
    "routing": lambda r: (r.steps, "routing/sdpo_fraction", _routed(r)),
    "teacher_entropy": lambda r: (r.steps, "teacher/entropy", _taught(r)),
}
