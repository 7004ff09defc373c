"""Rows of people's own files: what a question is, and one line for each way not to be one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from one_line import refused

from srpo.ground.errors import SrpoError
from srpo.questions.rows import Columns, parse_rows, read_file

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
    with pytest.raises(SrpoError, match=r"^x\S*: no column role; there is q, a$"):
        parse_rows(write(without, tmp_path), "x", columns)
    assert len(parse_rows(write(without, tmp_path), "x", Columns(prompt="q", answer="a"))) == 1


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "x: no questions"),
        (b"\n\n", "x: no questions"),
        (b"prompt,answer\n", "x:1: not JSON (Expecting value"),
        (b'{"prompt": "a", "answer": "b"}\n\xff', "x:2: not UTF-8 (invalid start byte)"),
        (b"[" * 100_000, "x:1: not JSON ("),
        (b"[]", "x:1: not a JSON object; give one per line"),
        (b'{"question": "a", "answer": "b"}', "x:1: no column prompt; there is question, answer"),
        (b"{}", "x:1: no column prompt; there is none"),
        (b'{"prompt": "a", "answer": 42}', "x:1: answer = 42: must be text; quote it"),
        (b'{"prompt": "a", "answer": null}', "x:1: answer = None: must be text"),
        (b'{"prompt": "a", "answer": "b", "system": 7}', "x:1: system = 7: must be text"),
        (b"PAR1 but no more", "x: not readable parquet ("),
    ],
)
def test_what_is_no_question_is_located(content: bytes, words: str):
    with pytest.raises(SrpoError) as caught:
        parse_rows(content, "x")
    assert str(caught.value).startswith(words)
    assert "\n" not in str(caught.value)


def test_a_compressed_file_is_named(tmp_path: Path):
    (tmp_path / "q.jsonl.gz").write_bytes(gzip.compress(json_lines(RECORDS)))
    with pytest.raises(SrpoError, match=r"/q\.jsonl\.gz: compressed; unpack it$"):
        read_file(tmp_path / "q.jsonl.gz")
    (tmp_path / "q.xlsx").write_bytes(b"PK\x03\x04\x14\x00")
    with pytest.raises(SrpoError, match=r"/q\.xlsx: an Excel or zip file; save as parquet or JSON lines$"):
        read_file(tmp_path / "q.xlsx")


def test_a_json_list_is_told_how_to_become_lines():
    with pytest.raises(SrpoError, match=r"^q\.json:1: not JSON .*; the file is a list; give one JSON object per line$"):
        parse_rows(json.dumps(RECORDS, indent=1).encode(), "q.json")


def test_a_csv_file_is_told_how_to_become_one_that_is_read():
    with pytest.raises(SrpoError, match=r"^q\.csv:1: not JSON .*; write it as parquet first: pandas\.read_csv\(FILE"):
        parse_rows(b"prompt,answer\na,b\n", "q.csv")


def test_what_is_no_question_is_located_in_parquet(tmp_path: Path):
    with pytest.raises(SrpoError, match=r"^x: no column prompt; there is question, answer$"):
        parse_rows(parquet([{"question": "a", "answer": "b"}], tmp_path / "x"), "x")
    with pytest.raises(SrpoError, match=r"^x:2: answer = None: must be text$"):
        parse_rows(parquet([RECORDS[0], {"prompt": "a", "answer": None}], tmp_path / "x"), "x")
    pq.write_table(pa.Table.from_pylist(RECORDS)[:0], tmp_path / "x")
    with pytest.raises(SrpoError, match=r"^x: no questions$"):
        parse_rows((tmp_path / "x").read_bytes(), "x")
    names, values = ["prompt", "prompt", "answer"], pa.array(["a", "b"])
    pq.write_table(pa.Table.from_arrays([values] * 3, names=names), tmp_path / "twice")
    with refused("x: not readable parquet (prompt is given twice)"):
        parse_rows((tmp_path / "twice").read_bytes(), "x")
    damaged = parquet(RECORDS, tmp_path / "x")[:-20]
    with pytest.raises(SrpoError, match=r"^x: not readable parquet \([^\n]+\)$"):
        parse_rows(damaged, "x")


def test_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(SrpoError, match=r"/absent: cannot be read \(No such file or directory\)$"):
        read_file(tmp_path / "absent")
    with pytest.raises(SrpoError, match=r"cannot be read \(Is a directory\)$"):
        read_file(tmp_path)
    pointer = tmp_path / "pointer"
    pointer.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(SrpoError, match=r"/pointer: a Git LFS pointer, not the file itself; run git lfs pull"):
        read_file(pointer)
