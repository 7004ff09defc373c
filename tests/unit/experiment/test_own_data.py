"""Own files of questions and own rewards: read and tried when the experiment is composed, before anything runs."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from one_line import refused
from synthetic import tiny_experiment

from srpo.benchmarks.splits import read_split, write_split
from srpo.evaluation.lengths import check_experiment
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment, FilesBenchmark
from srpo.inputs.errors import SrpoError
from srpo.rewards import compute_reward
from srpo.sources.build import build_split, split_statistics

SUMS = {"kind": "files", "title": "Sums", "reward": "answer_match", "train_file": "train.jsonl", "test_file": "t.jsonl"}
REWARDS = r"""
import time

def close(response, truth):
    return abs(float(response.partition("<answer>")[2].partition("<")[0]) - float(truth)) < 0.1

def number_alone(response, truth):
    return int(response) == int(truth)

def never(response, truth):
    return response.strip() == int(truth)

def boxed(response, truth):
    return response == r"\boxed{%s}" % truth

CALLS = []

def slow(response, truth):
    CALLS.append(response)
    time.sleep(0.01)
    return truth in response

async def later(response, truth):
    return True

def yields(response, truth):
    yield True

def three(response, truth):
    return True, "", 1

def half(response, truth):
    return 0.5

def late(response, truth):
    return 0.5 if truth == "202" else True

def leave(response, truth):
    raise SystemExit(0)

def alone(response):
    return True

def always(response, truth):
    return True

def format(response, truth):
    return "<answer>" in response

def first(response, truth):
    return response.split()[0] == truth

