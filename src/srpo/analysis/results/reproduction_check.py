"""Checks rows for the board before they are added: are provenance, method, budget, protocol and seeds there?"""

import csv
import re
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field, ValidationError, model_validator

from srpo.analysis.results.board import board_claims, judge
from srpo.analysis.results.reproductions import NUMBERS, SERIES, reproductions
from srpo.errors import SrpoError
from srpo.files import read_bytes
from srpo.schema import Config

Text = Annotated[str, Field(min_length=1)]


class ReproductionRow(Config):
    """One row; ``reproductions.py`` explains the columns. An empty field is None."""

    source: Text
    reference: Annotated[str, Field(pattern=r"^(arXiv:\d{4}\.\d{5}|[\w.-]+/[\w.-]+)$")]
    document: Text
    run: str | None
    model: Text
    method: Literal["base", "grpo", "sdpo", "srpo"]
    paper_method: Literal["yes", "no"] | None
    benchmark: Text
    when: Literal["base", "best", "1h", "5h", "short", "last"]
    steps: Annotated[int, Field(ge=0)] | None
    score: Annotated[float, Field(ge=0, le=100)]
    learning_rate: Annotated[float, Field(gt=0, lt=1)] | None
    updates_per_step: Annotated[int, Field(gt=0)] | None
    seeds: Annotated[int, Field(gt=0)] | None
    collapse: Literal["entropy", "format", "length", "unspecified"] | None
    caveat: str | None
    added: date
    read: Literal["source", "second-hand"]

    @model_validator(mode="after")
    def _says_what_decides(self) -> "ReproductionRow":
        base = self.method == "base"
        if base != (self.when == "base"):
            raise ValueError("method base and when base belong together")
        if base:
            return self
        if self.paper_method is None:
            raise ValueError("paper_method is empty: yes, or no if routing, teacher or weights are not the paper's")
        asked: list[tuple[str, str]] = [
            ("seeds", "how many runs are behind the score?"),
            ("learning_rate", "is it that of the other methods?"),
            ("updates_per_step", "the paper takes 4 for GRPO, 1 for the others"),
        ]
        if self.when not in ("1h", "5h"):
            asked.append(("steps", "how long is the run?"))
        unknown = [f"{name} is empty: {why}" for name, why in asked if getattr(self, name) is None]
        if unknown and not self.caveat:
            raise ValueError(f"{'; '.join(unknown)} If nobody knows, caveat says so")
        if self.paper_method == "no" and not self.caveat:
            raise ValueError("paper_method is no: caveat says what is not the paper's")
        return self


def problems(path: Path) -> list[str]:
    """What is wrong with a file of new rows, one line for each row or column; empty if they may be added.

    Raises:
        SrpoError: if the file cannot be read, or its columns are not those of ``reproductions.csv``.
    """
    known = reproductions()
    found, seen = [], {tuple(row) for row in known[[*SERIES, "benchmark"]].astype(str).values}
    references = dict(known[["source", "reference"]].values)
    for line, raw in _rows(path):
        where = f"{path}, line {line}"
        try:
            row = ReproductionRow.model_validate(raw)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                column, said = ".".join(map(str, each["loc"])), each["msg"].removeprefix("Value error, ")
                value = f"{column} = {raw[column] or ''}: " if column else ""
                found.append(f"{where}: {value}{said[:1].lower()}{said[1:]}")
            continue
        key = tuple(str(getattr(row, name) or "") for name in [*SERIES, "benchmark"])
        if key in seen:
            found.append(f"{where}: a second score of {', '.join(filter(None, key))}; name its run")
        if references.setdefault(row.source, row.reference) != row.reference:
            found.append(f"{where}: reference = {row.reference}: {row.source} has {references[row.source]}")
        seen.add(key)
    return found


def changed_verdicts(path: Path) -> list[str]:
    """Claims of the board whose verdict is another one with the rows of a file, which :func:`problems` found sound."""
    known = reproductions()
    new = pd.DataFrame([raw for _, raw in _rows(path)]).fillna("")
    new = new.assign(**{name: pd.to_numeric(new[name]) for name in NUMBERS}).astype(NUMBERS)
    both = pd.concat([known, new], ignore_index=True)
    found = []
    for claim in board_claims():
        before, after = judge(claim, known).verdict, judge(claim, both).verdict
        if before != after:
            found.append(f"{claim.claim}: {before}, with these rows {after}")
    return found


def _rows(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The rows of a file with their lines; an empty field is None."""
    try:
        reader = csv.DictReader(re.sub(r"\r\n?", "\n", read_bytes(path).decode("utf-8-sig")).splitlines())
    except UnicodeDecodeError as error:
        raise SrpoError(f"{path}: not UTF-8: {error.reason}") from error
    columns = list(ReproductionRow.model_fields)
    if list(reader.fieldnames or []) != columns:
        raise SrpoError(f"{path}: its first line names the columns: {','.join(columns)}")
    rows = []
    for row in reader:
        if None in row or None in row.values():
            raise SrpoError(
                f"{path}, line {reader.line_num}: not {len(columns)} fields; a field with a comma is quoted"
            )
        rows.append((reader.line_num, {name: value or None for name, value in row.items()}))
    if not rows:
        raise SrpoError(f"{path}: no row")
    return rows
