"""Questions as people keep them: JSON lines, parquet or a data set, a row with prompt and answer for each question."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from srpo.ground.errors import SrpoError
from srpo.ground.files import is_lfs_pointer, read_bytes
from srpo.ground.schema import Config
from srpo.questions.rewards import compute_reward, within

_PARQUET, _GZIP, _ZIP = b"PAR1", b"\x1f\x8b", b"PK\x03\x04"
_FROM_CSV = 'write it as parquet first: pandas.read_csv(FILE, dtype="string").to_parquet("train.parquet")'

_TEMPLATE = re.compile(r"<\|(im_start|start_header_id|user)\|>|\[INST\]")


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

    def check(self, found: Collection[str], where: str) -> None:
        """Check that data have the columns."""
        needed = [self.prompt, self.answer, *({self.system} - {"system"})]
        if missing := [column for column in needed if column not in found]:
            raise SrpoError(f"{where}: no column {missing[0]}; there is {', '.join(found) or 'none'}")

    def check_responses(self, train: Sequence[Row], where: str) -> None:
        """Check that a row has a response, if its column has another name."""
        if self.response != "response" and not any(row.response for row in train):
            unread = ", ".join(sorted({column for row in train for column in row.unread})) or "none"
            what = f"{where}: columns.response = {self.response}: no row has a text in it"
            raise SrpoError(f"{what}; columns that are not read: {unread}")

    def row(self, record: Mapping[str, Any], where: str) -> Row:
        """A record as a question."""
        self.check(record, where)
        prompt, answer = record[self.prompt], record[self.answer]
        system, response = record.get(self.system), record.get(self.response)
        optional = [(self.system, system or ""), (self.response, response or "")]
        for column, value in [(self.prompt, prompt), (self.answer, answer), *optional]:
            if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
                hint = "; quote it" if isinstance(value, int | float) else ""
                raise SrpoError(f"{where}: {column} = {value!r:.100}: must be text{hint}")
        if not prompt.strip():
            raise SrpoError(f"{where}: {self.prompt} = {prompt!r}: give a question")
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


def read_file(path: Path) -> bytes:
    """Read a file of questions."""
    content = read_bytes(path)
    if is_lfs_pointer(content):
        raise SrpoError(f"{path}: a Git LFS pointer, not the file itself; run git lfs pull in the repository")
    if content.startswith(_GZIP):
        raise SrpoError(f"{path}: compressed; unpack it")
    if content.startswith(_ZIP):
        raise SrpoError(f"{path}: an Excel or zip file; save as parquet or JSON lines")
    return content


def parse_rows(content: bytes, where: str, columns: Columns | None = None) -> list[Row]:
    """The questions of a file: parquet if it begins like one, otherwise JSON lines; empty lines do not count."""
    columns = columns or Columns()
    records = _parquet(content, where, columns) if content.startswith(_PARQUET) else _json_lines(content, where)
    rows = [columns.row(record, f"{where}:{number}") for number, record in records]
    if not rows:
        raise SrpoError(f"{where}: no questions")
    return rows


def check_responses(reward: str, rows: Sequence[Row], patience: float = float("inf")) -> None:
    """Check that the responses, which a warm start learns, are right."""
    for row in within(patience, [row for row in rows if row.response is not None]):
        if not compute_reward(reward, row.response or "", row.ground_truth):
            what = f"{row.where}: response = {row.response!r:.80}"
            raise SrpoError(f"{what}: not right by reward = {reward}, the answer is {row.ground_truth!r:.40}")


def _json_lines(content: bytes, where: str) -> Iterable[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            line.decode()
        except UnicodeDecodeError as error:
            raise SrpoError(f"{where}:{number}: not UTF-8 ({error.reason}); save the file as UTF-8") from error
        try:
            record = json.loads(line, object_pairs_hook=_each_key_once)
        except (ValueError, RecursionError) as error:
            how = _FROM_CSV if Path(where).suffix in (".csv", ".tsv") else "give JSON lines or parquet"
            how = "the file is a list; give one JSON object per line" if content.lstrip()[:1] == b"[" else how
            raise SrpoError(f"{where}:{number}: not JSON ({error}); {how}") from error
        if not isinstance(record, dict):
            raise SrpoError(f"{where}:{number}: not a JSON object; give one per line")
        yield number, record


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if twice := [key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i])]:
        raise ValueError(f"{twice[0]} is given twice")
    return dict(pairs)


def _parquet(content: bytes, where: str, columns: Columns) -> Iterable[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        found = [*_each_key_once([(name, None) for name in file.schema_arrow.names])]
        columns.check(found, where)
        known = (columns.prompt, columns.answer, columns.system, columns.response)
        wanted = [column for column in known if column in found]
        # with threads, a process that ends at once can abort
        records = [dict.fromkeys(found) | row for row in file.read(wanted, use_threads=False).to_pylist()]
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SrpoError(f"{where}: not readable parquet ({' '.join(str(error).split())})") from error
    return enumerate(records, 1)