number = 7
"""


def lines(count: int, first: int = 0) -> str:
    numbers = range(first, first + count)
    return "".join(json.dumps({"prompt": f"{i}+{i}? <answer>", "answer": str(2 * i)}) + "\n" for i in numbers)


TEST = lines(6, first=100)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with 40 and 6 questions, which is the working directory, and a module that can be imported."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.jsonl").write_text(lines(40))
    (tmp_path / "data" / "t.jsonl").write_text(TEST)
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "own_rewards.py").write_text(REWARDS)
    (tmp_path / "modules" / "own_broken.py").write_text("1 / 0")
    (tmp_path / "modules" / "own_exit.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "data" / "twice.jsonl").write_text(TEST.replace('"202"', '"202", "answer": "7"'))
    (tmp_path / "data" / "no_question.jsonl").write_text(lines(40).replace("0+0? <answer>", "  ", 1))
    (tmp_path / "data" / "surrogate.jsonl").write_text(lines(40).replace("0+0? <answer>", "\\ud800+0?", 1))
    (tmp_path / "data" / "blanks.jsonl").write_text(TEST.replace('"202"', '"2\\n"'))
    (tmp_path / "data" / "empty.jsonl").write_text("\n\n\n" + TEST.replace('"200"', '""'))
    monkeypatch.syspath_prepend(tmp_path / "modules")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def experiment(**changes: Any) -> Experiment:
    """An experiment on ``data/sums.yaml``, which is written with these changes; a key set to None is left out."""
    content = {key: value for key, value in (SUMS | changes).items() if value is not None}
    Path("data/sums.yaml").write_text(yaml.safe_dump(content))
    matrix = [{"models": ["miniature-small"], "benchmarks": ["data/sums.yaml"], "methods": ["grpo"]}]
    return load_experiment(tiny_experiment(matrix=matrix))


def sums(**changes: Any) -> FilesBenchmark:
    return experiment(**changes).benchmarks["sums"]


def test_the_files_are_read_when_the_experiment_is_composed(folder: Path):
    found = sums()
    assert (found.questions("train"), found.questions("test")) == (40, 6)
    assert found.train_file == folder / "data" / "train.jsonl"
    assert found.contents["test"].sha256 == hashlib.sha256(TEST.encode()).hexdigest()
    assert sums(train_file=str(folder / "data" / "train.jsonl"), test_file="../data/t.jsonl") == found


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


def test_a_batch_needs_enough_questions(folder: Path):
    (folder / "data" / "few.jsonl").write_text(lines(6))
    with pytest.raises(SrpoError, match=r"questions_per_batch = 32: benchmark data/sums\.yaml has 6 questions"):
        sums(train_file="few.jsonl")


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_prompt_with_more_words_than_a_prompt_may_have_tokens_is_refused_before_any_model(folder: Path, split: str):
    long = json.dumps({"prompt": f"{'word ' * 5000}<answer>", "answer": "1"})
    with (folder / "data" / ("train.jsonl" if split == "train" else "t.jsonl")).open("a") as file:
        file.write(long)
    index = {"train": 40, "test": 6}[split]
    composed = experiment()
    with refused(f"files/sums, {split}: question {index} ('word word"):
        check_experiment(composed)
    with refused("has 5001 words; training.max_prompt_length = 2048: allow as many, or set training.overlong_prompts"):
        check_experiment(composed)


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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train_file": "absent.jsonl"}, "data/absent.jsonl: cannot be read (No such file or directory)"),
        ({"train_file": None}, "data/sums.yaml: train_file: field required"),
        ({"train_file": 7}, "data/sums.yaml: train_file = 7: "),
        ({"train_files": "train.jsonl"}, "data/sums.yaml: train_files: unknown key; did you mean train_file?"),
        ({"contents": {}}, "data/sums.yaml: contents: unknown key"),
        ({"columns": {"prompt": "question"}}, "data/train.jsonl:1: no column question; there is prompt, answer"),
        (
            {"columns": {"prompt": "answer"}},
            "response = answer, answer, system, response: give different columns",
        ),
        ({"columns": {"question": "q"}}, "data/sums.yaml: columns.question: unknown key"),
        ({"columns": {"question": "prompt"}}, "columns.question: unknown key; did you mean prompt: question?"),
        ({"reward": "tool_use"}, "data/train.jsonl:1: reward = tool_use: '0' is not a list of calls"),
        ({"reward": "judge"}, "data/sums.yaml: reward = 'judge': unknown; there is answer_match"),
        ({"reward": "own_rewards:half"}, "data/sums.yaml: reward own_rewards:half: 0.5 for the response '0'"),
        (
            {"reward": "own_rewards:alone"},
            "a response and a truth (too many positional arguments); define it as alone(response, truth)",
        ),
        ({"reward": "own_rewards:always"}, "own_rewards:always: an empty response is right to every question that was"),
        ({"reward": "own_rewards:first"}, "reward own_rewards:first: IndexError('list index out of range') for the"),
        ({"reward": "own_rewards:number"}, "reward = own_rewards:number: cannot be called"),
        (
            {"reward": "own_rewards:three"},
            "(True, '', 1) for the response '0'; routing knows 0 and 1: return one, or a pair of it and a text",
        ),
        (
            {"reward": "own_rewards:later"},
            "reward = own_rewards:later: an async function or a generator; let it return",
        ),
        (
            {"reward": "own_rewards:yields"},
            "reward = own_rewards:yields: an async function or a generator; let it return",
        ),
        ({"reward": "own_rewards:late"}, "reward own_rewards:late: 0.5 for the response '202'"),
        ({"reward": "own_rewards:none"}, "reward = own_rewards:none: cannot be imported (module 'own_rewards' has no"),
        (
            {"reward": "own_broken:f"},
            "reward = own_broken:f: cannot be imported (division by zero)",
        ),
        ({"reward": "own_exit:f"}, "reward = own_exit:f: cannot be imported (SystemExit(3))"),
        ({"reward": "own_rewards:leave"}, "reward own_rewards:leave: SystemExit(0) for the response '0'"),
        ({"train_file": "a\0b"}, "data/sums.yaml: train_file = 'a\\x00b': embedded null byte"),
        ({"train_file": "twice.jsonl"}, "data/twice.jsonl:2: not JSON (answer is given twice); give JSON lines or"),
        ({"train_file": "no_question.jsonl"}, "data/no_question.jsonl:1: prompt = '  ': give a question"),
        ({"train_file": "surrogate.jsonl"}, "data/surrogate.jsonl:1: prompt = '\\ud800+0?': must be text"),
        (
            {"reward": "reasoning_gym"},
            "train.jsonl:1: reward = reasoning_gym: '0' is not a task's entry of reasoning-gym",
        ),
        ({"title": " "}, "benchmarks.sums.title = ' ': give one line of text"),
        ({"train_file": "/dev/zero"}, "/dev/zero: a device or a pipe, not a file"),
        ({"train_file": "loop.jsonl"}, "loop.jsonl: cannot be read (Too many levels of symbolic links)"),
        ({"test_file": "train.jsonl"}, "data/sums.yaml: all 40 test questions are train questions; keep some for the"),
        (
            {"test_file": "blanks.jsonl"},
            r"data/blanks.jsonl:2: reward = answer_match: '2\n' is not a text without blanks at",
        ),
        (
            {"test_file": "empty.jsonl"},
            "data/empty.jsonl:4: reward = answer_match: '' is not a text without blanks",
        ),
        ({"reward": "not_there:f"}, "reward = not_there:f: cannot be imported (No module named 'not_there'); install"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, changes: dict, words: str):
    (folder / "data" / "loop.jsonl").symlink_to("loop.jsonl")
    with refused(words):
        sums(**changes)


def test_repeated_questions_and_those_in_both_files_are_counted(folder: Path, caplog: pytest.LogCaptureFixture):
    (folder / "data" / "train.jsonl").write_text(lines(40) + lines(3))
    (folder / "data" / "t.jsonl").write_text(TEST + lines(2))
    (folder / "data" / "train.jsonl").write_text(lines(40) + lines(3).replace('"4"', '"5"'))
    assert sums().questions("test") == 8
    assert [record.getMessage() for record in caplog.records] == [
        "data/sums.yaml: 3 of 43 train questions are repeated, 1 with another answer",
        "data/sums.yaml: 2 of 8 test questions are train questions",
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            " <answer>",
            "",
            ["{} questions do not say <answer>, without which reward = answer_match is 0; name "],
        ),
        (' <answer>"', '", "response": "<answer>ANSWER</answer>"', []),
        (' <answer>"', '", "system": "Write <answer>."', ["the system messages of train and test differ: 'W"]),
        ("? <answer>", "? [INST] <answer>", ["{} questions have marks of a chat template, which is put around them o"]),
        ("{", '{"system": "", ', []),
        ("{", '{"sytem": "", "id": 1, ', ["{} questions have a column sytem, which is not read; did you mean system?"]),
        ('"answer": "', '"answer": "so\\n', ["{} answers have several lines, all of which reward = answer_match comp"]),
    ],
)
def test_what_may_keep_all_rewards_at_0_is_said(
    folder: Path, caplog: pytest.LogCaptureFixture, old: str, new: str, said: list[str]
):
    train = [line.replace(old, new) for line in lines(40).splitlines()]
    train = [line.replace("ANSWER", json.loads(line)["answer"]) for line in train]
    (folder / "data" / "train.jsonl").write_text("\n".join(train))
    found = sums()
    messages = [record.getMessage() for record in caplog.records]
    wanted = [f"data/sums.yaml: {each.format('40 of 40 train')}" for each in said]
    assert [message[: len(each)] for message, each in zip(messages, wanted, strict=True)] == wanted
    caplog.clear()
    build_split(found, "train")
    assert len(caplog.records) == sum("{}" in each for each in said)


def test_a_reward_that_does_not_look_at_the_answer_is_named(folder: Path, caplog: pytest.LogCaptureFixture):
    sums(reward="own_rewards:close")
    assert not caplog.records
    sums(reward="own_rewards:format")
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith("data/sums.yaml: reward = own_rewards:format: the answer to another question is right to")


@pytest.mark.parametrize(
    ("reward", "prompt", "tried"),
    [
        ("never", "<answer>", "'<answer>0</answer>', '<answer>2</answer>', '<answer>4</answer>', '<answer>6</answer>'"),
        ("number_alone", "<answer>", "'<answer>0</answer>', '<answer>2</answer>', '<answer>4</answer>', '<answer>6"),
        ("boxed", "#### or <answer>", "'<answer>0</answer>', '#### 0', '<answer>2</answer>', '#### 2'; is that meant?"),
        ("never", "", r"'0', '<answer>0</answer>', '\\boxed{0}', '#### 0'; is that meant? A column response can show"),
        ("number_alone", "", None),
        ("boxed", "", None),
        ("boxed", r"\boxed{}", None),
    ],
)
def test_a_reward_that_finds_no_right_answer_right_is_named(
    folder: Path, caplog: pytest.LogCaptureFixture, reward: str, prompt: str, tried: str | None
):
    """Right answers in the form that the questions name, or in every one that is known."""
    for file in (folder / "data").glob("t*.jsonl"):
        file.write_text(file.read_text().replace("<answer>", json.dumps(prompt)[1:-1]))
    found = sums(reward=f"own_rewards:{reward}")
    said = [record.getMessage() for record in caplog.records]
    starts = (
        f"data/sums.yaml: 4 of 40 train answers, all that were tried, have no reward = own_rewards:{reward}, as {tried}"
    )
    assert [message[: len(starts)] for message in said[:1]] == [starts] * (tried is not None)
    assert len(said) == (2 if tried else 0)
    caplog.clear()
    build_split(found, "train")
    assert len(caplog.records) == len(said) // 2
    with_response = json.dumps({"prompt": f"{prompt} 1?", "answer": "1", "response": r"\boxed{1}"})
    (folder / "data" / "train.jsonl").write_text(lines(40) + with_response)
    if reward == "boxed":  # a right one is shown
        caplog.clear()
        sums(reward="own_rewards:boxed")
        assert "train" not in "".join(record.getMessage() for record in caplog.records)


def test_a_slow_reward_is_tried_on_few_answers_before_the_splits_are_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("srpo.experiment.compose.PATIENCE", 1e-3)
    (folder / "data" / "train.jsonl").write_text(lines(90))
    found = sums(reward="own_rewards:slow")
    calls = sys.modules["own_rewards"].CALLS
    assert 0 < len(calls) < 10
    calls.clear()
    build_split(found, "train")
    assert {*calls} > {str(2 * i) for i in range(90)}


def test_a_slow_reward_is_tried_on_all_responses_when_the_split_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("srpo.experiment.compose.PATIENCE", 1e-3)
    rows = [{"prompt": f"{i}? <answer>", "answer": str(i), "response": f"It is {i}."} for i in range(40)]
    rows[-1]["response"] = "unknown"
    (folder / "data" / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = sums(reward="own_rewards:slow")
    with pytest.raises(SrpoError, match=r"train\.jsonl:40: response = 'unknown': not right by reward = own_rewards"):
        build_split(found, "train")


def test_a_reward_that_may_never_end_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr("srpo.experiment.compose.SLOW", 1e-3)
    sums(reward="own_rewards:slow")
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "data/sums.yaml: reward = own_rewards:slow: still tried after 0.001 seconds"


def test_a_file_beside_the_experiment_is_suggested(folder: Path, monkeypatch: pytest.MonkeyPatch):
    experiment()
    matrix = [{"models": ["miniature-small"], "benchmarks": ["data/sums.yaml"], "methods": ["grpo"]}]
    Path("mine.yaml").write_text(yaml.safe_dump(tiny_experiment(matrix=matrix), sort_keys=False))
    monkeypatch.chdir(folder / "modules")
    with refused(f"the path is relative to {folder}/modules; did you mean ../data/sums.yaml?"):
        load_experiment(folder / "mine.yaml")


def test_a_file_that_is_not_there_is_named(folder: Path):
    matrix = [{"models": ["miniature-small"], "benchmarks": ["data/nowhere.yaml"], "methods": ["grpo"]}]
    with pytest.raises(SrpoError, match=f"benchmarks: data/nowhere.yaml: no such file; .* {folder}$"):
        load_experiment(tiny_experiment(matrix=matrix))


def test_an_own_reward_scores(folder: Path):
    reward = sums(reward="own_rewards:close").reward
    responses = [f"<answer>{answer}</answer>" for answer in ("2.05", "3", "two")]
    assert [compute_reward(reward, response, "2") for response in responses] == [1.0, 0.0, 0.0]


def test_an_own_reward_of_questions_that_are_generated_is_checked_too(folder: Path):
    physics = {"kind": "miniature", "family": "physics", "train_questions": 64, "test_questions": 8, "title": "Own"}
    Path("own.yaml").write_text(yaml.safe_dump(physics | {"reward": "not_there:f"}))
    matrix = [{"models": ["miniature-small"], "benchmarks": ["own.yaml"], "methods": ["grpo"]}]
    with pytest.raises(SrpoError, match=r"^own\.yaml: reward = not_there:f: cannot be imported"):
        load_experiment(tiny_experiment(matrix=matrix))
