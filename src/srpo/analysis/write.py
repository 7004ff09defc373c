"""Writes the tables and figures of a report: each is a module that ``reports/outline.yaml`` names.

``tables/NAME.py`` has a function ``table``; ``figures/NAME.py`` has ``TITLE``, ``CAPTION``, ``data`` and ``draw``. The
tables in ``tables/`` depend only on scores and the training clock, so with a modelled clock every machine writes the
same bytes. Those that depend on the machine (wall time, memory) are in ``cost/``.
"""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pandas as pd

from srpo.analysis.outline import COST_TABLES, figures_of, tables_of
from srpo.analysis.results import Results
from srpo.analysis.tables.table import Bold, Table, View, number
from srpo.ground.files import write_text


def make_table(name: str, results: Results) -> Table:
    made: Table = import_module(f"srpo.analysis.tables.{name}").table(results)
    return made


def make_tables(results: Results) -> dict[str, Table]:
    """The tables of the experiment's report, and those of measured seconds."""
    names = [*tables_of(results.experiment, bool(results.gaps)), *COST_TABLES]
    return {name: make_table(name, results) for name in names}


def write_tables(results: Results, folder: Path) -> None:
    """Write every table as ``<name>.csv``, ``.md`` and its caption ``.rst``; measured seconds to ``cost/``."""
    for name, table in make_tables(results).items():
        place = folder.parent / "cost" if name in COST_TABLES else folder
        write_text(place / f"{name}.csv", table_csv(table))
        write_text(place / f"{name}.md", _page(table))
        write_text(place / f"{name}.rst", f"{table.title}. {' '.join(table.notes)}".strip() + "\n")


def table_csv(table: Table) -> str:
    """CSV with fixed decimals; missing values are empty, and there is no negative zero."""
    frame = table.frame.copy()
    for column in frame.columns.intersection(list(table.digits)):
        frame[column] = [None if pd.isna(v) else number(v, table.digits[column]) for v in frame[column]]
    return frame.to_csv(index=False, lineterminator="\n")


def nothing(table: Table) -> str:
    """The text that replaces a table without data."""
    return "No data (yet)." if table.notes else "Not part of this experiment."


def _page(table: Table) -> str:
    views = table.shown
    parts = [f"## {table.title}", *(markdown(view).rstrip() for view in views), *table.notes]
    if any(isinstance(text, Bold) for view in views for _, texts in view.rows for text in texts):
        parts.append("Bold: the highest number of a model in its column.")
    return "\n\n".join([*parts, *([] if views else [nothing(table)])]) + "\n"


def markdown(view: View) -> str:
    """GitHub-flavoured Markdown; group heads are joined to the column heads."""
    heads = [c if isinstance(c, str) else " ".join(filter(None, c)) for c in view.columns]
    lines = [[view.corner, *heads], ["---", *(["---:" if view.numeric else "---"] * len(heads))]]
    for label, texts in view.rows:
        lines.append([*map(_marked, (label, *texts)), *[""] * (len(heads) - len(texts))])
    title = f"### {view.title}\n\n" if view.title else ""
    return title + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _marked(text: str) -> str:
    """Escape text, so that it makes no markup, link, image or further cell."""
    # Markdown ignores an underscore within a word
    plain = re.sub(r"[\\`*<|]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[])", r"\\\g<0>", text)
    plain = re.sub(r"\s*\n\s*", " ", plain)
    return f"**{plain}**" if isinstance(text, Bold) else plain


# ---------------------------------------------------------------- figures


def figure_module(name: str) -> ModuleType:
    return import_module(f"srpo.analysis.figures.{name}")


def figure_title(figure: ModuleType, results: Results) -> str:
    """The figure's title; a toy's figure says so, because a picture travels without its page."""
    return f"{figure.TITLE} · toy" if results.experiment.is_toy else figure.TITLE


def write_figures(results: Results, folder: Path) -> None:
    """Write every figure as PNG, SVG, CSV (what is drawn) and caption.

    A figure that has nothing to show (yet) is written as a note that says so, because the workflow expects its files.
    """
    import matplotlib as mpl

    from srpo.analysis.figures import style

    with mpl.rc_context(style.rc()):
        for name in figures_of(results.experiment):
            figure = figure_module(name)
            frame, title = figure.data(results), figure_title(figure, results)
            drawn = figure.draw(title, results, frame) if len(frame) else style.new_figure(6, 0.6, f"{title}: no data")
            style.save(drawn, folder, name)
            write_text(folder / f"{name}.csv", figure_csv(frame))
            write_text(folder / f"{name}.rst", f"{figure.TITLE}. {figure.CAPTION}\n")


def figure_csv(frame: pd.DataFrame) -> str:
    """A figure's data with six significant digits, without empty columns."""
    full = [c for c in frame.columns if frame.empty or (frame[c].notna() & (frame[c].astype(str) != "")).any()]
    return frame[full].to_csv(index=False, lineterminator="\n", float_format="%.6g")
