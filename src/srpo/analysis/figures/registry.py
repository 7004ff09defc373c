"""The list of all figures (the paper's and the diagnostics), and how they are written.

Each figure has a frame (``curves.py``), a function that draws it (``drawing.py``) and a caption (``captions.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

from srpo.algorithm.branches import comparable_branches
from srpo.analysis.clocks import clock_frame
from srpo.analysis.figures import style
from srpo.analysis.figures.captions import metric_caption, score_caption, step_seconds_caption
from srpo.analysis.figures.curves import Series, curves_with_alarms, metric_curves
from srpo.analysis.figures.drawing import LinesByMethod, LinesBySeries, draw_scores, draw_step_seconds
from srpo.analysis.figures.forest import (
    clocks_caption,
    draw_clocks,
    draw_forest,
    forest_caption,
    our_differences,
    primary_differences,
)
from srpo.analysis.outline import by_name, figures_of, returned
from srpo.analysis.results import ABLATIONS, Results
from srpo.analysis.statistics.estimates import PERCENT
from srpo.analysis.step_seconds import step_seconds
from srpo.ground.errors import SrpoError
from srpo.ground.files import write_text

Methods = Callable[[Results], list[str]]


@dataclass(frozen=True)
class FigureSpec:
    """A figure: ``data`` makes its frame, ``draw`` draws a frame that is not empty, ``caption`` writes its caption."""

    name: str
    title: str
    data: Callable[[Results], pd.DataFrame]
    draw: Callable[[str, Results, pd.DataFrame], Figure]
    caption: Callable[[Results, pd.DataFrame], str]


@dataclass(frozen=True)
class FigureData:
    """A figure's frame and caption; the frame is empty if there is nothing to show yet."""

    spec: FigureSpec
    frame: pd.DataFrame
    caption: str


def figure_data(results: Results) -> dict[str, FigureData]:
    """The frames and captions of the experiment's figures."""
    made = {}
    for name in figures_of(results.experiment):
        if name not in FIGURES:
            raise SrpoError(f"reports/outline.yaml: {name}: no figure of analysis/figures/registry.py")
        spec = FIGURES[name]
        frame = returned(f"figure {name}: its data", spec.data(results), pd.DataFrame)
        caption = returned(f"figure {name}: its caption", spec.caption(results, frame), str)
        made[name] = FigureData(spec, frame, caption)
    return made


def write_figures(results: Results, out_dir: Path) -> list[Path]:
    """Write every figure as PNG, SVG, CSV (what is drawn) and caption, and return the paths.

    A figure that has nothing to show (yet) is written as a note that says so, because the workflow expects its files.
    """
    written: list[Path] = []
    with mpl.rc_context(style.rc()):
        for name, made in figure_data(results).items():
            title = _title(made.spec, results)
            draw = made.spec.draw if len(made.frame) else _no_data
            figure = returned(f"figure {name}: what it draws", draw(title, results, made.frame), Figure)
            written += style.save(figure, Path(out_dir), name)
            texts = {"csv": figure_csv(made.frame), "rst": f"{made.spec.title}. {made.caption}\n"}
            for kind, text in texts.items():
                written.append(Path(out_dir) / f"{name}.{kind}")
                write_text(written[-1], text)
    return written


def figure_csv(frame: pd.DataFrame) -> str:
    """A figure's data with six significant digits, without empty columns."""
    full = [c for c in frame.columns if frame.empty or (frame[c].notna() & (frame[c].astype(str) != "")).any()]
    return frame[full].to_csv(index=False, lineterminator="\n", float_format="%.6g")


