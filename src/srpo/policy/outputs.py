"""Converts the metrics of an update from verl's workers to the project's metrics."""

import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

DEVICE_MEMORY = {
    "perf/device_memory_gb": torch.max,
    "perf/device_memory_reserved_gb": torch.max,
    "perf/device_memory_free_gb": torch.min,
}
"""GiB of the GPU with the least free memory: peak allocated and reserved by the trainer, and free after an update.

Not logged on CPUs."""

DEVICE_FLOPS = "perf/device_flops"
"""Dense bfloat16 FLOP/s of a GPU by verl's list; infinite if the list lacks it."""


def update_metrics(output: TensorDict) -> dict[str, float]:
    """Means over a step's updates; for metrics per token, ratios of sums.

    Args:
        output: what ``update_actor`` returns: for each metric a value per mini-batch.
    """
    values = {name: torch.tensor(per_update, dtype=torch.float64) for name, per_update in _numbers(output).items()}
    metrics = {name: value.mean().item() for name, value in values.items() if name.startswith("loss/")}
    metrics["loss/total"] = sum(metrics.values())
    metrics["actor/grad_norm"] = values["grad_norm"].mean().item()
    metrics["actor/skipped_updates"] = (~values["grad_norm"].isfinite()).sum().item()
    metrics["actor/learning_rate"] = values["lr"][-1].item()
    if "teacher/distance" in values:
        metrics["teacher/distance"] = values["teacher/distance"][-1].item()
    for name, worst in {**DEVICE_MEMORY, DEVICE_FLOPS: torch.max}.items():
        if name in values:
            metrics[name] = worst(values[name]).item()
    for name, total, count in (
        ("loss/divergence", "sum/divergence", "sum/distilled_tokens"),
        ("divergence/correct", "sum/divergence_correct", "sum/distilled_correct"),
        ("divergence/wrong", "sum/divergence_wrong", "sum/distilled_wrong"),
        ("weights/loss_scale", "sum/weighted_divergence", "sum/divergence"),
        ("actor/clip_fraction", "sum/clipped_tokens", "sum/policy_tokens"),
        ("actor/rollout_is_weight", "sum/rollout_is_weight", "sum/trained_tokens"),
        ("actor/rollout_is_truncated_fraction", "sum/rollout_is_truncated", "sum/trained_tokens"),
        ("rollout_corr/log_prob_abs", "sum/log_prob_difference", "sum/trained_tokens"),
        ("rollout_corr/log_prob_rms", "sum/log_prob_difference_squared", "sum/trained_tokens"),
        ("rollout_corr/k3_kl", "sum/k3_kl", "sum/trained_tokens"),
        ("student/top_k_mass", "sum/student_top_k_mass", "sum/distilled_tokens"),
        ("teacher/top_k_mass", "sum/teacher_top_k_mass", "sum/distilled_tokens"),
        ("copying/student", "sum/copying_student", "sum/copying_cases"),
        *(
            (f"distillation_share/{name.removeprefix('sum/share/')}", name, "sum/distillation")
            for name in values
            if name.startswith("sum/share/")
        ),
    ):
        if {total, count} <= values.keys() and values[count].sum() > 0:
            metrics[name] = (values[total].sum() / values[count].sum()).item()
    if "rollout_corr/log_prob_rms" in metrics:
        metrics["rollout_corr/log_prob_rms"] **= 0.5
    return metrics


def gradient_norm(output: TensorDict) -> float:
    """The gradient norm of the one mini-batch in ``output`` of ``compute_gradient_norm``, before clipping."""
    return _numbers(output)["grad_norm"][0]


def _numbers(output: TensorDict) -> dict[str, list[float]]:
    names = ("loss/", "sum/", "grad_norm", "lr", "perf/device_", "teacher/distance")
    metrics = {name: value for name, value in tu.get(output, "metrics").items() if name.startswith(names)}
    return {name: [value] if isinstance(value, float) else [float(v) for v in value] for name, value in metrics.items()}
