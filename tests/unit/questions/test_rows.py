"""Rows of people's own files: what a question is, and one line for each way not to be one."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from srpo.ground.errors import SrpoError
from srpo.questions.rows import Columns, parse_rows

RECORDS = [
    {"prompt": "1+1?\u2028", "answer": "2", "system": "Add."},
    {"prompt": "2+2?", "answer": "4", "system": None},
]
MESSAGES = [
    [{"role": "system", "content": "Add."}, {"role": "user", "content": "1+1?\u2028"}],
    [{"role": "user", "content": "2+2?"}],
]


def json_lines(records: list[dict], separator: str = "\n") -> bytes:
    return separator.join(json.dumps(record, ensure_ascii=False) for record in records).encode()


def parquet(records: list[dict], path: Path) -> bytes:
    pq.write_table(pa.Table.from_pylist(records), path)
    return path.read_bytes()


@pytest.mark.parametrize("separator", ["\n", "\r\n", "\n \n"])
def test_json_lines(separator: str):
    rows = parse_rows(json_lines(RECORDS, separator) + b"\n", "x")
    assert [row.messages for row in rows] == MESSAGES
    assert [row.ground_truth for row in rows] == ["2", "4"]


def test_parquet_says_the_same(tmp_path: Path):
    assert parse_rows(parquet(RECORDS, tmp_path / "x"), "x") == parse_rows(json_lines(RECORDS), "x")


@pytest.mark.parametrize("write", [lambda records, folder: json_lines(records), lambda r, f: parquet(r, f / "x")])
def test_columns_of_other_names(tmp_path: Path, write):
    renamed = [{"q": r["prompt"], "a": r["answer"], "role": r["system"], "id": 7} for r in RECORDS]
    columns = Columns(prompt="q", answer="a", system="role")
    assert parse_rows(write(renamed, tmp_path), "x", columns) == parse_rows(json_lines(RECORDS), "x")
    # only a system column of the usual name may be missing
    without = [{"q": "1+1?", "a": "2"}]
    with pytest.raises(SrpoError, match=r"^x\S*: role = None: must be text$"):
        parse_rows(write(without, tmp_path), "x", columns)
    assert len(parse_rows(write(without, tmp_path), "x", Columns(prompt="q", answer="a"))) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"prompt,answer\n", "x:1: not JSON (Expecting value"),
        (b'{"prompt": "a", "answer": "b"}\n\xff', "x:2: not JSON ("),
        (b'{"prompt": "a", "answer": "b", "answer": "c"}', "x:1: not JSON (answer is given twice"),
        (b'{"question": "a", "answer": "b"}', "x:1: prompt = None: must be text"),
        (b'{"prompt": " ", "answer": "b"}', "x:1: prompt = ' ': must be text"),
        (b'{"prompt": "a", "answer": 42}', "x:1: answer = 42: must be text"),
        (b'{"prompt": "a", "answer": "b", "system": 7}', "x:1: system = 7: must be text"),
    ],
)
def test_what_is_no_question_is_located(content: bytes, words: str):
    with pytest.raises(SrpoError) as caught:
        parse_rows(content, "x")
    assert str(caught.value).startswith(words)


def test_what_is_no_question_is_located_in_parquet(tmp_path: Path):
    with pytest.raises(SrpoError, match=r"^x:2: answer = None: must be text$"):
        parse_rows(parquet([RECORDS[0], {"prompt": "a", "answer": None}], tmp_path / "x"), "x")
    names, values = ["prompt", "prompt", "answer"], pa.array(["a", "b"])
    pq.write_table(pa.Table.from_arrays([values] * 3, names=names), tmp_path / "twice")
    with pytest.raises(ValueError, match="prompt is given twice"):
        parse_rows((tmp_path / "twice").read_bytes(), "x")
