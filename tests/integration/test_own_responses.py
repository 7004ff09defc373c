"""Own questions with responses: the page's example, with a tiny model in the place of SmolLM2."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
import yaml
from one_line import refused
from paths import ROOT

from srpo.benchmarks.splits import read_split, write_split
from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.files import read_events, read_json
from srpo.layout import Layout, model_description
from srpo.models import build_model
from srpo.repository import CONFIGS
from srpo.sources.build import build_split
from srpo.training.loop import train

DOCS = ROOT / "docs"
SECTION = (DOCS / "small-scale.md").read_text().split("## Your questions")[1].split("\n## ")[0]
LINES, EXPERIMENT = re.findall(r"```(?:json|yaml)\n(.*?)```", SECTION, re.DOTALL)
BENCHMARK = re.search(
    r"# configs/(benchmarks/lab/sums.yaml)\n.*?(?=```)", (DOCS / "extending.md").read_text(), re.DOTALL
)
TINY = {
    "kind": "miniature",
    "title": "Tiny",
    "architecture": yaml.safe_load((CONFIGS / "models" / "miniature-tiny.yaml").read_text())["architecture"],
    "warm_start": {"corpus": "files", "steps": 150, "batch_size": 16, "learning_rate": 4e-3, "informed_fraction": 0.3},
}


def sums(pairs, responses: bool) -> list[dict[str, str]]:
    """Rows like those of the page."""
    rows = [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a, b in pairs]
    if responses:
        rows = [
            row | {"response": f"{row['prompt'][8:-1]} = {row['answer']}\n<answer>{row['answer']}</answer>"}
            for row in rows
        ]
    return rows


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Experiment:
    """The page's experiment in the working directory; half of the train questions have responses."""
    monkeypatch.chdir(tmp_path)
    with_response, without = map(json.loads, LINES.splitlines())
    assert with_response == sums([(17, 25)], responses=True)[0]
    assert without == sums([(31, 8)], responses=False)[0]
    pairs = [*itertools.product(range(1, 10), repeat=2)]
    splits = {"train": sums(pairs[0:60:2], True) + sums(pairs[1:60:2], False), "test": sums(pairs[60:], False)}
    Path("mine.yaml").write_text(EXPERIMENT.replace("max_steps: 12", "max_steps: 2"))
    shutil.copytree(CONFIGS, "configs", ignore=shutil.ignore_patterns("stored"))
    benchmark = Path("configs", BENCHMARK[1])
    benchmark.parent.mkdir()
    benchmark.write_text(BENCHMARK[0])
    for name, rows in splits.items():
        benchmark.with_name(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("configs/models/smollm2-135m-files.yaml").write_text(yaml.safe_dump(TINY))
    return load_experiment(Path("mine.yaml"), Path("configs"))


def test_the_page_of_own_questions_runs_with_a_tiny_model(opened: Experiment) -> None:
    layout = Layout(Path("results/mine"))
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


@pytest.mark.parametrize(
    ("response", "says"),
    [
        ("8", "train.jsonl:1: response = '8': not right by reward = answer_match, the answer is '2'"),
        (8, "train.jsonl:1: response = 8: must be text"),
    ],
)
def test_a_response_that_is_not_right_is_refused(opened: Experiment, response: object, says: str) -> None:
    file = Path("configs/benchmarks/lab/train.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[0]["response"] = response
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(SrpoError, match=re.escape(says)):
        load_experiment(Path("mine.yaml"), Path("configs"))


def test_that_no_question_has_a_response_is_said_before_anything_runs(opened: Experiment) -> None:
    file = Path("configs/benchmarks/lab/train.jsonl")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps(row | {"response": None}) + "\n" for row in rows))
    with refused("mine.yaml: model smollm2-135m-files: warm_start.corpus = files: no question", "lab/train.jsonl"):
        load_experiment(Path("mine.yaml"), Path("configs"))


def test_without_any_response_there_is_no_warm_start(opened: Experiment, tmp_path: Path) -> None:
    write_split(tmp_path / "train.parquet", build_split(opened.benchmarks["sums"], "test"), "train")
    with pytest.raises(SrpoError, match=r"corpus = files: sums: no question has a response; .* a column response"):
        build_model(opened.models["smollm2-135m-files"], tmp_path / "m", {"sums": tmp_path / "train.parquet"})
