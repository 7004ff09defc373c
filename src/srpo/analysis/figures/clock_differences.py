"""The same runs under other clocks."""

import pandas as pd
from matplotlib.figure import Figure

from srpo.analysis.clocks import clock_frame
from srpo.analysis.figures import style
from srpo.analysis.figures.forest import plain_panel
from srpo.analysis.figures.panels import name_row
from srpo.analysis.results import Results

TITLE = "The same runs under other clocks"
CAPTION = (
    "Each benchmark is judged at the largest budget that all its runs reach on the clock, by the mean of the last "
    "three validations. Strong: the 95 % interval does not contain 0."
)

_SHORT = {"difference": "value", "difference_low": "low", "difference_high": "high"}


def data(results: Results) -> pd.DataFrame:
    """The differences of clocks that a machine does not change; one run of each has no interval."""
    frame = clock_frame(results).dropna(subset="difference")
    frame.loc[frame["difference_unit"] == "question", ["difference_low", "difference_high"]] = float("nan")
    return frame


def draw(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    """A row of panels per model, one for each pair of methods; a line per clock."""
    models, clocks = list(dict.fromkeys(frame["model"])), list(dict.fromkeys(frame["clock"]))
    pairs = list(frame[["method", "other"]].drop_duplicates().itertuples(index=False))
    figure = style.new_figure(9.0, 0.6 + (0.4 + 0.2 * len(clocks)) * len(models), title)
    grid = figure.subplots(len(models), len(pairs), squeeze=False, sharex=True)
    for line, model in zip(grid, models, strict=True):
        for axes, (one, other) in zip(line, pairs, strict=True):
            here = frame[(frame["model"] == model) & (frame["method"] == one) & (frame["other"] == other)]
            plain_panel(axes, here.rename(columns=_SHORT), clocks, "clock")
            if model == models[0]:
                axes.set_title(f"{results.method_title(one)} − {results.method_title(other)}")
        line[0].set_yticks(range(len(clocks)), clocks)
        if len(models) > 1:
            name_row(line[-1], results.experiment.models[model].title)
    for axes in grid[-1]:
        axes.set_xlabel("points")
    return figure
