"""Captions of figures: what is shown, how many seeds it comes from, and what the bands are."""

from collections.abc import Iterable

import pandas as pd

from srpo.analysis.figures.curves import ALARM, ELSEWHERE, MOST_BANDS, RUN
from srpo.analysis.results.load import Results
from srpo.analysis.results.titles import budgets_listed, count_range, seconds_per_step

_SMOOTHED = "Lines: centred rolling means over a tenth of the steps. Faint: single steps."


_COVERED = {
    "seed and question": "training seeds and test questions",
    "base model and question": "base models, training runs and test questions",
    "seed": "training seeds",
}


def covered(sampling_units: Iterable[str]) -> str:
    """What the intervals of a figure cover, by their sampling units; empty if there are none."""
    there = set(sampling_units)
    return " or ".join(text for unit, text in _COVERED.items() if unit in there)


def _bands(frame: pd.DataFrame) -> str:
    """How many seeds the lines come from, and what their bands are."""
    if frame.empty:
        return ""
    seeds = count_range(frame["seeds"])
    lines = "One seed per line" if seeds == "1" else f"Lines are means over {seeds} seeds"
    over = covered(frame["unit"])
    return f"{lines}; bands are pointwise 95 % intervals over {over}." if over else f"{lines}, no intervals."


def _seeds(frame: pd.DataFrame) -> str:
    seeds = count_range(frame["seeds"])
    return f"{seeds} {'seed' if seeds == '1' else 'seeds'}"


def _clock_note(results: Results) -> str:
    return f"Dotted verticals: the budgets ({budgets_listed(results)})."


def score_caption(what: str, results: Results, frame: pd.DataFrame, against: str = "clock") -> str:
    """The caption of a score against the training clock or step; ``what`` names the methods."""
    marked = frame["series"] == ALARM
    alarms = f"Crosses: the first alarm of a run ({marked.sum()}), at its latest validation. " if marked.any() else ""
    published = frame["series"] == ELSEWHERE
    others = (
        "Diamonds at the right: published bests of others, with other settings and clocks. " if published.any() else ""
    )
    single = frame["series"].str.startswith(RUN)
    thin = "Thin: the single runs, at their validations, of a mean of two or three; such a mean has no band. "
    runs = thin if single.any() else ""
    arm = ["model", "benchmark", "method"]
    with_runs = pd.MultiIndex.from_frame(frame[arm]).isin(pd.MultiIndex.from_frame(frame.loc[single, arm]))
    without_band = with_runs | (frame["method"].nunique() > MOST_BANDS)
    frame = frame.assign(unit=frame["unit"].mask(without_band, ""))[~marked & ~published & ~single]
    note = f"A line has the latest validation of each run at each time. {_clock_note(results)} "
    k = results.experiment.training.validation.rollouts
    return (
        f"{what}: mean reward over {k} samples of each test question (avg@{k}), against the training {against}. "
        f"Dashed: the untrained model. {note if against == 'clock' else ''}{alarms}{others}{runs}{_bands(frame)}"
    ).strip()


def average_caption(what: str, results: Results, frame: pd.DataFrame) -> str:
    """The caption of a score averaged over the benchmarks; ``what`` names the methods."""
    k = results.experiment.training.validation.rollouts
    return (
        f"{what}: the latest avg@{k} of each run at each time of the training clock, averaged over the benchmarks. "
        f"A line starts when every run has a validation. {_clock_note(results)} {_bands(frame)}"
    ).strip()


def metric_caption(what: str, clock: bool, results: Results, frame: pd.DataFrame) -> str:
    """The caption of a step metric.

    Args:
        what: explains the metric.
        clock: whether the x axis is the training clock, not the step.
    """
    return " ".join(filter(None, (what, _SMOOTHED, _clock_note(results) if clock else "", _bands(frame))))


def step_seconds_caption(results: Results, frame: pd.DataFrame) -> str:
    """The caption of the seconds per step."""
    bars = "Bars: 95 % intervals over training seeds." if (frame["step_seconds_unit"] == "seed").any() else ""
    seeds = f"From {_seeds(frame)}." if len(frame) else ""
    return (
        f"{seconds_per_step(results)}, by phase. Averaged over the steps up to each budget, and over the benchmarks on "
        "which every method of the model has reached the budget or its step limit. "
        f"{seeds} {bars}"
    ).strip()
