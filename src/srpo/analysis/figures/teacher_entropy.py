"""Figure 1c: uncertainty of the self-teacher."""

import pandas as pd
from matplotlib.figure import Figure

from srpo.analysis.figures.lines import SMOOTHED, Series, draw_by_method, metric_curves
from srpo.analysis.results import Results

TITLE = "Uncertainty of the self-teacher (the paper's figure 1c)"
CAPTION = (
    "Mean entropy of the teacher's next-token distribution on the rollouts that a method distils (SRPO distils wrong "
    f"rollouts only). Compare trends between methods, not levels. {SMOOTHED}"
)


def data(results: Results) -> pd.DataFrame:
    methods = [name for name, method in results.experiment.methods.items() if method.needs_teacher]
    return metric_curves(results, methods, {"": Series("teacher/entropy")})


def draw(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    return draw_by_method(title, results, frame, "teacher entropy, nats")
