"""Splits on disk, in verl's row format."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from srpo.ground.errors import SrpoError
from srpo.ground.files import write_bytes

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
    """Read a split that :func:`write_split` wrote.

    Raises:
        SrpoError: if the file is missing, is no such parquet file or has no rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # read_table would import pandas, and start threads that abort a process which ends at once
        file = pq.ParquetFile(pa.BufferReader(path.read_bytes()), page_checksum_verification=True)
        rows = file.read(use_threads=False).to_pylist()
        questions = [_from_row(row) for row in rows]
    except FileNotFoundError as error:
        raise SrpoError(f"{path}: there is no such split; srpo split builds it") from error
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise SrpoError(f"{path}: not a readable split ({reason}); delete it and run srpo split") from error
    if not questions:
        raise SrpoError(f"{path}: the split has no questions; delete it and run srpo split")
    return questions


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
