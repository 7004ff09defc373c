"""What a table is: a frame for programs, and texts for readers. ``write.py`` writes both."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from srpo.analysis.results import MISSING, Results, records


class Bold(str):
    """A text in bold: the best number of its column, or the title of a group of rows, which has no texts."""


@dataclass(frozen=True)
class View:
    """What a reader sees: a label and texts for each row. A column is a label, or a pair of a group and a label.

    ``numeric``: the texts are numbers and are aligned to the right.
    """

    corner: str
    columns: Sequence[str | tuple[str, str]]
    rows: Sequence[tuple[str, Sequence[str]]]
    title: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """One table: ``frame`` is written as CSV with ``digits`` decimals by column.

    ``views`` are for reading; by default the frame itself. Without any, the experiment has no data for the table.
    """

    title: str
    frame: pd.DataFrame
    notes: Sequence[str] = ()
    digits: Mapping[str, int] = field(default_factory=dict)
    views: Sequence[View] | None = None

    @property
    def shown(self) -> Sequence[View]:
        if self.views is not None or self.frame.empty:
            return self.views or ()
        corner, *columns = map(str, self.frame.columns)
        texts = [[number(v, self.digits[c]) if c in self.digits else str(v) for v in self.frame[c]] for c in columns]
        rows = zip(map(str, self.frame[corner]), zip(*texts, strict=True), strict=True)
        return [View(corner, columns, list(rows))]


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


def cells(
    frame: pd.DataFrame, keys: Sequence[str], name: str, sign: bool = False, best: str | None = None
) -> dict[tuple, str]:
    """The numbers ``name`` of a frame with their intervals, by the values of ``keys``; bold where ``best`` says so."""
    found: dict[tuple, str] = {}
    for row in records(frame):
        ends = interval(row.get(f"{name}_low"), row.get(f"{name}_high"), sign=sign)
        text = f"{number(row[name], sign=sign)} {ends}".strip()
        found[tuple(row[key] for key in keys)] = Bold(text) if best and row[best] else text
    return found


def count_range(counts: Iterable[float]) -> str:
    """The smallest and largest count, ``1–3``, or ``1`` if all are the same; zeros are left out."""
    there = sorted({int(count) for count in counts if count})
    return MISSING if not there else str(there[0]) if len(there) == 1 else f"{there[0]}–{there[-1]}"


_UNITS = {
    "seed and question": "over training seeds and test questions (another run, other questions and samples)",
    "base model and question": "over base models, their training runs and test questions (another base model, another "
    "run, other questions and samples)",
    "base model": "over base models and their training runs (another base model, another run)",
    "seed": "over training seeds (another run)",
    "question": "over test questions (other questions and samples, the same training run)",
}


def intervals_note(frame: pd.DataFrame) -> str:
    """The note on what the 95 % intervals of a table generalise over, from its columns ``_unit``."""
    there = {unit for column in frame if str(column).endswith("_unit") for unit in frame[column]}
    named = [text for unit, text in _UNITS.items() if unit in there]
    if there and not named:
        return "No intervals: there is one run of each."
    return f"In brackets 95 % intervals {'; or '.join(named)}." if named else ""


def comparability(results: Results) -> list[str]:
    """The note that the numbers of an experiment cannot be compared with the paper's, if so."""
    said = "Models, questions or budgets are not the paper's: the numbers are not comparable with the paper's."
    return [] if results.experiment.comparable_with_paper else [said]
