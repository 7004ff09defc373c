"""Splits on disk, in verl's row format."""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from srpo.ground.files import read_bytes, write_bytes
from srpo.questions.rewards import find_reward

SplitName = Literal["train", "test"]


@dataclass(frozen=True)
class Question:
    """One question; ``index`` is its position in the split, ``reward`` the kind that scores it.

    ``response`` is a right one that its file has, for a warm start.
    """

    index: int
    messages: list[dict[str, str]]
    ground_truth: str
    reward: str
    data_source: str
    response: str | None = None


def true_solution(question: Question) -> str:
    """A right response: the file's own, or the ground truth as one."""
    return question.response or find_reward(question.reward).solution(question.ground_truth)


def question_key(messages: Sequence[Mapping[str, str]]) -> str:
    """What is asked, the same for copies that differ in Unicode's form, case, blanks or what nobody sees."""
    text = unicodedata.normalize("NFKC", "\n".join(message["content"] for message in messages))
    return " ".join("".join(each for each in text if unicodedata.category(each) != "Cf").casefold().split())


def write_split(path: Path, questions: Sequence[Question], split: SplitName) -> None:
    """Write a split as parquet, atomically; the same questions give the same bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, rows = _schema(), [_to_row(question, split) for question in questions]
    if any(question.response for question in questions):
        schema = schema.append(pa.field("response", pa.string()))
        rows = [row | {"response": question.response} for row, question in zip(rows, questions, strict=True)]
    table = pa.Table.from_pylist(rows, schema=schema)
    content = pa.BufferOutputStream()
    pq.write_table(table, content, write_page_checksum=True)
    write_bytes(path, content.getvalue().to_pybytes())


def read_split(path: Path) -> list[Question]:
    """Read a split that :func:`write_split` wrote."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    # read_table would import pandas, and start threads that abort a process which ends at once
    file = pq.ParquetFile(pa.BufferReader(read_bytes(path)), page_checksum_verification=True)
    return [_from_row(row) for row in file.read(use_threads=False).to_pylist()]


def _schema() -> Any:
    import pyarrow as pa

    text = pa.string()
    return pa.schema(
        {
            "data_source": text,
            "prompt": pa.list_(pa.struct({"role": text, "content": text})),
            "ability": text,
            "reward_model": pa.struct({"style": text, "ground_truth": text}),
            "extra_info": pa.struct({"split": text, "index": pa.int64(), "reward": text}),
        }
    )


def _to_row(question: Question, split: SplitName) -> dict[str, Any]:
    return {
        "data_source": question.data_source,
        "prompt": question.messages,
        "ability": question.data_source.rsplit("/", 1)[-1],
        "reward_model": {"style": "rule", "ground_truth": question.ground_truth},
        "extra_info": {"split": split, "index": question.index, "reward": question.reward},
    }


def _from_row(row: dict[str, Any]) -> Question:
    return Question(
        index=row["extra_info"]["index"],
        messages=[{"role": message["role"], "content": message["content"]} for message in row["prompt"]],
        ground_truth=row["reward_model"]["ground_truth"],
        reward=row["extra_info"]["reward"],
        data_source=row["data_source"],
        response=row.get("response"),
    )
