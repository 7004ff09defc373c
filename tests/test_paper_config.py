"""What verl is told in the paper's runs: table 3, read off the configuration that verl's own classes accept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf
from verl.utils.config import omega_conf_to_dataclass, validate_config

from srpo.config import CONFIG_ROOT, Execution, Method, load_experiment
from srpo.errors import SrpoError
from srpo.policy import verl_config
from srpo.policy.verl_config import check_packages, compose_verl_config

PAPER = load_experiment(CONFIG_ROOT / "experiments" / "paper.yaml")
GOLDEN = Path(__file__).parent / "golden" / "paper_config.yaml"

# Table 3. Rollouts are per question; an update is one mini-batch of questions.
TABLE_3 = {
    "grpo": {
        "questions per batch": 32,
        "rollouts": 8,
        "mini-batch (questions)": 8,
        "updates a batch": 4,
        "learning rate": 1e-6,
        "clip high": 0.28,
    },
    "sdpo": {
        "questions per batch": 32,
        "rollouts": 8,
        "mini-batch (questions)": 32,
        "updates a batch": 1,
        "learning rate": 1e-5,
        "top-K": 100,
        "divergence (alpha)": 0.5,
        "EMA rate": 0.05,
        "beta": 0.0,
    },
    "srpo": {
        "questions per batch": 32,
        "rollouts": 8,
        "mini-batch (questions)": 32,
        "updates a batch": 1,
        "learning rate": 5e-6,
        "clip high": 0.28,
        "top-K": 100,
        "divergence (alpha)": 0.5,
        "EMA rate": 0.05,
        "beta": 1.0,
    },
}
TABLE_3["srpo_without_weighting"] = TABLE_3["srpo"] | {"beta": 0.0}
TABLE_3["advantage_mix"] = {k: v for k, v in TABLE_3["srpo"].items() if k != "beta"} | {"lambda": 0.9}
TABLE_3["sdpo_failed_only"] = TABLE_3["sdpo_correct_only"] = TABLE_3["sdpo"]
EVERY_METHOD = {
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
    taught = method.routing.needs_teacher
    rows = {
        "questions per batch": spec.training.questions_per_batch,
        "rollouts": rollout.n,
        "mini-batch (questions)": actor.ppo_mini_batch_size,
        "updates a batch": spec.training.questions_per_batch // actor.ppo_mini_batch_size,
        "learning rate": actor.optim.lr,
        "clip high": method.clip_ratio_high,
        "top-K": method.top_k if taught else None,
        "divergence (alpha)": method.divergence_alpha if taught else None,
        "EMA rate": method.teacher_ema_rate if taught else None,
        "beta": method.entropy_beta if taught else None,
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
    return rows


def test_the_matrix_is_the_papers():
    ids = {(run.model, run.method, run.benchmark) for run in PAPER.runs()}
    benchmarks = {"chemistry", "physics", "biology", "materials", "tooluse"}
    main = {(m, a, b) for m in ("qwen3-4b", "qwen3-8b") for a in ("grpo", "sdpo", "srpo") for b in benchmarks}
    ablations = {("qwen3-8b", a, b) for a in ("srpo_without_weighting", "advantage_mix") for b in benchmarks}
    figure_1b = {("qwen3-8b", a, "chemistry") for a in ("sdpo_failed_only", "sdpo_correct_only")}
    assert ids == main | ablations | figure_1b
    assert PAPER.training.budgets == {"1h": 3600, "5h": 18000, "10h": 36000}
    assert PAPER.training.clock.kind == "wall"
    assert (PAPER.evaluation.rollouts, PAPER.evaluation.temperature, PAPER.evaluation.top_p) == (16, 0.6, 0.95)


def test_table_3(composed):
    for run, config in composed.items():
        found = as_run(run, config)
        for setting, value in (TABLE_3[run.method] | EVERY_METHOD).items():
            assert found[setting] == value, f"{run.path}: {setting}"


def test_sizes_and_devices(composed):
    for config in composed.values():
        actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
        assert (config.trainer.nnodes, config.trainer.n_gpus_per_node) == (1, 8)
        assert (actor.strategy, actor.fsdp_config.strategy) == ("fsdp2", "fsdp2")
        assert actor.fsdp_config.model_dtype == "fp32"  # master weights; computation is in bfloat16
        assert actor.fsdp_config.mixed_precision == {
            "param_dtype": "bf16",
            "reduce_dtype": "fp32",
            "buffer_dtype": "fp32",
        }
        assert actor.fsdp_config.reshard_after_forward
        assert actor.ulysses_sequence_parallel_size == 1
        assert rollout.name == "sglang"
        assert (rollout.tensor_model_parallel_size, rollout.free_cache_engine) == (1, True)
        assert rollout.max_model_len >= 2048 + 8192
        assert config.actor_rollout_ref.model.use_remove_padding
        assert config.actor_rollout_ref.model.enable_gradient_checkpointing


def test_verls_own_classes_accept_every_run(composed):
    for config in composed.values():
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        assert actor.optim.lr == config.actor_rollout_ref.actor.optim.lr
        assert rollout.engine_kwargs["sglang"] == {"enable_deterministic_inference": False}
        validate_config(config=config, use_reference_policy=False, use_critic=False)


def test_what_verl_is_told_has_not_changed_unnoticed(composed):
    """``UPDATE_GOLDEN=1 pytest tests/test_paper_config.py`` writes the file anew; read the difference."""
    run = next(run for run in composed if (run.model, run.method) == ("qwen3-8b", "srpo"))
    overrides = dict(verl_config._overrides(PAPER.run(run), Path("MODEL")))
    resolved = OmegaConf.create(OmegaConf.to_container(composed[run], resolve=True))
    keys = sorted(key.removeprefix("+") for key in overrides)
    told = {key: OmegaConf.select(resolved, key) for key in keys if not key.endswith((".path", ".srpo"))}
    told = {k: OmegaConf.to_container(v) if OmegaConf.is_config(v) else v for k, v in told.items()}
    told["methods"] = {
        method: PAPER.methods[method].model_dump(mode="json", exclude={"name", "title"}) for method in PAPER.methods
    }
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(yaml.safe_dump(told))
    assert yaml.safe_load(GOLDEN.read_text()) == yaml.safe_load(yaml.safe_dump(told))


@pytest.mark.parametrize(
    ("execution", "package"),
    [({"attention": "flash_attention_2"}, "flash_attn"), ({"driver": "ray", "rollout_engine": "sglang"}, "sglang")],
)
def test_a_missing_package_is_named_before_anything_starts(execution, package, monkeypatch):
    check_packages(Execution())
    monkeypatch.setattr(verl_config, "find_spec", lambda name: None)
    with pytest.raises(SrpoError, match=rf"execution\.\w+ = \w+: {package} is not installed; see docs"):
        check_packages(Execution(**execution))
