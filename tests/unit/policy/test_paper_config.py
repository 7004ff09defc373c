"""What verl is told in the paper's runs: table 3, read off the configuration that verl's own classes accept."""

import inspect
import os
from pathlib import Path
from typing import get_args

import pytest
import torch
from omegaconf import OmegaConf
from transformers import Qwen3Config
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.distributed import initialize_global_process_group_ray
from verl.utils.torch_functional import get_constant_schedule_with_warmup
from verl.workers.config import HFModelConfig
from verl.workers.config.optimizer import build_optimizer

from srpo.algorithm.method import Method
from srpo.experiment import memory
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Execution, VerlKey
from srpo.ground.machine import gpus
from srpo.ground.repository import CONFIGS
from srpo.policy import verl_config
from srpo.policy.shared_prompts import SHARED_PROMPTS
from srpo.policy.verl_config import RUNNING_SAMPLES, compose_verl_config, samples_per_server
from srpo.policy.worker import COLLECTIVE_SECONDS
from srpo.starts.make_tokenizer import symbol_tokenizer

PAPER = load_experiment(CONFIGS / "experiments" / "paper.yaml")
SGLANG = "actor_rollout_ref.rollout.engine_kwargs.sglang"
GRAPHS = f"{SGLANG}.cuda_graph_max_bs"

# Table 3. Rollouts are per question; an update is one mini-batch of questions.
TEACHER = {"top-K": 100, "divergence (alpha)": 0.5, "EMA rate": 0.05}
ONE_UPDATE = {"mini-batch (questions)": 32, "updates a batch": 1}
TABLE_3 = {
    "grpo": {"mini-batch (questions)": 8, "updates a batch": 4, "learning rate": 1e-6, "clip high": 0.28},
    "sdpo": ONE_UPDATE | TEACHER | {"learning rate": 1e-5, "beta": 0.0},
    "srpo": ONE_UPDATE | TEACHER | {"learning rate": 5e-6, "clip high": 0.28, "beta": 1.0},
}
TABLE_3["srpo_without_weighting"] = TABLE_3["srpo"] | {"beta": 0.0}
TABLE_3["advantage_mix"] = {k: v for k, v in TABLE_3["srpo"].items() if k != "beta"} | {"lambda": 0.9}
TABLE_3["sdpo_failed_only"] = TABLE_3["sdpo_correct_only"] = TABLE_3["sdpo"]
EVERY_METHOD = {
    "questions per batch": 32,
    "rollouts": 8,
    "max prompt": 2048,
    "max response": 8192,
    "rollout temperature": 1.0,
    "weight decay": 0.01,
    "warm-up steps": 10,
    "gradient clip norm": 1.0,
    "rollout correction": 2.0,
    "KL coefficient": 0,
    "entropy bonus": 0,
    "validation every": 5,
    "validation rollouts": 16,
    "validation temperature": 0.6,
    "validation top-p": 0.95,
}


@pytest.fixture(scope="module")
def composed():
    """The configuration of each run of the paper's experiment; its model need not be there."""
    return {run: compose_verl_config(PAPER.run(run), Path("/nowhere")) for run in PAPER.runs()}


def as_run(run, config) -> dict[str, object]:
    """The settings that take effect, each from where it is read: verl's configuration or the project's loop."""
    spec = PAPER.run(run)
    actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
    method = Method.model_validate_json(config.actor_rollout_ref.srpo)  # what the worker and its loss read
    uses_teacher = method.routing.needs_teacher
    return {
        "questions per batch": spec.training.questions_per_batch,
        "rollouts": rollout.n,
        "mini-batch (questions)": actor.ppo_mini_batch_size,
        "updates a batch": spec.training.questions_per_batch // actor.ppo_mini_batch_size,
        "learning rate": actor.optim.lr,
        "clip high": method.clip_ratio_high,
        "top-K": method.distillation_topk if uses_teacher else None,
        "divergence (alpha)": method.distillation_alpha if uses_teacher else None,
        "EMA rate": method.teacher_update_rate if uses_teacher else None,
        "beta": method.entropy_beta if uses_teacher else None,
        "lambda": method.mix_lambda,
        "max prompt": rollout.prompt_length,
        "max response": rollout.response_length,
        "rollout temperature": rollout.temperature,
        "weight decay": actor.optim.weight_decay,
        "warm-up steps": actor.optim.lr_warmup_steps,
        "gradient clip norm": actor.optim.clip_grad,
        "rollout correction": method.rollout_is_threshold,
        "KL coefficient": int(actor.use_kl_loss or config.algorithm.use_kl_in_reward),
        "entropy bonus": actor.entropy_coeff,
        "validation every": spec.training.validate_every,
        "validation rollouts": spec.training.validation.rollouts,
        "validation temperature": spec.training.validation.temperature,
        "validation top-p": spec.training.validation.top_p,
    }


