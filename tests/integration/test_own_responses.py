"""Own questions with responses: examples/own-questions, with a tiny model in the place of SmolLM2."""

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from paths import ROOT

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events, read_json
from srpo.ground.layout import Layout, model_description
from srpo.ground.repository import CONFIGS
from srpo.questions.splits import read_split, write_split
from srpo.starts import build_model
from srpo.starts.data import build_split
from srpo.training.loop import train

OWN = Path("examples", "own-questions")
FILE = OWN / "experiment.yaml"
TINY = {
    "kind": "miniature",
    "title": "Tiny",
    "architecture": yaml.safe_load((CONFIGS / "models" / "miniature-tiny.yaml").read_text())["architecture"],
    "warm_start": {"corpus": "files", "steps": 150, "batch_size": 16, "learning_rate": 4e-3, "informed_fraction": 0.3},
}


def sums(pairs, responses: bool) -> list[dict[str, str]]:
    """Rows like those of the example."""
    rows = [
        {"prompt": f"What is {a} + {b}? Write the result between <answer> and </answer>.", "answer": str(a + b)}
        for a, b in pairs
    ]
    if responses:
        rows = [
            row | {"response": f"{row['prompt'].split('?')[0][8:]} = {row['answer']}\n<answer>{row['answer']}</answer>"}
            for row in rows
        ]
    return rows


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """The example in the working directory, with easier sums; half of the train questions have responses."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / OWN, OWN)
    FILE.write_text(FILE.read_text().replace("max_steps: 12", "max_steps: 2"))
    pairs = [*itertools.product(range(1, 10), repeat=2)]
    splits = {"train": sums(pairs[0:60:2], True) + sums(pairs[1:60:2], False), "test": sums(pairs[60:], False)}
    for name, rows in splits.items():
        (OWN / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    shutil.copytree(CONFIGS, "configs", ignore=shutil.ignore_patterns("stored"))
    Path("configs/models/smollm2-135m-files.yaml").write_text(yaml.safe_dump(TINY))
    return load_experiment(FILE, Path("configs"))


def test_the_shipped_questions_are_right_and_new_in_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    experiment = load_experiment(FILE)
    train, test = (build_split(experiment.benchmarks["sums"], split) for split in ("train", "test"))
    sums = [tuple(map(int, re.findall(r"\d+", question.messages[0]["content"]))) for question in (*train, *test)]
    assert len(set(sums)) == len(sums) == 264
    assert [str(a + b) for a, b in sums] == [question.ground_truth for question in (*train, *test)]


def test_the_example_of_own_questions_runs_with_a_tiny_model(opened: Experiment) -> None:
    layout = Layout(Path("results/own-questions"))
    for split in ("train", "test"):
        write_split(layout.split("sums", split), build_split(opened.benchmarks["sums"], split), split)
    assert sum(question.response is not None for question in read_split(layout.split("sums", "train"))) == 30
    base = layout.model("smollm2-135m-files")
    build_model(opened.models["smollm2-135m-files"], base, {"sums": layout.split("sums", "train")})
    accuracy = read_json(model_description(base))["warm_start"]["accuracy"]["sums"]
    assert accuracy["plain"] > 0.2  # of the questions that it was shown; without a warm start none
    run = next(run for run in opened.runs() if run.method == "srpo")
    train(opened.run(run), layout)
    rewards = [event["metrics"]["reward/mean"] for event in read_events(layout.run_files(run).steps)]
    assert len(rewards) == 2
    assert 0 < sum(rewards) / 2 < 1


def test_a_response_that_is_not_right_is_refused(opened: Experiment) -> None:
    file = OWN / "train.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row) + "\n" for row in [rows[0] | {"response": "8"}, *rows[1:]]))
    with pytest.raises(SrpoError, match="not right by reward"):
        load_experiment(FILE, Path("configs"))
