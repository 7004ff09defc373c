"""The specification curve: every SRPO minus GRPO that was measured here or published by others, one row each.

:func:`curve` collects, :func:`draw` draws. Rows of published experiments have an interval over base models, runs and
questions; a search's trials and the numbers of others have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
from board import DIFFERENCES, PAPERS_MODELS, comparisons, papers, papers_average, reproductions
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from srpo.analysis.clocks import clock_frame
from srpo.analysis.figures import style
from srpo.analysis.results import SCORE_TITLES, Results
from srpo.ground.text import plural

ONE, OTHER = "srpo", "grpo"
COLUMNS = ["source", "group", "specification", "value", "low", "high"]
COLOURS = {"budget and score": "#0B6B4A", "one benchmark": "#1F4FA3", "clock": "#7A5195"}
COLOURS |= {"settings, in the search": "#B8860B", "published by others": "#555555", "the paper": "#9B2C1F"}


def curve(published: Mapping[str, Results], tuned: Mapping[str, Any]) -> pd.DataFrame:
    """All of them.

    Args:
        published: experiments with both methods at the same settings, by name.
        tuned: a file of ``configs/tuned``, whose trials try several settings.

    Returns:
        One row per specification with the columns :data:`COLUMNS`: points, ``low`` and ``high`` of the 95 % interval
        where there is one. ``source`` is the experiment, the tuned file's search, or who published the number.
    """
    rows = [{"source": name} | row for name, results in published.items() for row in _measured(results)]
    rows += [{"source": tuned["search"]} | row for row in _searched(tuned)]
    return pd.DataFrame([*rows, *_of_others()], columns=COLUMNS)


def _measured(results: Results) -> Iterator[dict[str, Any]]:
    """Of each model; several models, and real ones, by the score that decides alone."""
    models, budgets = results.experiment.models, list(results.budget_seconds)
    alone = len(models) > 1 or not results.experiment.is_toy

    def row(model: str, group: str, specification: str, budget: str, over: list[str], score: str) -> dict[str, Any]:
        found = results.estimate(model, {(ONE, budget): 1.0, (OTHER, budget): -1.0}, over, score)
        assert found is not None  # published runs are complete
        said = {"group": group, "specification": f"{models[model].title}, " * (len(models) > 1) + specification}
        return said | {"value": found.value, "low": found.low, "high": found.high}

    for model in models:
        over = results.benchmarks(model, (ONE, OTHER))
        for number, budget in enumerate(budgets, 1):
            for score, title in SCORE_TITLES.items():
                if not alone or score == results.deciding:
                    yield row(model, "budget and score", f"budget {number}, {title}", budget, over, score)
        for benchmark in over if len(over) > 1 else ():
            named = f"{results.benchmark_title(benchmark)}, budget {len(budgets)}"
            yield row(model, "one benchmark", named, budgets[-1], [benchmark], results.deciding)
    for frame in () if alone else (clock_frame(results), clock_frame(results, measured=True)):
        for each in frame[(frame["method"] == ONE) & (frame["other"] == OTHER)].to_dict("records"):
            if each["clock"] != "training clock":
                ends = {"value": each["difference"], "low": each["difference_low"], "high": each["difference_high"]}
                yield {"group": "clock", "specification": each["clock"]} | ends


def _searched(tuned: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    found: dict[str, dict[str, float]] = {}
    for trial in tuned["trials"]:
        values = trial["values"]
        named = f"learning rate {values['learning_rate']:g}, {8 // values['mini_batch_questions']} updates per batch"
        found.setdefault(named.replace(", 1 updates", ", 1 update"), {})[trial["method"]] = trial["score"]
    for named, by_method in found.items():
        said = {"group": "settings, in the search", "specification": named}
        yield said | {"value": by_method[ONE] - by_method[OTHER]}


def _of_others() -> Iterator[dict[str, Any]]:
    for model in PAPERS_MODELS:
        for hours in (1, 5, 10):
            value = papers_average(model, ONE, hours) - papers_average(model, OTHER, hours)
            yield {"source": "paper", "group": "the paper", "specification": f"{model}, {hours} h", "value": value}
    for when in (when for one, other, when, _ in DIFFERENCES if (one, other) == (ONE, OTHER)):
        for each in comparisons(papers(reproductions()), (ONE, OTHER), when):
            on = "five benchmarks" if each.benchmarks == 5 else plural(each.benchmarks, "benchmark")
            said = f"{each.model}, {'the best' if 'best' in when else 'short training'}, {on}"
            named = {"source": each.source, "group": "published by others", "specification": said}
            yield named | {"value": each.value, "low": each.value - each.chance, "high": each.value + each.chance}


def draw(frame: pd.DataFrame) -> Figure:
    """All specifications by group, sorted by size within each."""
    figure = style.new_figure(7.5, 0.17 * len(frame) + 1.2, "Every SRPO minus GRPO, by specification")
    axes: Axes = figure.add_subplot()
    place, ticks = 0, []
    for group, rows in frame.groupby("group", sort=False):
        for row in rows.sort_values("value", ascending=False).itertuples():
            colour = COLOURS[str(group)]
            axes.plot([row.low, row.high], [place, place], color=colour, linewidth=1.2, alpha=0.7)
            axes.plot(row.value, place, "o", color=colour, markersize=3.5)
            ticks.append((place, f"{row.specification} · {row.source}"))
            place += 1
        axes.annotate(str(group), (1.01, place - 0.5), xycoords=("axes fraction", "data"), color=colour, fontsize=7)
        place += 1
    axes.axvline(0, color=style.BASE_COLOUR, linewidth=0.8)
    axes.set(yticks=[at for at, _ in ticks], yticklabels=[said for _, said in ticks], ylim=(place - 1, -1))
    axes.tick_params(axis="y", labelsize=6)
    axes.set_xlabel("SRPO minus GRPO, points")
    return figure
