"""What a table is, how it is written, and how an experiment's things are called in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from srpo.analysis.grid import MISSING, Cell, Grid, interval, latex, markdown, number
from srpo.analysis.load import Results
from srpo.analysis.scores import AVERAGE, BASE
from srpo.analysis.statistics import Estimate
from srpo.files import write_text

NOT_COMPARABLE = (
    "Models, questions and budgets are miniatures: the numbers are not comparable with the paper's. "
    "The direction of its claims is."
)


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
        """What stands in the place of a table without grids."""
        return "No data (yet)." if self.notes else "Not part of this experiment."


def write_table(table: Table, folder: Path) -> list[Path]:
    """Write ``<name>.csv``, ``<name>.md``, ``<name>.tex`` and its caption ``<name>.rst``; return the paths."""
    contents = {"csv": csv_text(table.frame, table.digits), "md": _markdown(table), "tex": _latex(table)}
    contents["rst"] = f"{table.title}. {' '.join(table.notes)}".strip() + "\n"
    paths = [folder / f"{table.name}.{kind}" for kind in contents]
    for path, text in zip(paths, contents.values(), strict=True):
        write_text(path, text)
    return paths


def csv_text(frame: pd.DataFrame, digits: dict[str, int]) -> str:
    """CSV with fixed decimals: empty where missing, never a negative zero."""
    frame = frame.copy()
    for column in frame.columns.intersection(list(digits)):
        frame[column] = [None if pd.isna(v) else number(v, digits[column]) for v in frame[column]]
    return frame.to_csv(index=False, lineterminator="\n")


def _markdown(table: Table) -> str:
    parts = [f"## {table.title}", *(markdown(grid).rstrip() for grid in table.grids), *table.notes]
    if not table.grids:
        parts.append(table.nothing)
    return "\n\n".join(parts) + "\n"


def _latex(table: Table) -> str:
    """Needs the packages booktabs and multirow; notes are comments, for the author to take up."""
    title = table.title.split(". ", 1)[-1]  # LaTeX numbers tables itself
    notes = [f"% {note}" for note in table.notes] or [f"% {table.nothing}"]
    captions = [". ".join(filter(None, (title, grid.title))) for grid in table.grids]
    labels = [f"tab:{table.name}" + (f"-{i}" if i > 1 else "") for i in range(1, len(captions) + 1)]
    bodies = [latex(*parts) for parts in zip(table.grids, captions, labels, strict=True)]
    return "\n".join([*notes, *bodies]).rstrip() + "\n"


# ---------------------------------------------------------------- cells and notes


def estimate_cell(estimate: Estimate | None, digits: int = 1, sign: bool = False, **looks: bool) -> Cell:
    """A number with its interval, or a dash."""
    if estimate is None:
        return Cell(MISSING)
    ends = interval(estimate.low, estimate.high, digits, sign)
    return Cell(number(estimate.value, digits, sign), interval=ends, **looks)


def over_seeds(estimate: Estimate | None) -> Estimate | None:
    """Without an interval over benchmarks: how these differ is no uncertainty of a level averaged over them."""
    return estimate if estimate is None or estimate.unit != "benchmark" else Estimate(estimate.value)


def count_range(counts: Iterable[float]) -> str:
    """``1`` or ``1–3``: of how many, leaving out empty cells."""
    there = sorted({int(count) for count in counts if count})
    return MISSING if not there else str(there[0]) if len(there) == 1 else f"{there[0]}–{there[-1]}"


_UNITS = {
    "seed": "over training seeds (t; another seed, the same test questions)",
    "question": "over test questions (bootstrap; other questions and samples, the same training run)",
    "benchmark": "over benchmarks (t)",
}


def intervals_note(units: Iterable[str]) -> str:
    """What the 95 % intervals of a table or figure generalise over, from the units they were computed with."""
    there = set(units)
    if not there:
        return ""
    named = [text for unit, text in _UNITS.items() if unit in there]
    if not named:
        return "No intervals: there is one run of each."
    return f"In brackets 95 % intervals {'; or '.join(named)}."


# ---------------------------------------------------------------- names


def method_title(results: Results, name: str) -> str:
    """A method's title; the untrained model is ``Base``."""
    return "Base" if name == BASE else results.experiment.methods[name].title


def benchmark_title(results: Results, name: str) -> str:
    """A benchmark's title."""
    return "Average" if name == AVERAGE else results.experiment.benchmarks[name].title


def budgets_listed(results: Results) -> str:
    """What the budgets' names stand for."""
    training = results.experiment.training
    return (
        ", ".join(f"{name} = {s:g} s" for name, s in training.budgets.items()) + f" of the {training.clock.kind} clock"
    )


def listed(names: Iterable[str]) -> str:
    """Names with commas between."""
    return ", ".join(names) or "no benchmark"


def comparability(results: Results) -> list[str]:
    """The note that an experiment's numbers are not the paper's, if so."""
    return [] if results.experiment.comparable_with_paper else [NOT_COMPARABLE]


def in_matrix_order(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Sort rows as the experiment names things: independent of the order in which files were read."""
    experiment = results.experiment
    orders = {
        "model": list(experiment.models),
        "benchmark": [*experiment.benchmarks, AVERAGE],
        "method": [BASE, *experiment.methods],
        "budget": [BASE, *experiment.training.budgets],
    }
    keys = [c for c in ("model", "method", "benchmark", "budget", "seed") if c in frame]
    rank = pd.DataFrame({k: frame[k].map(orders[k].index) if k in orders else frame[k] for k in keys})
    return frame.loc[rank.sort_values(keys, kind="stable").index].reset_index(drop=True)
