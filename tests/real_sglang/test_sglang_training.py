"""Training steps whose rollouts come from verl's own SGLang servers, in Ray, on a CPU: weights, sleep and seeds."""

import hashlib

import pytest
from tiny import prepare, tiny_experiment

from srpo.files import read_events
from srpo.policy import verl_config
from srpo.policy.servers import ServerRollout
from srpo.rewards import REWARDS, Reward
from srpo.training import loop

CPU = {"device": "cpu", "attention_backend": "torch_native", "max_total_tokens": 20000}
ROLLOUT = "actor_rollout_ref.rollout"


@pytest.fixture
def saver_calls(monkeypatch, tmp_path):
    """Where the memory saver's stand-in notes its calls."""
    path = tmp_path / "memory_saver.txt"
    monkeypatch.setenv("SRPO_MEMORY_SAVER", str(path))
    return path


@pytest.fixture(autouse=True)
def on_a_cpu(monkeypatch):
    ours = verl_config._overrides

    def overrides(spec, model):
        cpu = [(f"+{ROLLOUT}.engine_kwargs.sglang.{key}", value) for key, value in CPU.items()]
        return [*ours(spec, model), *cpu, (f"{ROLLOUT}.dtype", "float32")]

    monkeypatch.setattr(verl_config, "_overrides", overrides)
    monkeypatch.setenv("SRPO_VISIBLE_CPUS", "0")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    four_in_ten = Reward(lambda response, truth: hashlib.md5(response.encode()).digest()[0] < 100)
    monkeypatch.setitem(REWARDS, "answer_match", four_in_ten)


def test_servers_have_the_trainers_weights_at_every_step(saver_calls, monkeypatch, tmp_path):
    sampled = []
    generate = ServerRollout.generate

    def note_and_generate(self, prompt_ids, params, seeds):
        completions = generate(self, prompt_ids, params, seeds)
        sampled.append([c.token_ids for group in completions for c in group])
        return completions

    monkeypatch.setattr(ServerRollout, "generate", note_and_generate)
    execution = {"driver": "ray", "rollout_engine": "sglang", "deterministic_rollouts": True}
    experiment = tiny_experiment("srpo", execution=execution, validate_every=2, max_steps=3)
    spec, layout = prepare(experiment, tmp_path)
    loop.train(spec, layout)
    steps = list(read_events(layout.run(spec.id) / "steps.jsonl"))
    assert [step["step"] for step in steps] == [1, 2, 3]
    for step in steps:
        metrics = step["metrics"]
        # the mean over tokens of the ratio of the trainer's and the server's probabilities: a server that missed an
        # update of this learning rate is off by more
        assert metrics["actor/rollout_is_weight"] == pytest.approx(1, abs=1e-4)
        assert metrics["actor/grad_norm"] > 0
    assert len(list(read_events(layout.run(spec.id) / "validations.jsonl"))) >= 2
    assert all(len(set(map(tuple, batch))) > len(batch) / 2 for batch in sampled)  # every sample has its own seed
    # asleep while the trainer works, awake while it samples
    calls = saver_calls.read_text().splitlines()
    for tag in ("kv_cache", "weights"):
        of_tag = [call.split()[0] for call in calls if call.endswith(tag)]
        assert of_tag.count("pause") >= 3
        assert of_tag.count("resume") >= 3
