"""Model cards, answers of a checkpoint and the way to the hub, without a network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from synthetic import tiny_experiment, write_results

from srpo.benchmarks.splits import Question, write_split
from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import FilesBenchmark, Sampling
from srpo.layout import Layout, RunId
from srpo.publish.answers import checkpoint_of
from srpo.publish.model_card import CARD, base_model_line, data_line, write_cards
from srpo.repository import CONFIGS

RUN = RunId(model="miniature-small", benchmark="physics", method="srpo", seed=1)
SAMPLING = Sampling(temperature=0.6, top_p=0.95)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    write_results(tmp_path / "tiny", load_experiment(tiny_experiment()), keep=lambda run: run == RUN)
    return Layout(tmp_path / "tiny")


def ask(layout: Layout) -> Path:
    """A test split of one question."""
    path = layout.split(RUN.benchmark, "test")
    question = Question(0, [{"role": "user", "content": 'How "large"?'}], "large", "answer_match", "physics")
    write_split(path, [question], "test")
    return path


def test_every_evaluated_checkpoint_has_a_card(layout: Layout) -> None:
    files = layout.run_files(RUN)
    evaluation = json.loads(files.evaluation.read_text())
    cards = write_cards(files, SAMPLING, ask(layout))
    steps = {budget["step"] for budget in evaluation["budgets"].values()}
    assert {path.parent.parent.name for path in cards} == {f"step{step}" for step in steps}
    last = evaluation["budgets"]["10h"]
    text = (files.checkpoint(last["step"]) / "huggingface" / CARD).read_text()
    card = ModelCard(text)
    assert card.data.to_dict() | {"model-index": None} == {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "license": "apache-2.0",
        "tags": ["srpo", "reinforcement-learning"],
        "model-index": None,
    }
    scores = {
        each.metric_name: (each.dataset_type, each.dataset_split, each.metric_value) for each in card.data.eval_results
    }
    assert scores == {
        f"avg@{evaluation['k']}, selected within {label}": ("physics", "test", round(budget["avg_at_k"], 4))
        for label, budget in evaluation["budgets"].items()
        if budget["step"] == last["step"]
    }
    assert "{{" not in text
    for part in (
        f"avg@{evaluation['k']}", f"{100 * last['avg_at_k']:.1f} |", "95 % interval", "13707f0", "cd" * 32, "ab" * 32,
        "`physics`: generated questions", "SRPO (`srpo`), seed 1", "learning_rate: 5.0e-06", 'How \\"large\\"?',
        "AutoModelForCausalLM",
    ):  # fmt: skip
        assert part in text, part
    compile(text.split("```python\n")[1].split("```")[0], "card", "exec")


def test_a_card_names_own_files_and_not_their_place(layout: Layout) -> None:
    files = layout.run_files(RUN)
    origin = yaml.safe_load(files.origin.read_text())
    contents = {split: {"sha256": "ef" * 32, "rows": 64} for split in ("train", "test")}
    benchmark = FilesBenchmark(
        kind="files",
        name="sums",
        title="Sums",
        reward="answer_match",
        train_file="/home/me/secret/train.jsonl",
        test_file="/home/me/secret/test.jsonl",
        contents=contents,
    )
    origin["spec"]["benchmark"] = benchmark.model_dump(mode="json")
    files.origin.write_text(yaml.safe_dump(origin))
    for path in write_cards(files, SAMPLING, ask(layout)):
        text = path.read_text()
        assert "`sums`: `train.jsonl` and `test.jsonl`" in text
        assert "ef" * 32 in text
        assert "secret" not in text


EXPERIMENTS = {path.stem: load_experiment(path) for path in sorted((CONFIGS / "experiments").glob("*.yaml"))}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_card_can_name_the_base_and_the_data_of_every_experiment(name: str) -> None:
    """Evaluation writes the card: a kind that it does not know would end runs after their training."""
    dumped = EXPERIMENTS[name].model_dump(mode="json")
    for model in dumped["models"].values():
        assert model["name"] in base_model_line(model, {}) or model["kind"] == "hub"
    for benchmark in dumped["benchmarks"].values():
        assert f"`{benchmark['name']}`" in data_line(benchmark)


def test_a_budget_without_checkpoint_is_named(layout: Layout) -> None:
    with pytest.raises(SrpoError, match="no checkpoint of budget 7h; there is 5h, 10h"):
        checkpoint_of(load_experiment(tiny_experiment()), RUN, layout, "7h")
