"""verl's Hydra configuration for a run: the only module that maps our names to verl's."""

import math
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from verl.utils.device import get_device_name

from srpo.experiment.config import RunSpec
from srpo.ground.machine import gpus
from srpo.policy.shared_prompts import SHARED_PROMPTS
from srpo.policy.verl_private import load_defaults
from srpo.rollout.sglang_protocol import CONTEXT_MARGIN

RUNNING_SAMPLES = 256
"""How many samples an SGLang server of verl's decodes at a time, at most: verl's default of ``max_num_seqs``."""

ROOM_FOR_GRAPHS = 48e9
"""Bytes of a GPU from which on a server has room for the graphs of a validation's batch."""


def compose_verl_config(spec: RunSpec, model_path: Path) -> DictConfig:
    """verl's ``ppo_trainer`` configuration with the run's values, as verl's own dataclasses accept it."""
    config = load_defaults()
    chosen = [(f"+{key}", value) for key, value in spec.execution.verl_overrides.items()]
    for key, value in (*_settings(spec, model_path), *chosen):
        OmegaConf.update(config, key.removeprefix("+"), value, force_add=key.startswith("+"))
    return config


def samples_per_server(spec: RunSpec) -> int:
    """How many samples one server decodes at a time, at most: samples of a batch or of a validation, equally divided.

    On GPUs with less than :data:`ROOM_FOR_GRAPHS` samples of a batch: a larger validation is decoded without graphs.
    """
    training, execution = spec.training, spec.execution
    servers = execution.ranks // execution.rollout_tensor_parallel
    batch = training.questions_per_batch * training.rollouts_per_question
    validation = spec.benchmark.questions("test") * training.validation.rollouts
    small = min((memory for _, memory in gpus()), default=math.inf) < ROOM_FOR_GRAPHS
    return min(RUNNING_SAMPLES, -(-(batch if small else max(batch, validation)) // servers))


def _settings(spec: RunSpec, model_path: Path) -> list[tuple[str, object]]:
    """Values by verl's keys; ``+``: verl has no such key."""
    training, method, execution = spec.training, spec.method, spec.execution
    actor, rollout, model = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
    dtype = {"float32": "fp32", "bfloat16": "bf16"}[execution.precision]
    return [
        (f"{model}.path", str(model_path)),
        # the engine packs rows itself (shared_prompts.py)
        (f"{model}.use_remove_padding", False),
        (f"{model}.enable_gradient_checkpointing", execution.gradient_checkpointing),
        (f"+{model}.override_config.attn_implementation", SHARED_PROMPTS),
        (f"{actor}.strategy", "fsdp2"),
        (f"{actor}.fsdp_config.strategy", "fsdp2"),
        (f"{actor}.fsdp_config.model_dtype", "fp32"),
        (f"{actor}.fsdp_config.use_torch_compile", False),
        # True keeps whole gradients in float32 on each rank between micro-batches: 4 bytes a parameter
        (f"{actor}.fsdp_config.use_no_sync_for_gradient_accumulation", False),
        (f"{actor}.fsdp_config.reshard_after_forward", execution.ranks > 1),
        (
            f"+{actor}.fsdp_config.mixed_precision",
            {"param_dtype": dtype, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        ),
        (f"{actor}.use_torch_compile", False),
        (f"{actor}.ppo_mini_batch_size", method.mini_batch_questions),
        (f"{actor}.ppo_micro_batch_size_per_gpu", training.micro_batch_size),
        (f"{actor}.optim.lr", method.learning_rate),
        (f"{actor}.optim.lr_warmup_steps", training.warmup_steps),
        (f"{actor}.optim.weight_decay", training.weight_decay),
        (f"{actor}.optim.clip_grad", training.clip_grad),
        # torch would update one sharded tensor after another
        (f"+{actor}.optim.override_optimizer_config.fused", True),
        (f"{actor}.checkpoint.save_contents", ["model", "optimizer", "extra"]),
        (f"{rollout}.name", execution.rollout_engine),
        (f"{rollout}.n", training.rollouts_per_question),
        (f"{rollout}.dtype", execution.precision),
        (f"{rollout}.temperature", training.temperature),
        (f"{rollout}.prompt_length", training.max_prompt_length),
        (f"{rollout}.response_length", training.max_response_length),
        # verl's limit; SGLang itself uses the context of the model, which is longer
        (f"{rollout}.max_model_len", training.max_prompt_length + training.max_response_length + CONTEXT_MARGIN),
        (f"{rollout}.log_prob_micro_batch_size_per_gpu", training.micro_batch_size),
        (f"{rollout}.tensor_model_parallel_size", execution.rollout_tensor_parallel),
        (f"{rollout}.gpu_memory_utilization", execution.rollout_memory_fraction),
        (
            f"+{rollout}.engine_kwargs.sglang.enable_deterministic_inference",
            execution.deterministic_rollouts,
        ),
        # CUDA graphs of prefills are slow to capture, keep memory while the server sleeps, and do not speed up decoding
        (f"+{rollout}.engine_kwargs.sglang.disable_piecewise_cuda_graph", True),
        # SGLang's own choice is 24 on a GPU of 24 GB and 32 on 48 GB; a larger batch is decoded without graphs, slowly
        (f"+{rollout}.engine_kwargs.sglang.cuda_graph_max_bs", samples_per_server(spec)),
        ("critic.enable", False),
        ("reward.num_workers", 0),
        ("trainer.v1.trainer_mode", "srpo"),
        ("trainer.device", get_device_name()),
        ("trainer.n_gpus_per_node", execution.ranks),
        ("+actor_rollout_ref.srpo", method.model_dump_json()),
        ("+actor_rollout_ref.offload_teacher", execution.offload_teacher),
    ]
