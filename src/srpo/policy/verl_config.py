"""verl's Hydra configuration for a run: the one place where our names meet verl's."""

from pathlib import Path

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from srpo.config import RunSpec


def compose_verl_config(spec: RunSpec, model_path: Path) -> DictConfig:
    """verl's ``ppo_trainer`` configuration with the run's values, as verl's own dataclasses accept it."""
    GlobalHydra.instance().clear()
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[f"{key}={value}" for key, value in _overrides(spec, model_path)])
    return config


def _overrides(spec: RunSpec, model_path: Path) -> list[tuple[str, object]]:
    training, method = spec.training, spec.method
    actor, rollout, model = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
    return [
        (f"{model}.path", _quoted(str(model_path))),
        (f"{model}.use_remove_padding", False),
        (f"{model}.enable_gradient_checkpointing", False),
        (f"+{model}.override_config.attn_implementation", "sdpa"),
        (f"{actor}.strategy", "fsdp2"),
        (f"{actor}.fsdp_config.strategy", "fsdp2"),
        (f"{actor}.fsdp_config.model_dtype", "fp32"),
        (f"{actor}.fsdp_config.use_torch_compile", False),
        (f"{actor}.fsdp_config.reshard_after_forward", False),
        (f"+{actor}.fsdp_config.mixed_precision", "{param_dtype:fp32,reduce_dtype:fp32,buffer_dtype:fp32}"),
        (f"{actor}.use_torch_compile", False),
        (f"{actor}.ppo_mini_batch_size", method.mini_batch_questions),
        (f"{actor}.ppo_micro_batch_size_per_gpu", training.micro_batch_size),
        (f"{actor}.optim.lr", method.learning_rate),
        (f"{actor}.optim.lr_warmup_steps", training.warmup_steps),
        (f"{actor}.optim.weight_decay", training.weight_decay),
        (f"{actor}.optim.clip_grad", training.clip_grad),
        (f"{actor}.checkpoint.save_contents", "[model,optimizer,extra,hf_model]"),
        (f"{rollout}.name", "sglang"),
        (f"{rollout}.n", training.rollouts_per_question),
        (f"{rollout}.log_prob_micro_batch_size_per_gpu", training.micro_batch_size),
        ("+actor_rollout_ref.srpo", _quoted(method.model_dump_json())),
    ]


def _quoted(text: str) -> str:
    """A Hydra override value taken literally."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
