"""Figure 3: test scores over training."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from srpo.analysis.figures import style
from srpo.analysis.figures.panels import FEW_RUNS, MOST_BANDS, POINTS, Panels, clock_unit, joined, legend, plot
from srpo.analysis.results import ABLATIONS, Results, RunKey, by_run
from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.estimates import PERCENT

TITLE = "Test score over training (the paper's figure 3)"
CAPTION = (
    "Mean reward over the samples of each test question (avg@k), against the training clock. Level and dashed: the "
    "untrained model. A line has the latest validation of each run at each time, and is their mean over seeds. "
    f"Bands: pointwise 95 % intervals over training seeds and test questions; none of {FEW_RUNS} seeds or fewer, or "
    f"of more than {MOST_BANDS} methods. Dotted verticals: the budgets. A cross: a run's own score at its first "
    "alarm, a sign of a collapse."
)

ALARM = "first alarm of a run"
"""The series of the marks."""
_ALARM_STYLE: dict[str, Any] = {"linestyle": "none", "marker": "X", "markersize": 7, "markeredgecolor": "white"}


def data(results: Results) -> pd.DataFrame:
    """:func:`clock_curves`, and a point where a run gave its first alarm, at its latest avg@k before (percent)."""
    methods = [name for name in results.experiment.methods if name not in ABLATIONS]
    frame, marks = clock_curves(results, methods), []
    alarms = results.signals[results.signals["level"] == "alarm"].sort_values("step", kind="stable")
    for run, signals in by_run(alarms).items():
        if run[2] not in methods or run not in results.validation_logs:
            continue
        first, log = signals.iloc[0], results.validation_logs[run]
        before = log[log["step"] <= first["step"]]
        if len(before):
            value = 100 * before["avg_at_k"].iloc[-1]
            names = dict(zip(("model", "benchmark", "method"), run, strict=False))
            place = {"step": first["step"], "clock": first["clock"], "value": value, "smooth": value}
            marks.append(names | place | {"series": ALARM, "seeds": 1})
    return joined([frame, pd.DataFrame(marks)]) if marks else frame


def clock_curves(results: Results, methods: list[str]) -> pd.DataFrame:
    """The latest avg@k (percent) of each run at common times of the training clock, averaged over runs.

    Runs take different numbers of steps within a budget, so equal steps are not equal times. A line starts when every
    run has a validation. It goes on to the end of the longest run; a finished one keeps its last score, and ``seeds``
    counts the runs that are in each point.
    The intervals are pointwise, over seeds and questions, if there are several seeds.
    """
    by_arm: dict[tuple[str, str, str], list[RunKey]] = {}
    for run in results.validation_logs:
        by_arm.setdefault(run[:3], []).append(run)
    lines = [_clock_line(results, runs, arm) for arm, runs in by_arm.items() if arm[2] in methods]
    return joined([line for line in lines if len(line)])


def _clock_line(results: Results, runs: list[RunKey], arm: tuple[str, str, str]) -> pd.DataFrame:
    """The mean over runs at the times of their validations and at the end."""
    end = min(max(results.budget_seconds.values()), max(results.run_rows[run]["clock"] for run in runs))
    times = np.unique(np.concatenate([results.validation_logs[run]["clock"] for run in runs]))
    times = times[times < end]
    rows = [_moment(time, runs, results) for time in [*times[:: max(1, -(-len(times) // POINTS))], end]]
    names = dict(zip(("model", "benchmark", "method"), arm, strict=True)) | {"series": ""}
    return pd.DataFrame([row | names for row in rows if row])


def _moment(moment: float, runs: list[RunKey], results: Results) -> dict | None:
    """The mean at one time of the clock; None if a run has no validation yet, or all were broken off."""
    scores = []
    for log in (results.validation_logs[run] for run in runs if results.reached(run, moment)):
        place = int(np.searchsorted(log["clock"].to_numpy(), moment, side="right")) - 1
        if place < 0:
            return None
        scores.append(log["question_scores"].iloc[place])
    if len({len(run) for run in scores}) != 1:
        return None  # none, or different test splits
    value = float(100 * np.mean([run.mean() for run in scores]))
    return {"clock": moment, "value": value, "smooth": value, **_band(scores), "seeds": len(scores)}


def _band(runs: list[np.ndarray]) -> dict[str, float | str]:
    """The interval of the mean over runs, in percent, as columns; the runs' scores are between 0 and 1."""
    estimate = contrast([[Arm(100 * np.array(runs))]], PERCENT)
    if not (estimate.has_interval and estimate.several_seeds):  # of one run, an interval says nothing about another
        return {"low": np.nan, "high": np.nan, "unit": ""}
    return {"low": estimate.low, "high": estimate.high, "unit": estimate.sampling_unit}


def draw(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    """avg@k against the training clock, one panel per model and benchmark."""
    panels = Panels(title, results, frame)
    trained = results.validations[["model", "benchmark", "seed"]].drop_duplicates()  # a base model with a curve
    shared = results.bases[~results.bases["model"].map(results.experiment.draws_per_seed).astype(bool)]
    bases = pd.concat([shared, results.bases.merge(trained)])
    base = 100 * bases.groupby(["model", "benchmark"])["avg_at_k"].mean()
    unit, _ = clock_unit(results)
    for axes, model, benchmark, here in panels:
        for method in panels.methods:
            own = here[here["method"] == method]
            line, alarms = (own[own["series"] == series] for series in ("", ALARM))
            look = panels.styles[method]
            plot(axes, line, line["clock"] / unit, band=len(panels.methods) <= MOST_BANDS, **look)
            if len(own):
                axes.plot(alarms["clock"] / unit, alarms["value"], **_ALARM_STYLE, color=look["color"])
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
