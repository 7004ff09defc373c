"""``srpo.trl``: the gradients of TRL's trainer are those of a float64 program, however it divides a mini-batch."""

from __future__ import annotations

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT, SUPPORT

pytest.importorskip("trl", reason="needs TRL, which excludes verl: make test-trl")

from trl_driver import differences

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
