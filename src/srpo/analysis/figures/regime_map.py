"""The map of regimes: heat maps of what SRPO gains, with one cell per model and benchmark."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from srpo.analysis.figures import style
from srpo.analysis.figures.panels import wrapped
from srpo.analysis.results.load import Results
from srpo.analysis.results.regimes import RIVALS, differences
from srpo.analysis.results.scores import PROTOCOLS, Scores
from srpo.analysis.results.titles import benchmark_title, budgets_listed, count_range, method_title

PALE = 0.3
"""Opacity of a difference that may be chance, so that its colour does not say more than its interval."""

_BEFORE = {"base": "untrained model, score in %", "routed": "rollouts routed to SDPO at the start, %"}


def draw_regimes(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    """What the base model does in the first row, then a row a budget: SRPO minus each rival."""
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
    for axes, quantity, budget, label, look in panels:
        of_panel = frame[(frame["quantity"] == quantity) & (frame["budget"] == budget)]
        records = {(r["model"], r["benchmark"]): r for r in of_panel.to_dict("records")}
        cells = [[records.get((model, benchmark)) for benchmark in benchmarks] for model in models]
        values = [[cell["value"] if cell else np.nan for cell in row] for row in cells]
        shown = [[1.0 if not budget or _is_beside_0(cell) else PALE for cell in row] for row in cells]
        axes.imshow(values, aspect="auto", alpha=shown, **look)
        for i, row in enumerate(cells):
            for j, cell in enumerate(row):
                _write(axes, i, j, cell, signed=bool(budget), dark=look["vmax"])
        axes.set_title(label, fontsize=8.5)
        columns = [wrapped(benchmark_title(results, benchmark), 12) for benchmark in benchmarks]
        rows = [wrapped(results.experiment.models[model].title, 14) if axes in grid[:, 0] else "" for model in models]
        axes.set_xticks(range(len(benchmarks)), columns if axes in grid[-1] else [""] * len(benchmarks), size=7.5)
        axes.set_yticks(range(len(models)), rows, size=7.5)
        axes.grid(visible=False)
        axes.tick_params(length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return figure


def _is_beside_0(cell: dict[str, Any] | None) -> bool:
    return cell is not None and (cell["value_low"] > 0 or cell["value_high"] < 0)


def _write(axes: Axes, row: int, column: int, cell: dict[str, Any] | None, signed: bool, dark: float) -> None:
    """A cell's number with its interval; a difference is bold where the interval lies beside 0, grey elsewhere."""
    if cell is None or np.isnan(cell["value"]):
        axes.text(column, row, "–", ha="center", va="center", color="#777777", size=8)
        return
    decided = not signed or _is_beside_0(cell)
    look = {"fontweight": "bold" if signed and decided else "normal", "color": "#111111" if decided else "#555555"}
    if decided and abs(cell["value"]) > 0.6 * dark:
        look["color"] = "white"
    number = f"{cell['value']:+.1f}" if signed else f"{cell['value']:.0f}"
    ends = ""
    if signed and cell["value_unit"]:
        ends = f"\n[{cell['value_low']:.1f}, {cell['value_high']:.1f}]"
    axes.text(column, row, f"{number}{ends}", ha="center", va="center", size=7.5, linespacing=1.1, **look)


def regime_caption(results: Results, frame: pd.DataFrame) -> str:
    """How to read the map."""
    if frame.empty:
        return ""
    gains = differences(frame)
    over = {
        "seed and question": "training seeds and test questions",
        "question, run SD": "test questions, widened by the spread between training seeds",
        "question": "test questions (not another training seed)",
    }
    units = " or ".join(text for unit, text in over.items() if unit in set(gains["value_unit"]))
    brackets = (
        f"In brackets 95 % intervals over {units}; bold, full colour: the interval lies beside 0; pale: it holds 0. "
    )
    return (
        "Each cell is a model (row) trained on a benchmark (column). Above: the untrained model, and the share of "
        "rollouts that are wrong with a correct sibling in the first tenth of SRPO's training. Below, by budget: "
        f"SRPO's score minus that of its rivals ({PROTOCOLS[Scores.of(results).protocol]}); violet: SRPO is above, "
        f"orange: below. {brackets if units else 'No intervals. '}"
        f"{count_range(gains['seeds'])} seeds a method. Budgets: {budgets_listed(results)}."
    )
