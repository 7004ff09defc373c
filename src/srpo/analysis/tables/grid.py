"""The layout of a table, from which Markdown and HTML are made."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from srpo.analysis.results import MISSING

EXCERPT = 240
"""Maximum number of characters that a cell shows."""


@dataclass(frozen=True)
class Cell:
    """One cell over ``span`` columns; ``best`` is bold."""

    text: str
    best: bool = False
    span: int = 1
    interval: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.interval}".strip()


@dataclass(frozen=True)
class Row:
    """A row with its label; a ``heading`` row begins a group of rows."""

    label: str
    cells: Sequence[Cell] = ()
    heading: bool = False


@dataclass(frozen=True)
class Grid:
    """Rows under one or two lines of column heads; ``columns`` are (group, label) pairs.

    ``numeric``: the cells are numbers and are aligned to the right.
    """

    corner: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Row]
    title: str = ""
    numeric: bool = True

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The upper line of heads with the number of columns under each; empty if there is none."""
        if not any(group for group, _ in self.columns):
            return []
        return [(group, len(list(members))) for group, members in groupby(self.columns, key=lambda c: c[0])]


def number(value: float | None, digits: int = 1, sign: bool = False) -> str:
    """A fixed-point number, or a dash if it is missing."""
    if value is None or math.isnan(value):
        return MISSING
    text = f"{value:{'+' if sign else ''}.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text


def interval(low: float | None, high: float | None, digits: int = 1, sign: bool = False) -> str:
    """``[low, high]``; empty if it is missing or both ends are equal."""
    if low is None or high is None or math.isnan(low) or math.isnan(high) or low == high:
        return ""
    return f"[{number(low, digits, sign)}, {number(high, digits, sign)}]"


def mark_best(values: Sequence[float]) -> list[bool]:
    """Which of ``values`` equal the highest one at the shown decimal; none if there are fewer than two values."""
    there = [round(v, 1) for v in values if not math.isnan(v)]
    return [len(there) > 1 and not math.isnan(v) and round(v, 1) == max(there) for v in values]


def text_grid(corner: str, columns: Iterable[str], rows: Iterable[tuple[str, Iterable[Any]]], **options: Any) -> Grid:
    body = [Row(label, [Cell(str(value)) for value in values]) for label, values in rows]
    return Grid(corner, [("", column) for column in columns], body, **options)


def markdown(grid: Grid) -> str:
    """GitHub-flavoured Markdown; spanned columns are left empty, group heads are joined to the column heads."""
    heads = [grid.corner, *(" ".join(filter(None, column)) for column in grid.columns)]
    align = ["---", *(["---:" if grid.numeric else "---"] * len(grid.columns))]
    lines = [_line(heads), _line(align)]
    for row in grid.rows:
        texts = [f"**{_escape(row.label)}**" if row.heading else _escape(row.label)]
        texts += [f"**{_escape(str(cell))}**" if cell.best else _escape(str(cell)) for cell in _spread(grid, row)]
        lines.append(_line(texts))
    title = f"### {grid.title}\n\n" if grid.title else ""
    return title + "\n".join(lines) + "\n"


def _spread(grid: Grid, row: Row) -> list[Cell]:
    """One cell a column: a spanning cell is followed by empty ones."""
    cells = [part for cell in row.cells for part in (cell, *[Cell("")] * (cell.span - 1))]
    return cells + [Cell("")] * (len(grid.columns) - len(cells))


def _line(texts: Iterable[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def _escape(text: str) -> str:
    """Escape text, so that it makes no markup, link, image or further cell."""
    # Markdown ignores an underscore within a word
    text = re.sub(r"[\\`*<|]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[])", r"\\\g<0>", text)
    return re.sub(r"\s*\n\s*", " ", text)
