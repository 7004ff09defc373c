"""``srpo.hosts.trl``: gradients of TRL's trainer are those of a float64 program, however it divides a mini-batch."""

import ast
import copy
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from statistics import fmean

import pytest
import torch
from datasets import Dataset
from paths import ROOT, SUPPORT

pytest.importorskip("trl", reason="needs TRL, which excludes verl: make test-trl")

from peft import LoraConfig
from transformers import PreTrainedTokenizerFast, Qwen3ForCausalLM, TrainerCallback
from trl_driver import SAMPLES, differences, reward, write_model

import srpo
from srpo.hosts.trl import SRPOConfig, SRPOTrainer

NEAR = 1e-6
"""As a share of the largest gradient. Models are float64; the loss has float32 inside."""


ONE = Dataset.from_list([{"prompt": [{"role": "user", "content": "say yes"}]}])


@pytest.mark.parametrize(
    ("method", "accumulation", "per_generation"),
    [("srpo", 1, 1), ("srpo", 2, 4), ("sc_sdpo", 4, 4), ("rlsd", 2, 2), ("grpo", 2, 4)],
)
def test_gradients_equal_the_slow_ones(method, accumulation, per_generation, tmp_path: Path) -> None:
    """Three updates; with more micro-batches per generation than per update, the second is off-policy."""
    found = differences(tmp_path, method, accumulation, per_generation)
    assert len(found) == 3
    assert max(found) < NEAR


@pytest.mark.parametrize("changes", [{"num_iterations": 2}, {"num_generations": 8, "mask_truncated_completions": True}])
def test_gradients_with_other_arguments_too(changes, tmp_path: Path) -> None:
    assert max(differences(tmp_path, "srpo", 2, 4, **changes)) < NEAR


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
    "changes",
    [
        {"distillation_weight": 0.5},
        {"distillation_mode": "full_logits"},
        {"scale_rewards": "group"},
        {"method": "srpo_success_buffer"},
        {"auto_find_batch_size": True},
        {"top_p": 0.9},
        {"generation_kwargs": {"top_p": 0.9}},
        {"teacher_model_kind": "live"},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 3},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_trl_would_silently_train_otherwise_is_refused(changes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        SRPOConfig(str(tmp_path), use_cpu=True, bf16=False, **changes)


def test_hyperparameters_are_the_methods(tmp_path: Path) -> None:
    args = SRPOConfig(str(tmp_path), use_cpu=True, bf16=False)
    assert args._method == srpo.load_method("srpo")
    assert SRPOConfig(str(tmp_path), use_cpu=True, bf16=False, scale_rewards=False).scale_rewards == "none"
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
    model.requires_grad_(not changes.pop("frozen", False))
    more = {key: changes.pop(key) for key in ("eval_dataset", "peft_config") if key in changes}
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
        **more,
    )


def test_call_after_an_interrupted_one_begins_with_new_rollouts(tmp_path: Path) -> None:
    calls = []

    def interrupted(completions: list, **_: object) -> list[float]:
        calls.append(len(completions))
        return reward(completions)

    made = trainer(tmp_path, interrupted, gradient_accumulation_steps=2)
    compute_loss = made.compute_loss
    made.compute_loss = lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        made.train()
    made.compute_loss = compute_loss
    made.train()
    assert calls == [16, 16, 16]


def test_the_teacher_of_an_adapter_has_no_dropout(tmp_path: Path) -> None:
    """Weights and loss ask it twice."""
    adapter = LoraConfig(r=2, target_modules=["q_proj"], lora_dropout=0.9, init_lora_weights=False)
    made = trainer(tmp_path, peft_config=adapter)
    made.train()
    part = made._buffered_inputs[0]
    assert torch.equal(made._teacher_logits(part), made._teacher_logits(part))
    assert made.model.training


