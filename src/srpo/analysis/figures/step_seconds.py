"""Figure 4b: mean seconds per training step."""

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from srpo.analysis.figures import style
from srpo.analysis.figures.panels import name_row, wrapped
from srpo.analysis.paper import paper_figure_4b
from srpo.analysis.results import Results, estimate_columns, records
from srpo.analysis.statistics.contrasts import available, combine
from srpo.training.clock import PHASES

TITLE = "Mean seconds per training step (the paper's figure 4b)"
CAPTION = (
    "Seconds per step of the training clock by phase; measured ones where the clock is calibrated. Averaged over "
    "the steps up to each budget, and over the benchmarks on which every method has reached it or has ended. Bars: "
    "95 % intervals over training seeds; a method with one seed has none."
)

SECONDS = {"step_seconds": "step_seconds", **{phase: f"phase_seconds/{phase}" for phase in PHASES}}
"""Columns of :func:`data`, and the columns of the step log that they average."""


def data(results: Results) -> pd.DataFrame:
    """Mean seconds per step on the training clock up to each budget: the total with its interval, and each phase.

    Averaged over the benchmarks on which all methods of the model have reached the budget, so that methods can be
    compared; a method that has reached it nowhere does not count. ``benchmarks`` is the number of these benchmarks,
    ``seeds`` the smallest number of runs; ``paper`` what the paper has, if the experiment may be compared with it.
    """
    rows = []
    for model in results.experiment.models:
        plan, total = results.plans[model], results.of(model, "step_seconds")
        paired = results.experiment.draws_per_seed(model)
        for budget in results.budget_seconds:
            reached = {m: available(total, {(m, budget): 1.0}, benchmarks) for m, benchmarks in plan.items()}
            reached = {method: benchmarks for method, benchmarks in reached.items() if benchmarks}
            shared = [b for b in results.experiment.benchmarks if all(b in there for there in reached.values())]
            for method in reached if shared else ():
                row = {"model": model, "method": method, "budget": budget, "benchmarks": len(shared)}
                row["seeds"] = min(len(total[b, method, budget]) for b in shared)
                for name, column in SECONDS.items():
                    estimate = combine(results.of(model, column), {(method, budget): 1.0}, shared, paired=paired)
                    found = estimate_columns(name, estimate)
                    row |= found if name == "step_seconds" else {name: found[name]}
                rows.append(row)
    ends = ["step_seconds_low", "step_seconds_high", "step_seconds_unit"]
    frame = pd.DataFrame(rows, columns=["model", "method", "budget", "benchmarks", "seeds", *SECONDS, *ends])
    comparable = results.experiment.comparable_with_paper
    return frame.merge(paper_figure_4b(results.experiment), how="left") if comparable else frame


def draw(title: str, results: Results, frame: pd.DataFrame) -> Figure:
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
