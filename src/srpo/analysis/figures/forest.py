"""Forest plots of claims that are decided together: differences, on average and on each benchmark, with intervals."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from srpo.analysis.claims import Claim
from srpo.analysis.figures import style
from srpo.analysis.results import AVERAGE, Results, records
from srpo.analysis.statistics.estimates import Estimate
from srpo.analysis.verdicts import budget_of, findings
from srpo.ground.text import minus

CAPTION = (
    "Average over the benchmarks, and each benchmark on its own, by the score that decides (cross-fitted, but for "
    "few questions). Strong: 0 lies outside the 95 % interval. The dashed interval, over new benchmarks, decides "
    "nothing and may leave the panel. Holm's correction is in the verdicts alone."
)

PAPER = "paper"
"""The series of the paper's values; ``name`` is the paper's model."""

OVER = "over benchmarks"
"""The series of the interval over new benchmarks."""

_COLUMNS = ["model", "claim", "difference", "series", "name", "value", "low", "high", "verdict"]
_PAPER_MARKS = ("D", "d", "h", "p")
_PAPER_COLOUR = "#B8860B"
_VERDICT_COLOURS = {"holds": "#0B6B4A", "does not hold": "#9B2C1F", "suggestive": "#1F4FA3"}
_UNDECIDED = "#555555"
_BESIDE_0, _AROUND_0 = "#222222", "#A0A0A0"
_DASHED: dict[str, Any] = {"color": "#777777", "linewidth": 1.0, "linestyle": (0, (4, 3))}


def differences(results: Results, family: Callable[[Claim], bool]) -> pd.DataFrame:
    """The claims of a family that were tested, for each model.

    ``series`` is ``average`` (over benchmarks, with the 95 % interval), ``benchmark`` (each of several),
    :data:`OVER` (the average with the interval over new benchmarks) or :data:`PAPER` (the published values, if the
    experiment may be compared with them). All values are points. One run of a method has no interval.
    """
    found = [finding for finding in findings(results) if family(finding.claim)]
    rows: list[dict[str, Any]] = []
    for place, model in enumerate(results.experiment.models):
        for finding in found:
            claim, outcome = finding.claim, finding.outcomes[place]
            # 0 is not the limit of an equivalence, and the axis has points
            if outcome.estimate is None or claim.rule.within is not None or claim.unit != "points":
                continue
            names: dict[str, Any] = {"model": model, "claim": claim.id, "difference": _difference(claim, results)}
            average: dict[str, Any] = {"series": AVERAGE, "name": AVERAGE, "verdict": outcome.verdict}
            rows.append(names | average | _ends(outcome.estimate))
            if len(outcome.on_each) > 1:
                rows += [names | {"series": "benchmark", "name": b} | _ends(e) for b, e in outcome.on_each.items()]
            if (over := outcome.over_benchmarks) is not None and outcome.several_seeds:
                rows.append(
                    names | {"series": OVER, "name": AVERAGE, "value": over.value, "low": over.low, "high": over.high}
                )
            if isinstance(claim.paper, dict) and results.experiment.comparable_with_paper:
                rows += [names | {"series": PAPER, "name": m, "value": v} for m, v in claim.paper.items()]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _ends(estimate: Estimate) -> dict[str, float]:
    ends = {"low": estimate.low, "high": estimate.high} if estimate.covers_runs else {}
    return {"value": estimate.value, **ends}


def _difference(claim: Claim, results: Results) -> str:
    """The compared methods and the budget: ``SRPO − GRPO, 10h``."""
    ordered = sorted(claim.quantity.terms, key=lambda term: -term[0])
    methods = " − ".join(results.method_title(method) for _, method, _ in ordered)
    budget = budget_of(ordered[0][2], results)
    return f"{methods}, {results.experiment.budget_title(budget)}" if budget else methods


# ---------------------------------------------------------------- drawing


def draw(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    """A row of panels per model, the average first, then each benchmark; a line per claim, the first on top."""
    models, rows = list(dict.fromkeys(frame["model"])), list(dict.fromkeys(frame["difference"]))
    benchmarks = list(dict.fromkeys(frame.loc[frame["series"] == "benchmark", "name"]))
    # below two inches the legend and the titles leave no room for panels of one line
    height = max(2.0, 0.75 + (0.3 + 0.25 * len(rows)) * len(models))
    figure = style.new_figure(12.0 if benchmarks else 9.0, height, title)
    widths = [4.2, 2.4, *[1.15] * len(benchmarks)]
    grid = figure.subplots(len(models), len(widths), squeeze=False, sharex="col", width_ratios=widths)
    small = frame[frame["series"] == "benchmark"]
    for (average, words, *single), model in zip(grid, models, strict=True):
        here = frame[frame["model"] == model]
        _average_panel(average, words, here, rows)
        average.set_title(results.experiment.models[model].title if len(models) > 1 else "")
        average.set_xlim(*_limits(frame[frame["series"].isin((AVERAGE, PAPER))], frame[frame["series"] == OVER]))
        for axes, benchmark in zip(single, benchmarks, strict=True):
            of_it = here[(here["series"] == "benchmark") & (here["name"] == benchmark)]
            _plain_panel(axes, of_it, rows)
            axes.set_title(results.benchmark_title(benchmark), fontsize=8.5)
            axes.set_xlim(*_limits(small))
    grid[-1][0].set_xlabel("points; right of 0 the first method is ahead")
    spacing: dict[str, Any] = {"columnspacing": 1.1, "handletextpad": 0.4, "fontsize": 8}
    handles = _handles(frame)
    figure.legend(handles=handles, loc="outside lower left", ncols=len(handles), **spacing)
    return figure


def _limits(frame: pd.DataFrame, wider: pd.DataFrame | None = None) -> tuple[float, float]:
    """The range of values and intervals, and 0; also of ``wider`` ones that do not make it more than twice as wide."""

    def ends(of: pd.DataFrame) -> tuple[float, float]:
        numbers = of[["value", "low", "high"]].to_numpy(dtype=float)
        return min(0.0, np.nanmin(numbers)), max(0.0, np.nanmax(numbers))

    low, high = ends(frame)
    if wider is not None and len(wider):
        around = ends(pd.concat([frame, wider]))
        low, high = around if around[1] - around[0] <= 2 * (high - low) else (low, high)
    room = 0.06 * (high - low or 1.0)
    return low - room, high + room


def _papers(frame: pd.DataFrame) -> dict[str, str]:
    """The mark of each of the paper's models."""
    names = dict.fromkeys(frame.loc[frame["series"] == PAPER, "name"])
    return {name: _PAPER_MARKS[i % len(_PAPER_MARKS)] for i, name in enumerate(names)}