def test_logged_deviation_of_groups_is_theirs(tmp_path: Path) -> None:
    """TRL's is 1 if advantages are not divided by it."""
    made = trainer(tmp_path, lambda completions, **_: [1.0, 0.0] * (len(completions) // 2), steps=1, logging_steps=1)
    made.train()
    logged = made.state.log_history[0]
    assert logged["self_distillation/group_reward_std_mean"] == pytest.approx(3**-0.5)
    made = trainer(tmp_path, lambda completions, **_: [1.0] * len(completions), steps=1, logging_steps=1)
    made.train()
    assert made.state.log_history[0]["self_distillation/flat_group_fraction"] == 1


def test_masked_completions_are_not_trained_on(tmp_path: Path) -> None:
    """Here all of them, for the end is forbidden: there is nothing to divide by either."""
    made = trainer(tmp_path, steps=1, mask_truncated_completions=True)
    made.generation_config.update(suppress_tokens=[0, 1])
    before = copy.deepcopy(made.model)
    made.train()
    assert made.state.log_history[-1]["train_loss"] == 0
    assert distance(before, made.model) < 1e-3  # weight decay alone


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
    with pytest.raises(FileNotFoundError):
        trainer(tmp_path).train(resume_from_checkpoint=True)


@pytest.mark.parametrize("rewards", [[None] * 8, [float("nan")] * 8, [1.0], [2.0] * 8])
def test_rewards_that_trl_would_take_for_others_are_refused(rewards, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="reward"):
        trainer(tmp_path, lambda completions, **_: rewards).train()


@pytest.mark.parametrize("peft_config", [None, LoraConfig(r=2, target_modules=["q_proj"])])
def test_the_models_own_settings_do_not_change_samples(peft_config, tmp_path: Path) -> None:
    """transformers fills what TRL leaves open from the model's generation_config.json."""
    seen = []
    for own in ({}, {"do_sample": True, "min_p": 0.9, "no_repeat_ngram_size": 1}):

        def see(completions: list, **_: object) -> list[float]:
            seen.append(completions)
            return reward(completions)

        made = trainer(tmp_path, see, steps=1, peft_config=peft_config)
        made.model.generation_config.update(**own)
        made.train()
        assert made.model.generation_config.min_p == own.get("min_p")
    assert seen[0] == seen[1]


def test_the_threshold_itself_is_correct(tmp_path: Path) -> None:
    """0.7 is more than its float32."""
    rewards = lambda completions, **_: [0.7, 0.0] * (len(completions) // 2)  # noqa: E731
    made = trainer(tmp_path, rewards, steps=1, success_reward_threshold=0.7)
    made.train()
    assert made._buffered_inputs[0]["self_distillation_mask"].all()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dtype": torch.bfloat16}, "model is torch.bfloat16"),
        ({"data": Dataset.from_dict({"prompt": []})}, "train_dataset"),
        ({"data": ONE.to_iterable_dataset()}, "train_dataset"),
        ({"eval_dataset": {"a": ONE.to_iterable_dataset()}}, "eval_dataset"),
        ({"eval_dataset": ONE, "per_device_eval_batch_size": 6}, "per_device_eval_batch_size = 6"),
    ],
)
def test_what_trl_would_silently_train_on_otherwise_is_refused(changes, named, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=named):
        trainer(tmp_path, **changes)


def test_a_template_that_begins_with_a_thought_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(PreTrainedTokenizerFast, "apply_chat_template", lambda *_, **__: "say yes <think>\n")
    with pytest.raises(ValueError, match="<think>"):
        trainer(tmp_path)


def test_several_gpus_in_one_process_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SRPOConfig, "n_gpu", 2)
    with pytest.raises(ValueError, match="2 GPUs in one process: TRL would mix up groups; start with accelerate"):
        trainer(tmp_path)


@pytest.mark.parametrize(
    ("method", "kind", "rate", "every"),
    [
        ("srpo", "ema", 0.05, 2),
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


def test_trl_trainer_learns_on_the_toy(tmp_path: Path) -> None:
    module = runpy.run_path(str(ROOT / "examples" / "trl_trainer.py"))
    rewards = module["main"](tmp_path, batches=14)
    assert len(rewards) == 14
    assert fmean(rewards[-7:]) > fmean(rewards[:3]) + 0.1


def test_the_pages_program_learns_as_it_is_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "docs" / "verl.md").read_text().partition("\n## In TRL\n")[2]
    program, paper = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[:2]
    exec(program, {})
    first, *_, last = ast.literal_eval(capsys.readouterr().out.splitlines()[-1])
    assert last > first + 0.2
    exec(paper.replace("**paper", "use_cpu=True, bf16=False, **paper"), names := {})
    assert names["args"]._method.entropy_beta == 1
