"""Figure 5: where rollouts go."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from srpo.algorithm.branches import comparable_branches
from srpo.analysis.figures import style
from srpo.analysis.figures.lines import SMOOTHED, Series, metric_curves
from srpo.analysis.figures.panels import Panels, legend, plot
from srpo.analysis.results import Results
from srpo.analysis.statistics.estimates import PERCENT

TITLE = "Where rollouts go (the paper's figure 5)"
CAPTION = (
    "For methods that use both branches: the shares of each step's rollouts that go to each branch, that are "
    f"correct, and that have a sibling available (another rollout of the question is correct). {SMOOTHED}"
)

_SERIES = {
    **{
        f"routed to {b.title}": Series(f"routing/{b.name}_fraction", 100.0, branch=b.name, bounds=PERCENT)
        for b in comparable_branches()
    },
    "correct": Series("routing/correct_fraction", 100.0, bounds=PERCENT),
    "sibling available": Series("routing/sibling_available_fraction", 100.0, bounds=PERCENT),
}
_STYLES: list[dict[str, Any]] = [
    *({"color": style.branch_colour(branch.name), "linewidth": 2.4} for branch in comparable_branches()),
    # dashed: it often lies on top of the share routed to GRPO, which must stay visible
    {"color": "#111111", "linewidth": 0.9, "linestyle": (0, (4, 3))},
    {"color": "#888888", "linestyle": ":"},
]


def data(results: Results) -> pd.DataFrame:
    methods = [name for name, method in results.experiment.methods.items() if method.routes_samples]
    return metric_curves(results, methods, _SERIES)


def draw(title: str, results: Results, frame: pd.DataFrame) -> Figure:
    """One panel per model, method and benchmark, with a line per share."""
    panels = Panels(title, results, frame, row_a_method=True)
    there = set(frame["series"])
    styles = {name: own for name, own in zip(_SERIES, _STYLES, strict=True) if name in there}
    for axes, _, _, here in panels:
        for name, options in styles.items():
            line = here[here["series"] == name]
            plot(axes, line, line["step"], **options)
        axes.set_ylim(-3, 103)
    panels.share_y("share of rollouts, %")
    panels.time_axis("step")
    legend(panels.figure, [Line2D([], [], label=name, **options) for name, options in styles.items()])
    return panels.figure
