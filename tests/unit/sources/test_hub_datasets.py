"""Data sets of the hub: a folder stands in for the download, everything else is real."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from srpo.benchmarks.splits import read_split, write_split
from srpo.errors import SrpoError
from srpo.experiment.config import HubDatasetBenchmark
from srpo.publish.model_card import data_line
from srpo.sources.build import build_split, split_statistics

CARD = """---
configs:
- config_name: main
  data_files:
  - {split: train, path: main/train.jsonl}
  - {split: validation, path: main/validation.jsonl}
---
"""
QUESTIONS = {split: [{"question": f"{split} {i}", "solution": str(i)} for i in range(6)] for split in ("train", "test")}


def benchmark(**changes) -> HubDatasetBenchmark:
    fields = {
        "kind": "hf_dataset",
        "name": "sums",
        "title": "Sums",
        "reward": "answer_match",
        "repository": "lab/Numbers",
        "revision": "a" * 40,
        "subset": "main",
        "columns": {"prompt": "question", "answer": "solution"},
        "train": {"split": "train", "rows": 6},
        "test": {"split": "validation[:4]", "rows": 4},
    }
    return HubDatasetBenchmark(**(fields | changes))


@pytest.fixture(autouse=True)
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    """What the hub is asked for; the answer is a folder with a card and two files."""
    folder = tmp_path / "snapshot"
    (folder / "main").mkdir(parents=True)
    (folder / "README.md").write_text(CARD)
    for split, name in (("train", "train"), ("test", "validation")):
        lines = "".join(json.dumps(question) + "\n" for question in QUESTIONS[split])
        (folder / "main" / f"{name}.jsonl").write_text(lines)
    asked: list[dict] = []

    def download(**options):
        asked.append(options)
        return str(folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    return asked


def test_splits_are_those_of_the_pinned_revision(tmp_path: Path, downloads: list[dict]):
    sums = benchmark()
    splits = {split: build_split(sums, split) for split in ("train", "test")}
    for asked in downloads:
        assert (asked["repo_id"], asked["revision"], asked["repo_type"]) == ("lab/Numbers", "a" * 40, "dataset")
    assert [q.messages for q in splits["test"]] == [[{"role": "user", "content": f"test {i}"}] for i in range(4)]
    assert [q.ground_truth for q in splits["train"]] == [*"012345"]
    assert {q.data_source for q in splits["train"]} == {"numbers/sums"}
    assert {split: len(questions) for split, questions in splits.items()} == {
        split: sums.questions(split) for split in ("train", "test")
    }
    write_split(tmp_path / "test.parquet", splits["test"], "test")
    assert read_split(tmp_path / "test.parquet") == splits["test"]
    assert split_statistics(sums, splits)["source"]["repository"] == "lab/Numbers"
    assert data_line(sums.model_dump(mode="json")) == f"`sums`: `lab/Numbers`, revision `{'a' * 40}`"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"columns": {}}, "no column prompt; there is question, solution"),
        ({"columns": {"prompt": "question", "answer": "solution", "system": "role"}}, "no column role; there is"),
        ({"train": {"split": "train", "rows": 7}}, "6 rows found, 7 expected"),
        ({"train": {"split": "dev", "rows": 6}}, "cannot be read (Unknown split"),
        ({"subset": "hard"}, "cannot be read (BuilderConfig 'hard' not found"),
    ],
)
def test_a_mistake_is_one_line(changes: dict, words: str):
    with pytest.raises(SrpoError) as caught:
        build_split(benchmark(**changes), "train")
    assert str(caught.value).startswith("benchmark sums: lab/Numbers at aaaaaaaaaaaa")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_network_the_message_has_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from huggingface_hub.errors import LocalEntryNotFoundError

    def download(**options):
        raise LocalEntryNotFoundError("nothing here")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(SrpoError, match=rf"run: hf download lab/Numbers --revision {'a' * 40} --repo-type dataset \("):
        build_split(benchmark(), "train")
