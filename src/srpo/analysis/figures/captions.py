"""Captions of figures: what is shown, how many seeds it comes from, and what the bands are."""

import pandas as pd

from srpo.analysis.figures.curves import ALARM, FEW_RUNS, MOST_BANDS
from srpo.analysis.figures.panels import budget_marks
from srpo.analysis.results import Results
from srpo.analysis.tables.table import count_range
from srpo.ground.text import plural

_SMOOTHED = "Lines: centred rolling means over a tenth of the steps. Faint: single steps."


_COVERED = {"seed and question": "training seeds and test questions", "seed": "training seeds"}
"""What an interval of a figure covers, by its sampling unit."""


def _bands(frame: pd.DataFrame) -> str:
    """How many seeds the lines come from, and what their bands are."""
    if frame.empty:
        return ""
    seeds = count_range(frame["seeds"])
    lines = "One seed per line" if seeds == "1" else f"Lines are means over {seeds} seeds"
    over = " or ".join(text for unit, text in _COVERED.items() if unit in set(frame["unit"]))
    return f"{lines}; bands are pointwise 95 % intervals over {over}." if over else f"{lines}, no intervals."


def _as_drawn(frame: pd.DataFrame, bands_hide: bool = False) -> pd.DataFrame:
    """The rows of lines without the unit of bands that :func:`~srpo.analysis.figures.curves.as_drawn` leaves out."""
    runs = frame.groupby(["model", "benchmark", "method"])["seeds"].transform("max")
    return frame.assign(unit=frame["unit"].mask((runs <= FEW_RUNS) | bands_hide, ""))


def _clock_note(results: Results) -> str:
    if budget_marks(results)[0]:
        return f"Dotted verticals: the budgets ({results.budgets_listed})."
    *_, last = results.budget_seconds.values()
    return f"All runs end long before the clock's limit of {last:g} s."


def score_caption(results: Results, frame: pd.DataFrame) -> str:
    """The caption of scores against the training clock."""
    marked = frame["series"] == ALARM
    crosses = f"A cross: a run's own score at its first alarm, a sign of a collapse ({plural(marked.sum(), 'run')}). "
    lines = _as_drawn(frame[~marked], frame["method"].nunique() > MOST_BANDS)
    k = results.experiment.training.validation.rollouts
    return (
        f"Mean reward over {k} samples of each test question (avg@{k}), against the training clock. "
        "Level and dashed: the untrained model. A line has the latest validation of each run at each time. "
        f"{_clock_note(results)} {crosses * bool(marked.any())}{_bands(lines)}"
    ).strip()


def metric_caption(what: str, clock: bool, results: Results, frame: pd.DataFrame) -> str:
    """The caption of a step metric.

    Args:
        what: explains the metric.
        clock: whether the x axis is the training clock, not the step.
    """
    return " ".join(filter(None, (what, _SMOOTHED, _clock_note(results) if clock else "", _bands(_as_drawn(frame)))))


def step_seconds_caption(results: Results, frame: pd.DataFrame) -> str:
    """The caption of the seconds per step; a calibrated clock's are the paper's, so the measured ones stand in."""
    kind = results.experiment.training.clock.kind
    bars = "Bars: 95 % intervals over training seeds." if (frame["step_seconds_unit"] == "seed").any() else ""
    seeds = f"Seeds: {count_range(frame['seeds'])}." if len(frame) else ""
    return (
        f"{'Measured' if kind == 'calibrated' else kind.capitalize()} seconds per step, by phase. Averaged over the "
        "steps up to each budget, and over the benchmarks on which every method has reached it or has ended. "
        f"{seeds} {bars}"
    ).strip()
