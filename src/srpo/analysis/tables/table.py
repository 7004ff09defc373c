"""The class of tables, the writers of its files, and cells and notes that tables share."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from srpo.analysis.results import MISSING, Results, records
from srpo.analysis.statistics.estimates import Estimate
from srpo.analysis.tables.grid import Cell, Grid, interval, markdown, number
from srpo.ground.files import write_text

NOT_COMPARABLE = "Models, questions or budgets are not the paper's: the numbers are not comparable with the paper's."


@dataclass(frozen=True)
class Table:
    """One table: ``frame`` is written as CSV with ``digits`` decimals by column, ``grids`` for reading."""

    name: str
    title: str
    notes: list[str]
    frame: pd.DataFrame
    digits: dict[str, int]
    grids: list[Grid]

    @property
    def nothing(self) -> str:
        """The text that replaces a table without grids."""
        return "No data (yet)." if self.notes else "Not part of this experiment."


def write_table(table: Table, folder: Path) -> list[Path]:
    """Write ``<name>.csv``, ``<name>.md`` and its caption ``<name>.rst``; return the paths."""
    contents = {"csv": table_csv(table.frame, table.digits), "md": _markdown(table)}
    contents["rst"] = f"{table.title}. {' '.join(table.notes)}".strip() + "\n"
    paths = [folder / f"{table.name}.{kind}" for kind in contents]
    for path, text in zip(paths, contents.values(), strict=True):
        write_text(path, text)
    return paths


def table_csv(frame: pd.DataFrame, digits: dict[str, int]) -> str:
    """CSV with fixed decimals; missing values are empty, and there is no negative zero."""
    frame = frame.copy()
    for column in frame.columns.intersection(list(digits)):
        frame[column] = [None if pd.isna(v) else number(v, digits[column]) for v in frame[column]]
    return frame.to_csv(index=False, lineterminator="\n")


def _markdown(table: Table) -> str:
    parts = [f"## {table.title}", *(markdown(grid).rstrip() for grid in table.grids), *table.notes]
    if any(cell.best for grid in table.grids for row in grid.rows for cell in row.cells):
        parts.append("Bold: the highest number of a model in its column.")
    if not table.grids:
        parts.append(table.nothing)
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- cells and notes


def estimate_cell(estimate: Estimate | None, digits: int = 1, sign: bool = False) -> Cell:
    """A number with its interval, or a dash."""
    if estimate is None:
        return Cell(MISSING)
    ends = interval(estimate.low, estimate.high, digits, sign)
    return Cell(number(estimate.value, digits, sign), interval=ends)


def grid_of(
    frame: pd.DataFrame, rows: str | list[str], columns: str | list[str], value: str, **shown: Any
) -> pd.DataFrame:
    """The numbers ``value`` of a tidy frame as cells with their intervals, one row per ``rows``.

    Args:
        shown: as for :func:`record_cell`.
    """
    cells = [record_cell(record, value, **shown) for record in records(frame)]
    with_cells = frame.assign(cell=pd.Series(cells, frame.index, dtype=object))
    return with_cells.pivot(index=rows, columns=columns, values="cell")


def cells_at(grid: pd.DataFrame, row: Any, columns: Iterable[Any]) -> list[Cell]:
    """The cells of one row of :func:`grid_of`, in the order of ``columns``; a dash if there is none."""
    found = grid.loc[row].to_dict() if row in grid.index else {}
    cells = [found.get(column) for column in columns]
    return [cell if isinstance(cell, Cell) else Cell(MISSING) for cell in cells]


def record_cell(record: dict[str, Any], name: str, sign: bool = False, best: str | None = None) -> Cell:
    """The number ``name`` of a frame's row with its interval, or a dash.

    Args:
        best: the column that says whether the cell is bold.
    """
    low, high = record.get(f"{name}_low", math.nan), record.get(f"{name}_high", math.nan)
    ends = interval(low, high, sign=sign)
    return Cell(number(record[name], sign=sign), bool(best and record[best]), interval=ends)


_UNITS = {
    "seed and question": "over training seeds and test questions (another run, other questions and samples)",
    "base model and question": "over base models, their training runs and test questions (another base model, another "
    "run, other questions and samples)",
    "base model": "over base models and their training runs (another base model, another run)",
    "seed": "over training seeds (another run)",
    "seed, run SD": "over training seeds, with the spread of the methods with several (another run)",
    "question, run SD": "over test questions, widened by the spread between training seeds of the methods with several "
    "(another run, other questions and samples)",
    "question": "over test questions (other questions and samples, the same training run)",
}


def intervals_note(units: Iterable[str]) -> str:
    """The note on what the 95 % intervals of a table generalise over, from their units."""
    there = set(units)
    if not there:
        return ""
    named = [text for unit, text in _UNITS.items() if unit in there]
    if not named:
        return "No intervals: there is one run of each."
    return f"In brackets 95 % intervals {'; or '.join(named)}."


def comparability(results: Results) -> list[str]:
    """The note that the numbers of an experiment cannot be compared with the paper's, if so."""
    return [] if results.experiment.comparable_with_paper else [NOT_COMPARABLE]


def count_range(counts: Iterable[float]) -> str:
    """The smallest and largest count, ``1–3``, or ``1`` if all are the same; zeros are left out."""
    there = sorted({int(count) for count in counts if count})
    return MISSING if not there else str(there[0]) if len(there) == 1 else f"{there[0]}–{there[-1]}"
