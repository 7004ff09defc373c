"""``srpo.trl``: the gradients of TRL's trainer are those of a float64 program, however it divides a mini-batch."""

from __future__ import annotations

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from datasets import Dataset
from paths import ROOT, SUPPORT

pytest.importorskip("trl", reason="needs TRL, which excludes verl: make test-trl")

from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM, TrainerCallback
from trl_driver import SAMPLES, differences, reward, write_model

import srpo
from srpo.benchmarks.splits import write_split
from srpo.experiment.compose import experiment_file, load_experiment
from srpo.models import build_model
from srpo.sources.build import build_split
from srpo.trl import SDPOConfig, SRPOConfig, SRPOTrainer

NEAR = 1e-6
"""As a share of the largest gradient. Models are float64; the loss has float32 inside."""


@pytest.mark.parametrize(
    ("method", "accumulation", "per_generation"),
    [("srpo", 1, 1), ("srpo", 2, 4), ("sc_sdpo", 4, 4), ("rlsd", 2, 2), ("grpo", 2, 4)],
)
def test_gradients_equal_the_slow_ones(method, accumulation, per_generation, tmp_path: Path) -> None:
    """Three updates; with more micro-batches per generation than per update, the second is off-policy."""
    found = differences(tmp_path, method, accumulation, per_generation)
    assert len(found) == 3
    assert max(found) < NEAR


def test_gradients_of_an_adapter_too(tmp_path: Path) -> None:
    found = differences(tmp_path, "srpo", 2, 2, lora=True)
    assert max(found) < NEAR


