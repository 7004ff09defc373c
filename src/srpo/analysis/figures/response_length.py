"""Figure 4a: response length over training."""

import pandas as pd
from matplotlib.figure import Figure

from srpo.analysis.figures.lines import SMOOTHED, Series, draw_by_method, metric_curves
from srpo.analysis.results import Results

TITLE = "Response length over training (the paper's figure 4a)"
CAPTION = f"Mean length of the training rollouts, against the training clock. {SMOOTHED} Dotted verticals: the budgets."


def data(results: Results) -> pd.DataFrame:
    return metric_curves(results, results.experiment.methods, {"": Series("response_length/mean")})


def draw(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    return draw_by_method(title, results, frame, "response length, tokens", "clock")
