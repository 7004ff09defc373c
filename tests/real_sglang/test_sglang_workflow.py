"""The workflow with SGLang, from split to report: its servers sample for training, evaluation and the gap."""

import math

import pytest
import yaml
from snakemake_command import snakemake

from srpo.experiment.compose import load_experiment
from srpo.ground.files import read_events, read_json
from srpo.ground.layout import Layout
from srpo.questions.splits import read_split
from srpo.rollout.embedded import EmbeddedEngine
from srpo.starts.open_tokenizer import open_tokenizer
from srpo.training.avg_at_k import evaluate_questions

QUESTIONS = {"train_questions": 16, "test_questions": 16}
BENCHMARK = {"kind": "miniature", "title": "Few", "reward": "answer_match", "family": "materials", **QUESTIONS}
EXPERIMENT = {
    "name": "smoke-sglang",
    "title": "SRPO through Ray and SGLang",
    "extends": "smoke",
    "matrix": [{"models": ["miniature-tiny"], "benchmarks": ["few.yaml"], "methods": ["srpo"]}],
    "overrides": {"srpo": {"learning_rate": 1e-3, "mini_batch_questions": 8}},
    "training": {
        "questions_per_batch": 8,
        "rollouts_per_question": 4,
        "warmup_steps": 0,
        "validation": {"rollouts": 1},
        "budget_seconds": {"1h": 0.08},  # of the modelled clock: three steps
    },
    "execution": {"driver": "ray", "rollout_engine": "sglang", "deterministic_rollouts": True},
}


@pytest.fixture(scope="module")
def layout(tmp_path_factory):
    """What the workflow made; its own `all` wants every kind of file."""
    folder = tmp_path_factory.mktemp("workflow")
    (folder / "few.yaml").write_text(yaml.safe_dump(BENCHMARK))
    (folder / "experiment.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SRPO_MEMORY_SAVER", str(folder / "memory_saver.txt"))
        patch.setenv("SRPO_VISIBLE_CPUS", "0")
        patch.setenv("MLFLOW_TRACKING_URI", "")
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        result = snakemake(folder, "--cores", 2, "--configfile", "experiment.yaml")
    assert result.returncode == 0, result.stderr
    return Layout(folder / "results" / "smoke-sglang")


@pytest.fixture(scope="module")
def experiment(layout):
    return load_experiment(layout.experiment)


def test_servers_have_the_trainers_weights_at_every_step(layout, experiment):
    files = layout.run_files(experiment.runs()[0])
    steps = list(read_events(files.steps))
    assert [step["step"] for step in steps] == [1, 2, 3]
    for step in steps:
        # a server that missed an update of this learning rate is off by more
        assert step["metrics"]["rollout_corr/log_prob_rms"] < 1e-3
        assert step["metrics"]["actor/grad_norm"] > 0
    assert [each["step"] for each in read_events(files.validations)] == [2, 3]
    groups = [[rollout["response"] for rollout in group["rollouts"]] for group in read_events(files.groups)]
    assert sum(len(set(group)) for group in groups) > sum(map(len, groups)) / 2  # every sample has its own seed


def test_servers_sleep_while_the_trainer_works(layout):
    calls = (layout.folder.parents[1] / "memory_saver.txt").read_text().splitlines()
    for tag in ("kv_cache", "weights"):
        of_tag = [call.split()[0] for call in calls if call.endswith(tag)]
        assert of_tag.count("pause") >= 3
        assert of_tag.count("resume") >= 3


def test_evaluation_has_the_scores_of_the_weights(layout, experiment):
    """As the embedded engine samples them, within four standard errors: of the base model and of the run."""
    (base, benchmark), run = experiment.base_evaluations()[0], experiment.runs()[0]
    tokenizer = open_tokenizer(layout.model(base))
    questions, training = read_split(layout.split(benchmark, "test")), experiment.training
    for files in (layout.base_files(base, benchmark), layout.run_files(run)):
        evaluation = read_json(files.evaluation)
        (found,) = evaluation["budgets"].values()
        weights = files.selected(found["step"]) if found["step"] else layout.model(base)
        expected = evaluate_questions(
            EmbeddedEngine.from_pretrained(weights, "float32"),
            tokenizer,
            questions,
            experiment.evaluation.model_copy(update={"rollouts": 64}),
            training.max_prompt_length,
            training.max_response_length,
            seed_key=("test",),
        )
        chances = [(64 * score + 1) / 66 for score in expected.question_scores]
        variance = sum(p * (1 - p) for p in chances) / evaluation["k"] / len(questions) ** 2
        assert abs(found["avg_at_k"] - expected.avg_at_k) < 4 * math.sqrt(variance)
        assert found["format_fraction"] > 0.9
        samples = [(each["question"], each["response"]) for each in read_events(files.samples)]
        assert len(set(samples)) > len(samples) / 2  # every sample has its own seed
