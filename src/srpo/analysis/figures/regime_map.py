"""The map of regimes: heat maps of what SRPO gains, with one cell per model and benchmark."""

from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from srpo.analysis.figures import style
from srpo.analysis.figures.captions import covered
from srpo.analysis.figures.panels import wrapped
from srpo.analysis.results.load import Results
from srpo.analysis.results.regimes import RIVALS, differences
from srpo.analysis.results.scores import PROTOCOLS, Scores
from srpo.analysis.results.titles import MISSING, benchmark_title, budgets_listed, count_range, method_title

PALE = 0.3
"""Opacity of a difference that may be chance."""

_BEFORE = {"base": "untrained model, score in %", "routed": "rollouts routed to SDPO at the start, %"}


def draw_regimes(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    """What the base model does in the first row, then a row per budget: SRPO minus each rival."""
    models, benchmarks = (list(dict.fromkeys(frame[name])) for name in ("model", "benchmark"))
    rivals = [name for name in RIVALS if f"srpo-{name}" in set(frame["quantity"])]
    budgets = list(results.experiment.training.budget_seconds)
    gains = differences(frame)["value"].abs()
    largest = max(1.0, float(np.nanmax(gains))) if gains.notna().any() else 1.0
    width = 1.6 + 2 * max(2.6, 1.05 * len(benchmarks))
    figure = style.new_figure(width, 0.9 + (0.45 + 0.5 * len(models)) * (1 + len(budgets)), title)
    grid = figure.subplots(1 + len(budgets), 2, squeeze=False)
    panels: list[tuple[Axes, str, str, str, dict[str, Any]]] = [
        (axes, name, "", label, {"cmap": "Greys", "vmin": 0, "vmax": 160})
        for axes, (name, label) in zip(grid[0], _BEFORE.items(), strict=True)
    ]
    looks = {"cmap": "PuOr", "vmin": -largest, "vmax": largest}
    for row, budget in zip(grid[1:], budgets, strict=True):
        for axes, name in zip(row, rivals, strict=False):
            label = f"SRPO minus {method_title(results, name)} within {budget}, points"
            panels.append((axes, f"srpo-{name}", budget, label, looks))
        for axes in row[len(rivals) :]:
            axes.set_visible(False)
    rows = [wrapped(results.experiment.models[model].title, 14) for model in models]
    columns = [wrapped(benchmark_title(results, benchmark), 12) for benchmark in benchmarks]
    for axes, quantity, budget, label, look in panels:
        here = frame[(frame["quantity"] == quantity) & (frame["budget"] == budget)]
        value, low, high = (_grid(here, f"value{end}", models, benchmarks) for end in ("", "_low", "_high"))
        signed = bool(budget)
        notes = [
            [_note(*ends, signed) for ends in zip(*row, strict=True)] for row in zip(value, low, high, strict=True)
        ]
        decided = (low > 0) | (high < 0) if signed else ~np.isnan(value)
        # Two layers: a difference that may be chance is pale, so that its colour does not say more than its interval.
        bold = "bold" if signed else "normal"
        for shown, opacity, text in ((decided, 1.0, {"fontweight": bold}), (~decided, PALE, {"color": "#555555"})):
            sns.heatmap(
                np.nan_to_num(value),
                mask=~shown,
                annot=np.array(notes),
                fmt="",
                alpha=opacity,
                annot_kws={"size": 7.5, "linespacing": 1.1} | text,
                cbar=False,
                xticklabels=columns if axes in grid[-1] else False,
                yticklabels=rows if axes in grid[:, 0] else False,
                ax=axes,
                **look,
            )
        axes.set_title(label, fontsize=8.5)
        axes.grid(visible=False)
        axes.tick_params(length=0, labelsize=7.5, rotation=0)
    return figure


def _grid(frame: pd.DataFrame, column: str, models: list[str], benchmarks: list[str]) -> np.ndarray:
    """A column as models x benchmarks; NaN where the map has no cell."""
    return frame.pivot(index="model", columns="benchmark", values=column).reindex(models, columns=benchmarks).to_numpy()


def _note(value: float, low: float, high: float, signed: bool) -> str:
    """A cell's number; a difference has its sign and its interval."""
    if np.isnan(value):
        return MISSING
    if not signed:
        return f"{value:.0f}"
    return f"{value:+.1f}" + ("" if np.isnan(low) else f"\n[{low:.1f}, {high:.1f}]")


def regime_caption(results: Results, frame: pd.DataFrame) -> str:
    """How to read the map."""
    if frame.empty:
        return ""
    gains = differences(frame)
    over = covered(gains["value_unit"])
    brackets = (
        f"In brackets 95 % intervals over {over}; bold, full colour: the interval lies beside 0; pale: it holds 0. "
    )
    return (
        "Each cell is a model (row) trained on a benchmark (column). Above: the untrained model, and the share of "
        "rollouts that are wrong with a correct sibling in the first tenth of SRPO's training. Below, by budget: "
        f"SRPO's score minus that of its rivals ({PROTOCOLS[Scores.of(results).protocol]}); violet: SRPO is above, "
        f"orange: below. {brackets if over else 'No intervals. '}"
        f"{count_range(gains['seeds'])} seeds per method. Budgets: {budgets_listed(results)}."
    )
