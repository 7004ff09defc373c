"""The objective as verl's loss hook: verl calls it once per micro-batch of an update."""

import torch
from tensordict import TensorDict
from verl.utils.metric import AggregationType, Metric

from srpo.algorithm.diagnostics import share_sums
from srpo.algorithm.divergence import generalised_jsd
from srpo.algorithm.objective import Tokens, branch_losses
from srpo.config import Method


def srpo_loss(method: Method, model_output: dict, data: TensorDict, dp_group=None) -> tuple[torch.Tensor, dict]:
    """Section 3.3's objective on one micro-batch.

    verl counts ``loss_mask`` over the mini-batch and all ranks into ``batch_num_tokens``; the driver masks
    exactly the routed valid tokens, so this count is the objective's denominator. FSDP averages gradients
    over ranks, hence the factor ``dp_size``.

    Returns:
        The loss and sums (not means) over the micro-batch, which add up over micro-batches. Over ranks verl takes
        the mean, even of sums: those of the losses carry ``dp_size`` too, of the others only ratios are used.
    """
    distilled = data["in_distillation_branch"].values()
    if "student" in model_output:
        teacher = data["teacher_buckets"].values().view_as(model_output["student"])
        divergence = generalised_jsd(model_output["student"], teacher, method.divergence_alpha)
        weight = data["divergence_weight"].values()
    else:
        divergence = weight = model_output["log_probs"].new_zeros(0)
    losses = branch_losses(
        Tokens(
            log_prob=model_output["log_probs"],
            old_log_prob=data["old_log_probs"].values(),
            rollout_is_weight=data["rollout_is_weight"].values(),
            advantage=data["advantages"].values(),
            in_policy_branch=data["in_policy_branch"].values(),
            in_distillation_branch=distilled,
            divergence=divergence,
            divergence_weight=weight,
        ),
        clip_ratio_low=method.clip_ratio_low,
        clip_ratio_high=method.clip_ratio_high,
        clip_ratio_c=method.clip_ratio_c,
        distillation_is_threshold=method.distillation_is_threshold,
    )
    denominator = data["batch_num_tokens"] / data["dp_size"]
    sums = {
        "loss/grpo": losses.policy.detach() / denominator,
        "loss/sdpo": losses.distillation.detach() / denominator,
        "sum/distillation": losses.distillation_by_token.sum(),
        "sum/divergence": divergence.detach().sum(),
        "sum/weighted_divergence": (divergence.detach() * weight).sum(),
        "sum/distilled_tokens": distilled.sum(),
        "sum/clipped_tokens": losses.clipped,
        "sum/policy_tokens": data["in_policy_branch"].values().sum(),
    }
    values = {name: value.item() for name, value in sums.items()}
    shares = share_sums(data["loss_cell"].values(), losses.distillation_by_token)
    values |= {f"sum/share/{name}": value for name, value in shares.items()}
    metrics = {name: Metric(value=value, aggregation=AggregationType.SUM) for name, value in values.items()}
    return (losses.policy + losses.distillation) / denominator, metrics