def _no_data(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    return style.new_figure(6, 0.6, f"{title}: no data")


def _title(spec: FigureSpec, results: Results) -> str:
    """The figure's title; a toy's figure says so, because a picture travels without its page."""
    return f"{spec.title} · toy" if results.experiment.is_toy else spec.title


# ---------------------------------------------------------------- which methods


def _all(results: Results) -> list[str]:
    return list(results.experiment.methods)


def _with_teacher(results: Results) -> list[str]:
    return [name for name, method in results.experiment.methods.items() if method.needs_teacher]


def _clocks(results: Results) -> pd.DataFrame:
    frame = clock_frame(results).dropna(subset="difference")
    frame.loc[frame["difference_unit"] == "question", ["difference_low", "difference_high"]] = float("nan")
    return frame


def _routed(results: Results) -> list[str]:
    return [name for name, method in results.experiment.methods.items() if method.routes_samples]


# ---------------------------------------------------------------- the figures


def _metrics(name: str, title: str, methods: Methods, lines: LinesByMethod | LinesBySeries, what: str) -> FigureSpec:
    data = lambda results: metric_curves(results, methods(results), lines.series)  # noqa: E731
    clock = isinstance(lines, LinesByMethod) and lines.against == "clock"
    return FigureSpec(name, title, data, lines.draw, partial(metric_caption, what, clock))


def _percent(metric: str) -> Series:
    return Series(metric, 100.0, bounds=PERCENT)


_COMPARED = comparable_branches()
_BRANCH_STYLES = [{"color": style.branch_colour(branch.name), "linewidth": 2.4} for branch in _COMPARED]
_SHARES = (-3.0, 103.0)

_FOREST = (draw_forest, forest_caption)
_FIGURES = (
    FigureSpec("primary_differences", "The primary claims (the paper's table 1)", primary_differences, *_FOREST),
    FigureSpec("our_differences", "Our questions", our_differences, *_FOREST),
    FigureSpec("clock_differences", "The same runs under other clocks", _clocks, draw_clocks, clocks_caption),
    FigureSpec(
        "learning_curves",
        "Test score over training (the paper's figure 3)",
        lambda results: curves_with_alarms(results, [m for m in results.experiment.methods if m not in ABLATIONS]),
        draw_scores,
        score_caption,
    ),
    _metrics(
        "response_length",
        "Response length over training (the paper's figure 4a)",
        _all,
        LinesByMethod(Series("response_length/mean"), "response length, tokens", "clock"),
        "Mean length of the training rollouts, against the training clock.",
    ),
    FigureSpec(
        "step_seconds",
        "Mean seconds per training step (the paper's figure 4b)",
        step_seconds,
        draw_step_seconds,
        step_seconds_caption,
    ),
    _metrics(
        "routing",
        "Where rollouts go (the paper's figure 5)",
        _routed,
        LinesBySeries(
            {
                **{
                    f"routed to {b.title}": Series(f"routing/{b.name}_fraction", 100.0, branch=b.name, bounds=PERCENT)
                    for b in _COMPARED
                },
                "correct": _percent("routing/correct_fraction"),
                "sibling available": _percent("routing/sibling_available_fraction"),
            },
            [
                *_BRANCH_STYLES,
                # dashed: it often lies on top of the share routed to GRPO, which must stay visible
                {"color": "#111111", "linewidth": 0.9, "linestyle": (0, (4, 3))},
                {"color": "#888888", "linestyle": ":"},
            ],
            "share of rollouts, %",
            _SHARES,
        ),
        "For methods that use both branches: the shares of each step's rollouts that go to each branch, that are "
        "correct, and that have a sibling available (another rollout of the question is correct).",
    ),
    _metrics(
        "teacher_entropy",
        "Uncertainty of the self-teacher (the paper's figure 1c)",
        _with_teacher,
        LinesByMethod(Series("teacher/entropy"), "teacher entropy, nats"),
        "Mean entropy of the teacher's next-token distribution on the rollouts that a method distils ("
        "SRPO distils wrong rollouts only). Compare trends between methods, not levels.",
    ),
)
FIGURES = by_name("figure", ((spec.name, spec) for spec in _FIGURES))
