"""verl's worker in this very process: one rank, no Ray, no ports."""

import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import torch
from tensordict import TensorDict
from transformers.utils import logging as transformers_logging
from verl.utils import tensordict_utils as tu

from srpo.config import RunSpec
from srpo.policy.engine import SelfTeacherEngine
from srpo.policy.verl_config import compose_verl_config
from srpo.policy.worker import SRPOWorker
from srpo.training.clock import ModelCost

_ONE_RANK = {
    "RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "0",
}


def start_worker(spec: RunSpec, model: Path) -> SRPOWorker:
    """Build the worker of a run on its base model; one torch thread, as runs share a machine's cores."""
    os.environ.update(_ONE_RANK)
    torch.set_num_threads(1)
    torch.manual_seed(spec.id.seed)
    config = compose_verl_config(spec, model)
    with _quiet():
        worker = SRPOWorker(config=config.actor_rollout_ref, role="actor")
        worker.init_model()
    return worker


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what verl prints and logs about every file and every byte out of the run's log."""
    logging.getLogger("torch.fx").setLevel(logging.ERROR)
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    with redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def model_cost(engine: SelfTeacherEngine) -> ModelCost:
    """Count what a forward pass of the engine's model multiplies."""
    config = engine.model_config.hf_config
    parameters = sum(parameter.numel() for parameter in engine.module.parameters())
    lookup = 0 if config.tie_word_embeddings else config.vocab_size * config.hidden_size
    return ModelCost(parameters - lookup, config.num_hidden_layers * config.num_attention_heads * config.head_dim)


def update_metrics(output: TensorDict) -> dict[str, float]:
    """Means over a step's updates; ratios of sums where a number belongs to tokens.

    Args:
        output: what ``update_actor`` returns: for each metric a value per mini-batch.
    """
    values = {name: torch.tensor(per_update, dtype=torch.float64) for name, per_update in _numbers(output).items()}
    metrics = {name: values[name].mean().item() for name in ("loss/grpo", "loss/sdpo")}
    metrics["loss/total"] = metrics["loss/grpo"] + metrics["loss/sdpo"]
    metrics["actor/grad_norm"] = values["grad_norm"].mean().item()
    metrics["actor/learning_rate"] = values["lr"][-1].item()
    for name, total, count in (
        ("loss/jsd", "sum/divergence", "sum/distilled_tokens"),
        ("actor/clip_fraction", "sum/clipped_tokens", "sum/policy_tokens"),
    ):
        if values[count].sum() > 0:
            metrics[name] = (values[total].sum() / values[count].sum()).item()
    return metrics


def _numbers(output: TensorDict) -> dict[str, list[float]]:
    names = ("loss/", "sum/", "grad_norm", "lr")
    metrics = {name: value for name, value in tu.get(output, "metrics").items() if name.startswith(names)}
    return {name: [value] if isinstance(value, float) else [float(v) for v in value] for name, value in metrics.items()}
