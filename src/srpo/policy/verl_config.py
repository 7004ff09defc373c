"""verl's Hydra configuration for a run: the one place where our names meet verl's."""

from importlib.util import find_spec
from pathlib import Path

from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig
from verl.utils.device import get_device_name

from srpo.config import Execution, RunSpec
from srpo.errors import SrpoError
from srpo.rollout.sglang_server import CONTEXT_MARGIN


def check_packages(execution: Execution) -> None:
    """Whether what an experiment asks for is installed.

    Raises:
        SrpoError: naming the key and what to do.
    """
    for key, value, package in (
        ("attention", "flash_attention_2", "flash_attn"),
        ("rollout_engine", "sglang", "sglang"),
    ):
        if getattr(execution, key) == value and find_spec(package) is None:
            raise SrpoError(f"execution.{key} = {value}: {package} is not installed; see docs/environments.md")


def compose_verl_config(spec: RunSpec, model_path: Path) -> DictConfig:
    """verl's ``ppo_trainer`` configuration with the run's values, as verl's own dataclasses accept it."""
    GlobalHydra.instance().clear()
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=[f"{key}={value}" for key, value in _overrides(spec, model_path)])
    return config


def _overrides(spec: RunSpec, model_path: Path) -> list[tuple[str, object]]:
    training, method, execution = spec.training, spec.method, spec.execution
    actor, rollout, model = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
    dtype = {"float32": "fp32", "bfloat16": "bf16"}[execution.precision]
    return [
        (f"{model}.path", _quoted(str(model_path))),
        (f"{model}.use_remove_padding", execution.remove_padding),
        (f"{model}.enable_gradient_checkpointing", execution.gradient_checkpointing),
        (f"+{model}.override_config.attn_implementation", execution.attention),
        (f"{actor}.strategy", "fsdp2"),
        (f"{actor}.fsdp_config.strategy", "fsdp2"),
        (f"{actor}.fsdp_config.model_dtype", "fp32"),
        (f"{actor}.fsdp_config.use_torch_compile", False),
        (f"{actor}.fsdp_config.reshard_after_forward", execution.ranks > 1),
        (f"+{actor}.fsdp_config.mixed_precision", f"{{param_dtype:{dtype},reduce_dtype:fp32,buffer_dtype:fp32}}"),
        (f"{actor}.use_torch_compile", False),
        (f"{actor}.ppo_mini_batch_size", method.mini_batch_questions),
        (f"{actor}.ppo_micro_batch_size_per_gpu", training.micro_batch_size),
        (f"{actor}.optim.lr", method.learning_rate),
        (f"{actor}.optim.lr_warmup_steps", training.warmup_steps),
        (f"{actor}.optim.weight_decay", training.weight_decay),
        (f"{actor}.optim.clip_grad", training.clip_grad),
        (f"{actor}.checkpoint.save_contents", "[model,optimizer,extra,hf_model]"),
        (f"{rollout}.name", execution.rollout_engine),
        (f"{rollout}.n", training.rollouts_per_question),
        (f"{rollout}.temperature", training.temperature),
        (f"{rollout}.prompt_length", training.max_prompt_length),
        (f"{rollout}.response_length", training.max_response_length),
        # what verl allows; SGLang itself has the model's context, which is longer
        (f"{rollout}.max_model_len", training.max_prompt_length + training.max_response_length + CONTEXT_MARGIN),
        (f"{rollout}.log_prob_micro_batch_size_per_gpu", training.micro_batch_size),
        (f"{rollout}.tensor_model_parallel_size", execution.rollout_tensor_parallel),
        (f"{rollout}.gpu_memory_utilization", execution.rollout_memory_fraction),
        (
            f"+{rollout}.engine_kwargs.sglang.enable_deterministic_inference",
            execution.deterministic_rollouts,
        ),
        # graphs of prefills: slow to capture, kept while the server sleeps, and of no use to rollouts, which decode
        (f"+{rollout}.engine_kwargs.sglang.disable_piecewise_cuda_graph", True),
        ("critic.enable", False),
        ("reward.num_workers", 0),
        ("trainer.v1.trainer_mode", "srpo"),
        ("trainer.device", get_device_name()),
        ("trainer.n_gpus_per_node", execution.ranks),
        ("+actor_rollout_ref.srpo", _quoted(method.model_dump_json())),
        ("+actor_rollout_ref.offload_teacher", execution.offload_teacher),
    ]


def _quoted(text: str) -> str:
    """A Hydra override value taken literally."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
