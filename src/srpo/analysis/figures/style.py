"""The style of all figures: one palette, one set of sizes, and files with the same bytes each time."""

import textwrap
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image

# Okabe and Ito's palette, which people with colour blindness can tell apart. Lines differ in dash pattern too, for
# printing in grey. A method keeps its style in every figure. Methods that are not listed here get the spare styles, in
# the order of the experiment.
_METHODS: dict[str, tuple[str, tuple[float, ...], str]] = {
    "grpo": ("#0072B2", (), "o"),
    "sdpo": ("#D55E00", (4, 1.5), "s"),
    "srpo": ("#009E73", (), "D"),
    "srpo_without_weighting": ("#CC79A7", (4, 1.5), "^"),
    "advantage_mix": ("#E69F00", (1, 1), "v"),
    "sdpo_failed_only": ("#56B4E9", (2, 1), "<"),
    "sdpo_correct_only": ("#7A5195", (2, 1), ">"),
    # controls: a shade of their method
    "grpo_at_srpo_settings": ("#003A5C", (1, 1), "H"),
    "srpo_equal_loss_scale": ("#73C9AD", (1, 1), "d"),
    "grpo_with_anchor": ("#6BAED6", (4, 1, 1, 1), "P"),
}
_SPARE_COLOURS = ["#332288", "#999933", "#882255", "#44AA99", "#555555"]
_SPARE_COLOURS += ["#AA4499", "#88CCEE", "#DDCC77", "#117733", "#661100"]
_SPARE_DASHES = [(6, 1.5, 1, 1.5), (4, 1.5), (1, 1)]
_SPARE_MARKERS = ["p", "h", "*", "d", "8", "^", "v"]
PHASE_COLOURS = {
    "generate": "#88AADD",
    "reward": "#99BB66",
    "log_prob": "#DDAA33",
    "teacher": "#B07AA1",
    "update": "#8C8C8C",
}
BASE_COLOUR = "#444444"
FAINT = 0.22
BAND = 0.14
_DOTS_PER_INCH = 150
_SVG_SALT = "srpo"


def method_styles(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour, dash pattern and marker of each method's line, as arguments of matplotlib."""
    # 10, 3 and 7 of them: no two methods share all three, and a colour that comes again has another dash and marker
    spare = zip(cycle(_SPARE_COLOURS), cycle(_SPARE_DASHES), cycle(_SPARE_MARKERS), strict=True)
    styles = {}
    for method in methods:
        colour, dashes, marker = _METHODS.get(method) or next(spare)
        styles[method] = {"color": colour, "linestyle": (0, dashes) if dashes else "-", "marker": marker}
    return styles


def rc() -> dict[Any, Any]:
    """matplotlib's settings for all figures."""
    return {
        **mpl.rcParamsDefault,
        **sns.axes_style("whitegrid"),
        **sns.plotting_context("paper"),
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same glyphs on every machine
        "font.size": 9.0,
        "axes.titlesize": 9.5,
        "axes.labelsize": 9.0,
        "xtick.labelsize": 8.5,
        "ytick.labelsize": 8.5,
        "legend.fontsize": 9.0,
        "legend.frameon": False,
        "figure.titlesize": 11.0,
        "axes.edgecolor": "#999999",
        "grid.color": "#E4E4E4",
        "grid.linewidth": 0.7,
        "axes.axisbelow": True,
        "lines.linewidth": 1.5,
        "lines.markersize": 3.2,
        "svg.hashsalt": _SVG_SALT,
        "svg.fonttype": "path",
    }


def new_figure(width: float, height: float, title: str) -> Figure:
    """A titled figure of ``width`` x ``height`` inches. Call within ``mpl.rc_context(rc())``."""
    lines = textwrap.wrap(title, int(width / 0.09))  # inches a bold letter
    layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.06)
    figure = Figure(figsize=(width, height + 0.2 * (len(lines) - 1)), dpi=_DOTS_PER_INCH, layout=layout)
    FigureCanvasAgg(figure)
    figure.suptitle("\n".join(lines), x=0.01, ha="left", fontweight="bold")
    return figure


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write PNG and SVG without dates or random ids."""
    folder.mkdir(parents=True, exist_ok=True)
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    canvas = figure.canvas
    assert isinstance(canvas, FigureCanvasAgg)
    canvas.draw()
    # few colours are used: with a palette the file, which the report embeds, has a third of the bytes
    drawn = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    palette = drawn.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    palette.save(png, dpi=(_DOTS_PER_INCH, _DOTS_PER_INCH))
    figure.set_layout_engine(None)  # the layout is computed once, because it takes longer than drawing
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [png, svg]


def branch_colour(name: str) -> str:
    """The colour of the method that uses only this branch; grey if there is no such method."""
    return _METHODS[name][0] if name in _METHODS else "#7F7F7F"
