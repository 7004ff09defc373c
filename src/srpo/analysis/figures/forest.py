"""Forest plots of claims that are decided together: each difference with its intervals, and the paper's."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from srpo.analysis.figures import style
from srpo.analysis.results.claims import Claim
from srpo.analysis.results.load import Results
from srpo.analysis.results.matrix import AVERAGE
from srpo.analysis.results.multiple_testing import ALPHA
from srpo.analysis.results.titles import benchmark_title, method_title
from srpo.analysis.results.verdicts import Finding, Outcome, budget_of, findings

PAPER = "paper"
"""The series of the paper's values; ``name`` is the paper's model."""

_COLUMNS = ["model", "claim", "difference", "series", "name", "value", "low", "high"]
_COLUMNS += ["holm_low", "holm_high", "verdict"]
_BENCHMARK_MARKS = ("o", "s", "^", "v", "P", "X", "d", "*")
_HOLLOW: dict[str, Any] = {"markeredgecolor": "#777777", "markerfacecolor": "white"}
_PAPER_MARKS = ("D", "d", "h", "p")
_PAPER_COLOUR = "#B8860B"
_VERDICT_COLOURS = {"holds": "#0B6B4A", "does not hold": "#9B2C1F", "suggestive": "#1F4FA3"}
_UNDECIDED = "#555555"


def primary_differences(results: Results) -> pd.DataFrame:
    """The primary claims that were tested, for each model, as :func:`_differences` has them."""
    return _differences(results, lambda claim: claim.primary)


def our_differences(results: Results) -> pd.DataFrame:
    """The same of our questions."""
    return _differences(results, lambda claim: claim.ours)


def _differences(results: Results, family: Callable[[Claim], bool]) -> pd.DataFrame:
    """The claims of a family that were tested, for each model.

    ``series`` is ``average`` (over benchmarks, with the 95 % interval and that at Holm's level), ``benchmark`` (the
    value on each) or ``paper`` (the published values). All values are points.
    """
    found = [finding for finding in findings(results) if family(finding.claim)]
    rows: list[dict[str, Any]] = []
    for place, model in enumerate(results.experiment.models):
        levels = _holm_levels(found, place)
        for finding in found:
            claim, outcome = finding.claim, finding.outcomes[place]
            if outcome.estimate is None or claim.rule.within is not None:  # 0 is not the limit of an equivalence
                continue
            names: dict[str, Any] = {
                "model": model,
                "claim": claim.id,
                "difference": _difference(claim, results),
            }
            rows.append(names | {"series": AVERAGE, "name": AVERAGE} | _intervals(outcome, levels[claim.id]))
            if len(outcome.on_each) > 1:
                rows += [
                    names | {"series": "benchmark", "name": b, "value": v.value, "low": v.low, "high": v.high}
                    for b, v in outcome.on_each.items()
                ]
            if isinstance(claim.paper, dict):
                rows += [names | {"series": PAPER, "name": m, "value": v} for m, v in claim.paper.items()]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _difference(claim: Claim, results: Results) -> str:
    """The compared methods and the budget: ``SRPO − GRPO, 10h``."""
    ordered = sorted(claim.quantity.terms, key=lambda term: -term[0])
    methods = " − ".join(method_title(results, method) for _, method, _ in ordered)
    return f"{methods}, {budget_of(ordered[0][2], results)}"


def _holm_levels(found: Sequence[Finding], place: int) -> dict[str, tuple[float, float]]:
    """By how much the correction raises the p-value of a claim's interval, for the claim and against it.

    At ``ALPHA`` divided by this number, an end of the interval is beside the rule's limit exactly if the adjusted
    p-value decides the claim. The adjusted p-value is that of the weaker score, after Holm's procedure. One that the
    procedure has cut to 1 says nothing about the number: then it is the claim's place in their order.
    """
    tested = {f.claim.id: (f.claim, f.outcomes[place]) for f in found if f.outcomes[place].estimate is not None}
    sides = []
    for p in ("p_holds", "p_violated"):
        raw = {name: getattr(claim.rule, p)(outcome.estimate) for name, (claim, outcome) in tested.items()}
        adjusted = {name: getattr(outcome, p) for name, (_, outcome) in tested.items()}
        order = sorted((name for name in raw if not math.isnan(raw[name])), key=raw.__getitem__)
        side = {name: adjusted[name] / max(raw[name], 1e-300) for name in order}
        counted = [name for name in order if tested[name][1].several_seeds]
        side |= {name: max(side[name], len(counted) - rank) for rank, name in enumerate(counted) if adjusted[name] == 1}
        sides.append(side)
    return {name: (sides[0].get(name, math.nan), sides[1].get(name, math.nan)) for name in tested}


def _intervals(outcome: Outcome, levels: tuple[float, float]) -> dict[str, float | str]:
    estimate = outcome.estimate
    assert estimate is not None  # the caller leaves out what was not tested
    low, high = (estimate.interval(1 - 2 * ALPHA / level)[side] for side, level in enumerate(levels))
    ends = {"low": estimate.low, "high": estimate.high, "holm_low": low, "holm_high": high}
    return {"value": estimate.value, **ends, "verdict": outcome.verdict}


# ---------------------------------------------------------------- drawing


def draw_forest(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    """One panel per model, one row per claim, the first claim on top."""
    models = list(dict.fromkeys(frame["model"]))
    rows = list(dict.fromkeys(frame["difference"]))
    columns = min(2, len(models))
    height = -(-len(models) // columns)
    figure = style.new_figure(9.0 if columns == 1 else 12.0, 0.8 + (0.2 + 0.2 * len(rows)) * height, title)
    grid = figure.subplots(height, columns, squeeze=False, sharex=True, sharey=True)
    for axes, model in zip(grid.flat, models, strict=False):
        _panel(axes, frame[frame["model"] == model], rows, _benchmarks(frame))
        if len(models) > 1:
            axes.set_title(results.experiment.models[model].title)
    for axes in grid.flat[len(models) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("points of avg@k; right of 0 the first method is ahead")
    handles = _handles(results, frame)
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=-(-len(handles) // 2),
        columnspacing=1.1,
        handletextpad=0.3,
        fontsize=8,
    )
    return figure


def _benchmarks(frame: pd.DataFrame) -> dict[str, str]:
    names = dict.fromkeys(frame.loc[frame["series"] == "benchmark", "name"])
    return {name: _BENCHMARK_MARKS[i % len(_BENCHMARK_MARKS)] for i, name in enumerate(names)}


def _papers(frame: pd.DataFrame) -> dict[str, str]:
    names = dict.fromkeys(frame.loc[frame["series"] == PAPER, "name"])
    return {name: _PAPER_MARKS[i % len(_PAPER_MARKS)] for i, name in enumerate(names)}


def _panel(axes: Axes, frame: pd.DataFrame, rows: list[str], benchmarks: dict[str, str]) -> None:
    marks = {"benchmark": benchmarks, PAPER: _papers(frame)}
    for row in frame.to_dict("records"):
        place = rows.index(row["difference"])
        if row["series"] == AVERAGE:
            colour = _VERDICT_COLOURS.get(row["verdict"], _UNDECIDED)
            for ends, width in ((("holm_low", "holm_high"), 1.0), (("low", "high"), 3.4)):
                axes.plot([row[end] for end in ends], [place, place], color=colour, linewidth=width, zorder=3)
            axes.plot(row["value"], place, "o", color=colour, markersize=7, markeredgecolor="white", zorder=5)
            text = f"{row['value']:+.1f}" + ("" if np.isnan(row["low"]) else f" [{row['low']:.1f}, {row['high']:.1f}]")
            where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "annotation_clip": False}
            label = f"{text}  {row['verdict']}"
            axes.annotate(label, (1.015, place), va="center", size=8.5, color=colour, **where)
        elif row["series"] == PAPER:
            mark = marks[PAPER][row["name"]]
            axes.plot(row["value"], place - 0.3, mark, color=_PAPER_COLOUR, markersize=5, zorder=4)
        else:
            mark = marks["benchmark"][row["name"]]
            axes.plot(row["value"], place + 0.26, mark, markersize=4.2, zorder=2, **_HOLLOW)
    axes.axvline(0, color="#222222", linewidth=0.9, zorder=1)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_ylim(len(rows) - 0.45, -0.55)
    axes.grid(axis="y", visible=False)
    sns.despine(ax=axes, left=True)
    axes.tick_params(axis="y", length=0)


def _handles(results: Results, frame: pd.DataFrame) -> list[Line2D]:
    handles = [
        Line2D([], [], color=_UNDECIDED, linewidth=3.4, marker="o", markeredgecolor="white", label="95 % interval"),
        Line2D([], [], color=_UNDECIDED, linewidth=1.0, label="at Holm's level"),
    ]
    for name, mark in _benchmarks(frame).items():
        title = benchmark_title(results, name)
        handles.append(Line2D([], [], marker=mark, linestyle="", markersize=4.5, label=title, **_HOLLOW))
    for name, mark in _papers(frame).items():
        handles.append(Line2D([], [], marker=mark, linestyle="", color=_PAPER_COLOUR, label=f"the paper's {name}"))
    return handles


def forest_caption(results: Results, frame: pd.DataFrame) -> str:
    """How to read the forest plot."""
    if frame.empty:
        return ""
    several = len(_benchmarks(frame))
    what = f"Averages over {several} benchmarks; hollow marks are single benchmarks. " if several else ""
    return (
        f"Scores of the checkpoint that is best within each budget. {what}Thin lines are at Holm's level: the left end "
        "decides whether the claim holds, the right end whether it does not, each at its place in the order."
        f"{' Gold: the paper.' if _papers(frame) else ''}"
    )
