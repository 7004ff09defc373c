"""Splits: verl's rows on disk, and what a damaged file says."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from srpo.experiment.config import MiniatureBenchmark
from srpo.ground.errors import SrpoError
from srpo.questions.families import FAMILIES
from srpo.questions.splits import Question, read_split, write_split
from srpo.starts.data import build_split, split_statistics


def benchmark(family: str = "physics", **changes) -> MiniatureBenchmark:
    fields = {
        "kind": "miniature",
        "name": family,
        "title": family.title(),
        "reward": "tool_use" if family == "tooluse" else "answer_match",
        "family": family,
        "train_questions": 512,
        "test_questions": 32,
    }
    return MiniatureBenchmark(**(fields | changes))


QUESTIONS = [
    Question(
        0, [{"role": "system", "content": "Å\n{}"}, {"role": "user", "content": "1+1?"}], "2", "answer_match", "a/b"
    ),
    Question(1, [{"role": "user", "content": "call"}], '[{"Action": "x"}]', "tool_use", "a/b"),
]


def test_round_trip(tmp_path: Path):
    path = tmp_path / "deep" / "test.parquet"
    write_split(path, QUESTIONS, "test")
    assert read_split(path) == QUESTIONS
    assert [file.name for file in path.parent.iterdir()] == ["test.parquet"]


def test_rows_are_verls(tmp_path: Path):
    write_split(tmp_path / "train.parquet", QUESTIONS, "train")
    with (tmp_path / "train.parquet").open("rb") as file:
        assert pq.read_table(file).to_pylist()[1] == {
            "data_source": "a/b",
            "prompt": [{"role": "user", "content": "call"}],
            "ability": "b",
            "reward_model": {"style": "rule", "ground_truth": '[{"Action": "x"}]'},
            "extra_info": {"split": "train", "index": 1, "reward": "tool_use"},
        }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_split_has_the_same_bytes_twice(tmp_path: Path, family: str):
    for name in ("one", "two"):
        write_split(tmp_path / name, build_split(benchmark(family), "train"), "train")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_train_and_test_share_no_question(family: str):
    train, test = (build_split(benchmark(family), split) for split in ("train", "test"))
    assert (len(train), len(test)) == (512, 32)
    assert not {q.messages[0]["content"] for q in train} & {q.messages[0]["content"] for q in test}
    assert [q.index for q in test] == list(range(32))
    assert {q.data_source for q in test} == {f"miniature/{family}"}


def test_a_process_that_ends_after_reading_ends_well(tmp_path: Path):
    write_split(tmp_path / "test.parquet", QUESTIONS, "test")
    program = "from pathlib import Path; from srpo.questions.splits import read_split; read_split(Path('test.parquet'))"
    for _ in range(5):  # with pyarrow's threads, two of three processes aborted
        subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)


def test_a_damaged_file_is_an_error(tmp_path: Path):
    path = tmp_path / "test.parquet"
    write_split(path, QUESTIONS, "test")
    whole = path.read_bytes()
    middle = whole.index(b"1+1?")
    flipped = whole[:middle] + b"9" + whole[middle + 1 :]
    for content in (b"", b"nonsense", whole[: len(whole) // 2], flipped):
        path.write_bytes(content)
        with pytest.raises((OSError, pa.ArrowException)):
            read_split(path)


def test_statistics():
    splits = {"train": build_split(benchmark(), "train"), "test": build_split(benchmark(), "test")}
    statistics = split_statistics(benchmark(seed=0), splits)
    lengths = [len(q.messages[0]["content"]) for split in splits.values() for q in split]
    assert statistics == {
        "benchmark": "physics",
        "kind": "miniature",
        "rows": {"train": 512, "test": 32},
        "prompt_characters": {"mean": sum(lengths) / 544, "max": max(lengths)},
        "example": {
            "prompt": splits["train"][0].messages[0]["content"],
            "answer": splits["train"][0].ground_truth,
        },
        "most_frequent_answer": {
            split: max(Counter(q.ground_truth for q in of_split).values()) / len(of_split)
            for split, of_split in splits.items()
        },
        "source": {"family": "physics", "seed": 0, "facts": 0},
    }


def test_statistics_of_a_split_that_is_only_evaluated():
    tooluse = benchmark("tooluse")
    statistics = split_statistics(tooluse, {"test": build_split(tooluse, "test")})
    assert statistics["rows"] == {"test": 32}


def test_a_reward_that_does_not_fit_the_questions_is_named_when_they_are_built():
    with pytest.raises(SrpoError, match=r"^physics, question 0: reward = tool_use: .* is not a list of calls$"):
        build_split(benchmark(reward="tool_use"), "test")