def _average_panel(axes: Axes, words: Axes, frame: pd.DataFrame, rows: list[str]) -> None:
    papers = _papers(frame)
    for row in records(frame):
        place = rows.index(row["difference"])
        if row["series"] == AVERAGE:
            colour = _VERDICT_COLOURS.get(row["verdict"], _UNDECIDED)
            axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=3.4, zorder=3)
            axes.plot(row["value"], place, "o", color=colour, markersize=7, markeredgecolor="white", zorder=5)
            words.text(0, place, f"{in_words(row)}  {row['verdict']}", va="center", size=8.5, color=colour)
        elif row["series"] == OVER:
            axes.plot([row["low"], row["high"]], [place + 0.22, place + 0.22], zorder=2, **_DASHED)
        elif row["series"] == PAPER:
            axes.plot(row["value"], place - 0.3, papers[row["name"]], color=_PAPER_COLOUR, markersize=5, zorder=4)
    _finish(axes, rows)
    axes.set_yticks(range(len(rows)), rows)
    words.set_ylim(len(rows) - 0.45, -0.55)
    words.axis("off")


def _plain_panel(axes: Axes, frame: pd.DataFrame, rows: list[str]) -> None:
    for row in records(frame):
        place = rows.index(row["difference"])
        colour = _BESIDE_0 if row["low"] > 0 or row["high"] < 0 else _AROUND_0
        axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=1.4, zorder=3)
        axes.plot(row["value"], place, "o", color=colour, markersize=4.5, markeredgecolor="white", zorder=4)
    _finish(axes, rows)
    axes.set_yticks([])


def _finish(axes: Axes, rows: list[str]) -> None:
    axes.axvline(0, color="#222222", linewidth=0.9, zorder=1)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)
    sns.despine(ax=axes, left=True)
    axes.tick_params(axis="y", length=0)


def in_words(row: dict[str, Any]) -> str:
    """A difference with its interval: ``+5.8 [−2.0, 13.2]``."""
    ends = "" if np.isnan(row["low"]) else f" [{_rounded(row['low'])}, {_rounded(row['high'])}]"
    return minus(f"{_rounded(row['value'], '+')}{ends}")


def _rounded(value: float, sign: str = "") -> str:
    """A number with one decimal, without a sign if it is 0."""
    text = f"{value:{sign}.1f}"
    return text if float(text) else "0.0"


def _handles(frame: pd.DataFrame) -> list[Line2D]:
    one: dict[str, Any] = {"marker": "o", "markersize": 7, "markeredgecolor": "white"}
    several = frame["low"].notna().any()
    name = "average, 95 % interval" if several else "average (one run each: no interval)"
    handles = [Line2D([], [], color=_UNDECIDED, linewidth=3.4 if several else 0, label=name, **one)]
    if (frame["series"] == OVER).any():
        handles.append(Line2D([], [], label="the same over new benchmarks", **_DASHED))
    for model, mark in _papers(frame).items():
        handles.append(Line2D([], [], marker=mark, linestyle="", color=_PAPER_COLOUR, label=f"the paper's {model}"))
    return handles
