"""Own files of questions and own rewards: read and tried when the experiment is composed, before anything runs."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_line import refused
from synthetic import tiny_experiment

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment, FilesBenchmark
from srpo.ground.errors import SrpoError
from srpo.questions.rewards import compute_reward
from srpo.questions.splits import read_split, write_split
from srpo.starts.data import build_split, split_statistics

SUMS = {"kind": "files", "title": "Sums", "reward": "answer_match", "train_file": "train.jsonl", "test_file": "t.jsonl"}
REWARDS = r"""
def swapped(truth, response):
    return truth in response

def close(response, truth):
    return abs(float(response.partition("<answer>")[2].partition("<")[0]) - float(truth)) < 0.1

def fickle(response, truth, tried=[]):
    tried.append(truth)
    return truth in response and len(tried) % 2
"""


def lines(count: int, first: int = 0) -> str:
    numbers = range(first, first + count)
    return "".join(json.dumps({"prompt": f"{i}+{i}? <answer>", "answer": str(2 * i)}) + "\n" for i in numbers)


TEST = lines(6, first=100)
ALTERED = (str.upper, "{}  \n".format, lambda text: text.replace(" ", "\u200b\u00a0"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 40 and 6 questions, which is the working directory, and a module that can be imported."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text(lines(40))
    (tmp_path / "data" / "t.jsonl").write_text(TEST)
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "own_rewards.py").write_text(REWARDS)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(**changes: Any) -> Experiment:
    """An experiment on ``data/sums.yaml``, which is written with these changes; a key set to None is left out."""
    content = {key: value for key, value in (SUMS | changes).items() if value is not None}
    Path("data/sums.yaml").write_text(yaml.safe_dump(content))
    matrix = [{"models": ["miniature-tiny"], "benchmarks": ["data/sums.yaml"], "methods": ["grpo"]}]
    return load_experiment(tiny_experiment(matrix=matrix))


def sums(**changes: Any) -> FilesBenchmark:
    return experiment(**changes).benchmarks["sums"]


def test_the_files_are_read_when_the_experiment_is_composed(folder: Path):
    found = sums()
    assert (found.questions("train"), found.questions("test")) == (40, 6)
    assert found.train_file == folder / "data" / "train.jsonl"
    assert found.contents["test"].sha256 == hashlib.sha256(TEST.encode()).hexdigest()
    assert sums(name="copied", train_file=str(folder / "data/train.jsonl"), test_file="../data/t.jsonl") == found


def test_a_model_and_a_method_may_lie_anywhere(folder: Path):
    Path("data/tiny_srpo.yaml").write_text("title: Mine\nextends: srpo\nentropy_beta: 0.5\n")
    Path("data/small.yaml").write_text("title: Small\nextends: miniature-tiny\n")
    block = {"models": ["data/small.yaml"], "benchmarks": ["miniature/physics"], "methods": ["data/tiny_srpo.yaml"]}
    changes = {"overrides": {"tiny_srpo": {"learning_rate": 0.25}}}
    (run,) = (found := load_experiment(tiny_experiment(matrix=[block], **changes))).runs()
    assert run.path == "small/physics/tiny_srpo/seed1"
    method = found.run(run).method
    assert (method.title, method.entropy_beta, method.learning_rate) == ("Mine", 0.5, 0.25)
    assert load_experiment(found.model_dump(mode="json")) == found


def test_a_response_under_another_name_is_needed_in_one_row_to_train(folder: Path):
    """Rows without it, also of a test file, are questions without a response."""
    file = folder / "data" / "train.jsonl"
    columns = {"response": "rationale"}
    with refused("train.jsonl: columns.response = rationale: no row has a text in it; columns that are not read: none"):
        sums(columns=columns)
    first, rest = file.read_text().split("\n", 1)
    said = json.loads(first) | {"rationale": "<answer>0</answer>"}
    file.write_text(f"{json.dumps(said)}\n{rest}")
    found = sums(columns=columns)
    assert [q.response for q in build_split(found, "train")] == ["<answer>0</answer>", *[None] * 39]
    assert {q.response for q in build_split(found, "test")} == {None}


def test_splits_are_written_and_read(folder: Path):
    for name in ("train.jsonl", "t.jsonl"):
        file = folder / "data" / name
        file.write_text(file.read_text().replace(" <answer>", ""))
    found = sums(columns={"prompt": "answer", "answer": "prompt"})
    for split, numbers in (("train", range(40)), ("test", range(100, 106))):
        questions = build_split(found, split)
        write_split(folder / f"{split}.parquet", questions, split)
        assert read_split(folder / f"{split}.parquet") == questions
        assert [q.messages for q in questions] == [[{"role": "user", "content": str(2 * i)}] for i in numbers]
        assert [q.ground_truth for q in questions] == [f"{i}+{i}?" for i in numbers]
    assert {q.data_source for q in questions} == {"files/sums"}
    assert split_statistics(found, {"test": questions})["source"] == {"train": "train.jsonl", "test": "t.jsonl"}


def test_a_resolved_experiment_needs_no_files_until_a_split_is_made(folder: Path):
    composed = experiment()
    Path("experiment.yaml").write_text(yaml.safe_dump(composed.model_dump(mode="json"), sort_keys=False))
    (folder / "data" / "t.jsonl").write_text(lines(7))
    loaded = load_experiment(Path("experiment.yaml"))
    assert loaded == composed
    with pytest.raises(SrpoError, match=r"/t\.jsonl: it has changed since the experiment was read; start again$"):
        build_split(loaded.benchmarks["sums"], "test")
    (folder / "data" / "t.jsonl").unlink()
    assert load_experiment(Path("experiment.yaml")) == composed


def test_the_content_of_the_files_determines_a_run_and_their_place_does_not(folder: Path):
    def identity(**changes: Any) -> dict[str, Any]:
        composed = experiment(**changes)
        return composed.run(composed.runs()[0]).identity()

    before = identity()
    os.rename("data/train.jsonl", "moved.jsonl")
    assert identity(train_file="../moved.jsonl") == before
    Path("moved.jsonl").write_text(lines(40).replace("1+1", "1 + 1"))
    assert identity(train_file="../moved.jsonl") != before


def test_a_search_holds_questions_of_a_file_out(folder: Path):
    held_out = sums().model_copy(update={"held_out_questions": 8})
    assert (len(build_split(held_out, "train")), len(build_split(held_out, "test"))) == (32, 8)


def test_copies_of_a_held_out_question_are_not_trained_on(folder: Path):
    """Each question twice: of 30 that were held out, 26 were trained on."""
    train = folder / "data" / "train.jsonl"
    train.write_text(lines(40) + lines(40).replace("? ", "?\u00a0 "))
    held_out = sums().model_copy(update={"held_out_questions": 30})
    parts = [
        {q.messages[0]["content"].partition("?")[0] for q in build_split(held_out, split)}
        for split in ("train", "test")
    ]
    assert parts[0]
    assert not parts[0] & parts[1]


def test_questions_in_both_files_are_counted(folder: Path, caplog: pytest.LogCaptureFixture):
    """Whatever their case, blanks and form of Unicode; and columns that no prompt shows are named."""
    train, test = folder / "data" / "train.jsonl", folder / "data" / "t.jsonl"
    known = [json.loads(line) for line in train.read_text().splitlines()[:3]]
    copies = [row | {"prompt": p(row["prompt"]), "choices": "A"} for p, row in zip(ALTERED, known, strict=True)]
    test.write_text(test.read_text() + "".join(json.dumps(row) + "\n" for row in copies))
    experiment()
    splits = {"train": build_split(sums(), "train"), "test": build_split(sums(), "test")}
    assert split_statistics(sums(), splits)["trained_tests"] == 3
    assert "3 of 9 test questions are train questions" in caplog.text
    assert "columns that no prompt shows: choices" in caplog.text


def test_answers_that_an_own_reward_can_never_call_right_are_counted(folder: Path, caplog: pytest.LogCaptureFixture):
    """A ValueError for the truth is a wrong response, whatever the response is."""
    file = folder / "data" / "train.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text(
        "".join(json.dumps(r | {"answer": f"7,{i:03}" if i < 14 else str(i)}) + "\n" for i, r in enumerate(rows))
    )
    build_split(sums(reward="own_rewards:close"), "train")
    assert "14 of 40 answers are never right" in caplog.text


def test_an_own_reward_that_is_random_is_named(folder: Path, caplog: pytest.LogCaptureFixture):
    build_split(sums(reward="own_rewards:fickle"), "test")
    assert "6 of 6 answers got two rewards" in caplog.text


def test_copies_within_the_test_questions_are_counted(folder: Path):
    assert "test_copies" not in split_statistics(sums(), {"test": build_split(sums(), "test")})
    (folder / "data" / "t.jsonl").write_text(TEST + TEST.replace("? ", "?  "))
    assert split_statistics(sums(), {"test": build_split(sums(), "test")})["test_copies"] == 6


def test_an_own_reward_scores(folder: Path):
    reward = sums(reward="own_rewards:close").reward
    responses = [f"<answer>{answer}</answer>" for answer in ("2.05", "3", "two")]
    assert [compute_reward(reward, response, "2") for response in responses] == [1.0, 0.0, 0.0]


def test_a_reward_that_calls_everything_right_is_refused(folder: Path):
    """It is right to the truths, and would score 100 without training: of a part of the response, for example."""
    assert [compute_reward("own_rewards:swapped", response, "12") for response in ("12", "1", "")] == [1.0, 1.0, 1.0]
    with refused("reward = own_rewards:swapped: an empty response is right to every question"):
        sums(reward="own_rewards:swapped")