def test_two_processes_have_one_denominator(tmp_path: Path) -> None:
    """And one mean of the weights, in gradient accumulation too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), *sys.path])}
    command = [sys.executable, SUPPORT / "trl_driver.py", tmp_path, "srpo", "2", str(port)]
    started = [
        subprocess.Popen([*command, str(rank), "2", "2"], env=environment, stdout=-1, stderr=-1, text=True)
        for rank in range(2)
    ]
    for process in started:
        out, error = process.communicate()
        assert process.returncode == 0, error[-3000:]
        found = [float(number) for number in out.rpartition("differences")[2].split()]
        assert len(found) == 3
        assert max(found) < NEAR


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"distillation_weight": 0.5},
            "distillation_weight = 0.5: a rollout is routed, losses are not mixed; leave it",
        ),
        ({"distillation_mode": "full_logits"}, "distillation_mode = 'full_logits': the loss is of the top K"),
        ({"scale_rewards": "group"}, "scale_rewards = 'group': advantages are not divided by a deviation"),
        ({"method": "srpo_success_buffer"}, "method = 'srpo_success_buffer': TRL's trainer has no success_buffer"),
        ({"method": "srpo_trust_region"}, "TRL's trainer has no trust region"),
        ({"method": "grpo_with_anchor"}, "TRL's trainer has no teacher under the student's own prompt"),
        ({"method": "srop"}, "no method 'srop'"),
        ({"num_generations": 1}, "num_generations = 1: a group needs at least 2 rollouts"),
        ({"reprompt_template": "{prompt}"}, "reprompt_template has no {solution}"),
        ({"teacher_model_kind": "live"}, "teacher_model_kind = 'live': the method has its teacher; leave it at 'ema'"),
        (
            {"gradient_accumulation_steps": 2, "steps_per_generation": 3},
            "steps_per_generation = 3: gradient_accumulation_steps = 2 does not divide it",
        ),
    ],
)
def test_what_trl_would_do_otherwise_is_refused(changes, says, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        SRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **changes)


def test_trls_own_arguments_are_refused() -> None:
    """They would train SDPO."""
    with pytest.raises(ValueError, match="args is a SDPOConfig: give an SRPOConfig"):
        SRPOTrainer("model", args=SDPOConfig("out", use_cpu=True, bf16=False))


def test_hyperparameters_are_the_methods(tmp_path: Path) -> None:
    args = SRPOConfig(str(tmp_path), use_cpu=True, bf16=False)
    assert args._method == srpo.load_method("srpo")
    assert (args.learning_rate, args.epsilon_high, args.distillation_topk) == (5e-6, 0.28, 100)
    args = SRPOConfig(str(tmp_path), use_cpu=True, bf16=False, epsilon_high=0.3, distillation_topk=20)
    assert (args._method.clip_ratio_high, args._method.distillation_topk) == (0.3, 20)
    assert (args.weight_decay, args.warmup_steps, args.lr_scheduler_type) == (0.01, 10, "constant_with_warmup")


def test_a_method_of_your_own(tmp_path: Path) -> None:
    own = srpo.load_method("srpo", entropy_beta=0.5)
    args = SRPOConfig(str(tmp_path), method=own, use_cpu=True, bf16=False, epsilon_high=0.3)
    assert args._method == srpo.load_method("srpo", entropy_beta=0.5, clip_ratio_high=0.3)
    assert '"method": "srpo"' in args.to_json_string()


def trainer(folder: Path, reward_funcs=reward, dtype=torch.float32, steps: int = 2, **changes) -> SRPOTrainer:
    """Of a model that differs from its files."""
    write_model(folder / "model")
    model = Qwen3ForCausalLM.from_pretrained(folder / "model", dtype=dtype)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1)
    data = changes.pop("data", Dataset.from_list([{"prompt": [{"role": "user", "content": "say yes"}]}] * 16))
    sizes = {"per_device_train_batch_size": 8, "num_generations": SAMPLES, "max_completion_length": 4}
    where = {"report_to": [], "disable_tqdm": True, "use_cpu": True, "bf16": False, "save_steps": 2}
    settings = {"learning_rate": 1e-2, "warmup_steps": 0, "max_steps": steps, **sizes, **where, **changes}
    return SRPOTrainer(
        model,
        reward_funcs=reward_funcs,
        args=SRPOConfig(str(folder / "out"), **settings),
        train_dataset=data,
        processing_class=PreTrainedTokenizerFast.from_pretrained(folder / "model", padding_side="left"),
    )


def distance(one: torch.nn.Module, other: torch.nn.Module) -> float:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


def test_the_teacher_is_a_copy_of_the_model_that_is_given(tmp_path: Path) -> None:
    made = trainer(tmp_path)
    assert made.teacher_model is not made.model
    assert distance(made.model, made.teacher_model) == 0


def test_a_resumed_run_has_the_teacher_of_its_checkpoint(tmp_path: Path) -> None:
    first = trainer(tmp_path)
    first.train()
    assert distance(first.model, first.teacher_model) > 0
    again = trainer(tmp_path, steps=3)
    found = []

    class Look(TrainerCallback):
        def on_train_begin(self, *_, **__) -> None:
            found.append(distance(first.teacher_model, again.teacher_model))

    again.add_callback(Look())
    again.train(resume_from_checkpoint=True)
    assert found == [0]
    for file in (tmp_path / "out").glob("checkpoint-*/teacher.safetensors"):
        file.unlink()
    with pytest.raises(ValueError, match=r"teacher.safetensors is missing: the checkpoint has no teacher"):
        trainer(tmp_path).train(resume_from_checkpoint=True)


@pytest.mark.parametrize(
    ("rewards", "says"),
    [
        (lambda count: [None] * count, "returned None: give a finite number per completion"),
        (lambda count: [float("nan")] * count, "returned nan: give a finite number"),
        (lambda count: [1.0], "returned 1 rewards for 8 completions"),
        (lambda count: [2.0] * count, "a rollout's reward is 2, not 1 or 0: set success_reward_threshold"),
    ],
)
def test_rewards_that_trl_would_take_for_others_are_refused(rewards, says, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        trainer(tmp_path, lambda completions, **_: rewards(len(completions))).train()


def test_with_a_threshold_rewards_are_any_numbers(tmp_path: Path) -> None:
    trainer(tmp_path, lambda completions, **_: [2.0] * len(completions), steps=1, success_reward_threshold=2).train()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"dtype": torch.bfloat16}, "model is torch.bfloat16: the teacher's average needs float32"),
        ({"data": Dataset.from_list([{"question": "say yes"}])}, "train_dataset has no column prompt, only question"),
        ({"data": Dataset.from_dict({"prompt": []})}, "train_dataset is empty"),
    ],
)
def test_what_cannot_be_trained_is_refused_at_construction(changes, says, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says):
        trainer(tmp_path, **changes)


def test_a_teachers_prompt_that_trl_cuts_is_named(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"max_reprompt_len = 3: a teacher's prompt has \d+ tokens, and TRL cuts its"):
        trainer(tmp_path, lambda completions, **_: [1.0] * len(completions), steps=1, max_reprompt_len=3).train()


@pytest.mark.parametrize(
    ("method", "kind", "rate", "every"),
    [
        ("srpo", "ema", 0.05, 2),
        ("srpo_snapshot_teacher", "ema", 1.0, 20),
        ("srpo_frozen_teacher", "base", 0.05, 2),
        ("srpo_live_teacher", "live", 0.05, 2),
        ("grpo", "live", 0.05, 2),
    ],
)
def test_the_teacher_moves_by_the_methods_clock(method, kind, rate, every, tmp_path: Path) -> None:
    """Of two updates per batch, after the second."""
    steps = {"gradient_accumulation_steps": 2, "steps_per_generation": 4}
    args = SRPOConfig(str(tmp_path), method=method, use_cpu=True, bf16=False, **steps)
    assert (args.teacher_model_kind, args.teacher_update_rate, args.teacher_sync_steps) == (kind, rate, every)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_trl_trainer_learns_on_the_toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    module = runpy.run_path(str(ROOT / "examples" / "trl_trainer.py"))
    experiment = load_experiment(experiment_file("demo"))
    model = experiment.models["miniature-large"].base_model(2)
    build_model(model, tmp_path / "model", {})
    questions = tmp_path / "train.parquet"
    write_split(questions, build_split(experiment.benchmarks["physics"].for_model(model), "train"), "train")
    rewards = module["main"](str(tmp_path / "model"), str(questions), batches=14, seed=2)
    assert len(rewards) == 14
    assert mean(rewards[-7:]) > mean(rewards[:3]) + 0.1