def test_the_matrix_is_the_papers():
    ids = {(run.model, run.method, run.benchmark) for run in PAPER.runs()}
    benchmarks = {"chemistry", "physics", "biology", "materials", "tooluse"}
    main = {(m, a, b) for m in ("qwen3-4b", "qwen3-8b") for a in ("grpo", "sdpo", "srpo") for b in benchmarks}
    ablations = {("qwen3-8b", a, b) for a in ("srpo_without_weighting", "advantage_mix") for b in benchmarks}
    figure_1b = {("qwen3-8b", a, "chemistry") for a in ("sdpo_failed_only", "sdpo_correct_only")}
    assert ids == main | ablations | figure_1b
    assert PAPER.training.budget_seconds == {"1h": 3600, "5h": 18000, "10h": 36000}
    assert PAPER.training.clock.kind == "wall"
    assert (PAPER.evaluation.rollouts, PAPER.evaluation.temperature, PAPER.evaluation.top_p) == (16, 0.6, 0.95)


def test_table_3(composed):
    for run, config in composed.items():
        found = as_run(run, config)
        for setting, value in (TABLE_3[run.method] | EVERY_METHOD).items():
            assert found[setting] == value, f"{run.path}: {setting}"


def test_verls_own_classes_accept_every_run(composed):
    for run, config in composed.items():
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        assert actor.optim.lr == config.actor_rollout_ref.actor.optim.lr
        assert rollout.engine_kwargs["sglang"] == {
            "enable_deterministic_inference": False,
            "disable_piecewise_cuda_graph": True,
            "cuda_graph_max_bs": samples_per_server(PAPER.run(run)),
        }
        assert rollout.max_num_seqs == RUNNING_SAMPLES
        validate_config(config=config, use_reference_policy=False, use_critic=False)


@pytest.mark.parametrize("name", PAPER.models)
def test_verls_model_class_reads_a_checkpoint_as_asked(name, tmp_path):
    run = next(run for run in PAPER.runs() if run.model == name)
    symbol_tokenizer(["user\n1\nassistant\n<answer>A</answer>"], 400).save_pretrained(tmp_path)
    shape = PAPER.models[name].shape.model_dump()
    Qwen3Config(**shape, architectures=["Qwen3ForCausalLM"]).save_pretrained(tmp_path)
    model = omega_conf_to_dataclass(compose_verl_config(PAPER.run(run), tmp_path).actor_rollout_ref.model)
    assert isinstance(model, HFModelConfig)
    assert model.hf_config._attn_implementation == SHARED_PROMPTS
    assert (model.use_remove_padding, model.enable_gradient_checkpointing, model.lora_rank) == (False, True, 0)
    assert not model.trust_remote_code
    assert {key: getattr(model.hf_config, key) for key in shape} == shape


# ---------------------------------------------------------------- where the values take effect


def test_the_optimizer_that_verl_builds_and_its_warm_up(composed):
    for run, config in composed.items():
        settings = omega_conf_to_dataclass(config.actor_rollout_ref.actor).optim
        optimizer = build_optimizer([torch.nn.Parameter(torch.zeros(1))], settings)
        assert type(optimizer) is torch.optim.AdamW
        (group,) = optimizer.param_groups
        rate = TABLE_3[run.method]["learning rate"]
        assert (group["lr"], group["betas"], group["weight_decay"]) == (rate, (0.9, 0.999), 0.01)
        # what verl's engine builds from these; one step of it is one batch, whatever its number of updates
        assert settings.lr_scheduler_type == "constant"
        schedule = get_constant_schedule_with_warmup(optimizer, settings.lr_warmup_steps)
        rates = []
        for _ in range(12):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            schedule.step()
        assert rates == pytest.approx([rate * step / 10 for step in range(10)] + [rate, rate])


def test_ranks_wait_for_a_checkpoint_on_a_slow_disk():
    """0.5 GB/s, twice over: a flush, and other jobs. verl's own time-out is 600 s."""
    sizes = memory.checkpoint_bytes(memory.shape_of(PAPER.models["qwen3-8b"]), PAPER.execution, teacher=True)
    assert 2 * sizes.total / 0.5e9 < COLLECTIVE_SECONDS
    assert "timeout_second" in inspect.signature(initialize_global_process_group_ray).parameters


