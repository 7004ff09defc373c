"""What verl's workers report, as the project's metrics; what a model costs."""

import torch
from tensordict import TensorDict
from transformers import AutoModelForCausalLM, PretrainedConfig
from verl.utils import tensordict_utils as tu

from srpo.training.clock import ModelCost


def model_cost(config: PretrainedConfig) -> ModelCost:
    """Count what a forward pass of a model multiplies; nothing is allocated."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    parameters = sum(parameter.numel() for parameter in model.parameters())
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
    metrics["actor/skipped_updates"] = (~values["grad_norm"].isfinite()).sum().item()
    metrics["actor/learning_rate"] = values["lr"][-1].item()
    if (memory := values["perf/max_memory_allocated_gb"].max().item()) > 0:
        metrics["perf/device_memory_gb"] = memory
    for name, total, count in (
        ("loss/jsd", "sum/divergence", "sum/distilled_tokens"),
        ("weights/loss_scale", "sum/weighted_divergence", "sum/divergence"),
        ("actor/clip_fraction", "sum/clipped_tokens", "sum/policy_tokens"),
        *(
            (f"distillation_share/{name.removeprefix('sum/share/')}", name, "sum/distillation")
            for name in values
            if name.startswith("sum/share/")
        ),
    ):
        if values[count].sum() > 0:
            metrics[name] = (values[total].sum() / values[count].sum()).item()
    return metrics


def gradient_norm(output: TensorDict) -> float:
    """The gradient norm of the one mini-batch in ``output`` of ``compute_gradient_norm``, before clipping."""
    return _numbers(output)["grad_norm"][0]


def _numbers(output: TensorDict) -> dict[str, list[float]]:
    names = ("loss/", "sum/", "grad_norm", "lr", "perf/max_memory_allocated_gb")
    metrics = {name: value for name, value in tu.get(output, "metrics").items() if name.startswith(names)}
    return {name: [value] if isinstance(value, float) else [float(v) for v in value] for name, value in metrics.items()}
