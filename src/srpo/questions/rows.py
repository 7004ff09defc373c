"""Questions as people keep them: JSON lines, parquet or a data set, a row with prompt and answer for each question."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field, model_validator

from srpo.ground.errors import SrpoError
from srpo.ground.schema import Config
from srpo.questions.rewards import compute_reward

_PARQUET = b"PAR1"


class Columns(Config):
    """The columns of a question's parts. The data need ``system`` only if it has another name here.

    ``response`` is a right response, for a warm start with the corpus ``files``. Under another name, one row to train
    needs it (:meth:`check_responses`).
    """

    prompt: str = "prompt"
    answer: str = "answer"
    system: str = "system"
    response: Annotated[str, Field(exclude_if=lambda value: value == "response")] = "response"

    @model_validator(mode="after")
    def _differ(self) -> Columns:
        columns = [getattr(self, name) for name in type(self).model_fields]
        if len({*columns}) < len(columns):
            raise ValueError(f"prompt, answer, system and response = {', '.join(columns)}: give different columns")
        return self

    def check_responses(self, train: Sequence[Row], where: str) -> None:
        """Check that a row has a response, if its column has another name."""
        if self.response != "response" and not any(row.response for row in train):
            unread = ", ".join(sorted({column for row in train for column in row.unread})) or "none"
            what = f"{where}: columns.response = {self.response}: no row has a text in it"
            raise SrpoError(f"{what}; columns that are not read: {unread}")

    def row(self, record: Mapping[str, Any], where: str) -> Row:
        """A record as a question."""
        names = (self.prompt, self.answer, self.system, self.response)
        values: list[Any] = [record.get(name) for name in names]
        prompt, answer, system, response = values
        no_system = self.system != "system" and self.system not in record
        optional = [(self.system, None if no_system else system or ""), (self.response, response or "")]
        for column, value in [(self.prompt, prompt), (self.answer, answer), *optional]:
            if not isinstance(value, str) or (column == self.prompt and not value.strip()):
                raise SrpoError(f"{where}: {column} = {value!r:.100}: must be text")
        before = [{"role": "system", "content": system}] if system else []
        unread = tuple(record.keys() - {self.prompt, self.answer, self.system, self.response})
        return Row([*before, {"role": "user", "content": prompt}], answer, response or None, where, unread)


@dataclass(frozen=True)
class Row:
    """A question: its chat messages (a system message only if the row has one), its answer, and maybe a response.

    ``where`` is its file and line, or row, and ``unread`` its other columns, for messages.
    """

    messages: list[dict[str, str]]
    ground_truth: str
    response: str | None = None
    where: str = field(default="", compare=False)
    unread: tuple[str, ...] = field(default=(), compare=False)

    @property
    def text(self) -> str:
        """All that is asked, the system message first."""
        return "\n".join(message["content"] for message in self.messages)


def parse_rows(content: bytes, where: str, columns: Columns | None = None) -> list[Row]:
    """The questions of a file: parquet if it begins like one, otherwise JSON lines; empty lines do not count."""
    columns = columns or Columns()
    records = _parquet(content, columns) if content.startswith(_PARQUET) else _json_lines(content, where)
    return [columns.row(record, f"{where}:{number}") for number, record in records]


def check_responses(reward: str, rows: Sequence[Row]) -> None:
    """Check that the responses, which a warm start learns, are right."""
    for row in rows:
        if row.response is not None and not compute_reward(reward, row.response, row.ground_truth):
            what = f"{row.where}: response = {row.response!r:.80}"
            raise SrpoError(f"{what}: not right by reward = {reward}, the answer is {row.ground_truth!r:.40}")


def _json_lines(content: bytes, where: str) -> Iterable[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line, object_pairs_hook=_each_key_once)
        except ValueError as error:
            raise SrpoError(f"{where}:{number}: not JSON ({error}); give JSON lines or parquet") from error


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := [key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i])]:
        raise ValueError(f"{twice[0]} is given twice")
    return dict(pairs)


def _parquet(content: bytes, columns: Columns) -> Iterable[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(pa.BufferReader(content))
    found = [*_each_key_once([(name, None) for name in file.schema_arrow.names])]
    known = (columns.prompt, columns.answer, columns.system, columns.response)
    wanted = [column for column in known if column in found]
    # with threads, a process that ends at once can abort
    return enumerate([dict.fromkeys(found) | row for row in file.read(wanted, use_threads=False).to_pylist()], 1)