def test_runs_differ_by_their_method_and_the_size_of_a_validation_only(composed):
    def shared(config):
        config = OmegaConf.create(OmegaConf.to_container(config, resolve=False))
        for key in ("srpo", "actor.optim.lr", "actor.ppo_mini_batch_size"):
            OmegaConf.update(config, f"actor_rollout_ref.{key}", "the method's")
        OmegaConf.update(config, GRAPHS, "the benchmark's")
        return OmegaConf.to_yaml(config)

    assert len({shared(config) for config in composed.values()}) == 1


def _with_overrides(**overrides: object):
    run = PAPER.runs()[0]
    spec = PAPER.run(run)
    execution = Execution.model_validate({**spec.execution.model_dump(), "verl_overrides": overrides})
    return spec.model_copy(update={"execution": execution})


CHOSEN = {
    "actor_rollout_ref.actor.fsdp_config.reshard_after_forward": False,
    "actor_rollout_ref.rollout.max_num_seqs": 48,
    f"{SGLANG}.cuda_graph_max_bs": 24,
    f"{SGLANG}.mem_fraction_static": 0.5,
    f"{SGLANG}.speculative_algorithm": "NGRAM",
}


@pytest.mark.parametrize("key", get_args(VerlKey))
def test_every_override_of_verl_arrives_and_is_part_of_identity(key: str) -> None:
    without, spec = _with_overrides(), _with_overrides(**{key: CHOSEN[key]})
    found = [OmegaConf.select(compose_verl_config(each, Path("/nowhere")), key) for each in (without, spec)]
    assert found[0] != found[1] == CHOSEN[key]
    assert spec.identity() != without.identity()
    one, _, rest = key.partition(".")
    assert _with_overrides(**{one: {rest: CHOSEN[key]}}) == spec


# ---------------------------------------------------------------- rollout servers


@pytest.mark.parametrize(
    ("ranks", "parallel", "test_questions", "samples"),
    [
        (1, 1, 10, 128),  # a batch of 16 x 8 on one server; a validation has 10 x 4
        (1, 1, 50, 200),  # a validation of 50 x 4
        (1, 1, 500, 256),  # verl lets a server decode 256 samples at a time
        (4, 1, 10, 32),
        (4, 2, 10, 64),  # two servers of two GPUs
        (3, 1, 10, 43),  # 128 / 3, rounded up
    ],
)
def test_graphs_are_made_for_the_largest_batch_of_a_server(ranks, parallel, test_questions, samples):
    experiment = load_experiment(CONFIGS / "experiments" / "one-gpu.yaml")
    spec = experiment.run(next(run for run in experiment.runs() if run.benchmark == "spell_backward"))
    execution = spec.execution.model_copy(update={"ranks": ranks, "rollout_tensor_parallel": parallel})
    benchmark = spec.benchmark.model_copy(update={"test_questions": test_questions})
    spec = spec.model_copy(update={"execution": execution, "benchmark": benchmark})
    assert samples_per_server(spec) == samples
    assert OmegaConf.select(compose_verl_config(spec, Path("/nowhere")), GRAPHS) == samples


@pytest.mark.parametrize(("memory", "samples"), [([], 200), ([80e9, 24e9], 128), ([48.3e9], 200), ([80e9], 200)])
def test_a_small_gpu_has_graphs_for_the_training_batch_only(memory, samples, monkeypatch):
    monkeypatch.setattr(verl_config, "gpus", lambda: [("a card", each) for each in memory])
    experiment = load_experiment(CONFIGS / "experiments" / "one-gpu.yaml")
    spec = experiment.run(next(run for run in experiment.runs() if run.benchmark == "spell_backward"))
    spec = spec.model_copy(update={"benchmark": spec.benchmark.model_copy(update={"test_questions": 50})})
    assert samples_per_server(spec) == samples


def test_name_and_memory_of_each_gpu_are_read_from_the_driver(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA H100 80GB HBM3, 81559\necho NVIDIA A10G, 23028\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert gpus.__wrapped__() == [("NVIDIA H100 80GB HBM3", 81559 * 2**20), ("NVIDIA A10G", 23028 * 2**20)]
    program.write_text("#!/bin/sh\necho '[N/A]'\n")
    assert gpus.__wrapped__() == []
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert gpus.__wrapped__() == []
