"""The training objective (section 3.3): two branches, one denominator."""

from dataclasses import dataclass

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0


@dataclass(frozen=True)
class Tokens:
    """Valid response tokens of a micro-batch. Only ``log_prob`` and ``divergence`` carry gradients.

    Attributes:
        log_prob: [tokens] log pi_theta(y_t).
        old_log_prob: [tokens] log pi_old(y_t), the trainer's own score at the start of the batch.
        rollout_is_weight: [tokens] truncated pi_old / pi_rollout.
        advantage: [tokens]; of the policy-gradient branch.
        in_policy_branch: [tokens] bool.
        in_distillation_branch: [tokens] bool.
        divergence: [distilled tokens] student-teacher divergence, in the order of ``in_distillation_branch``.
        divergence_weight: [distilled tokens] w~_t, normalised over the whole mini-batch.
    """

    log_prob: Tensor
    old_log_prob: Tensor
    rollout_is_weight: Tensor
    advantage: Tensor
    in_policy_branch: Tensor
    in_distillation_branch: Tensor
    divergence: Tensor
    divergence_weight: Tensor


@dataclass(frozen=True)
class Losses:
    """Sums over a micro-batch; divide by the mini-batch's denominator.

    Attributes:
        policy, distillation: scalars with gradients.
        distillation_by_token: [distilled tokens] what ``distillation`` sums, without gradient.
        clipped: [] number of policy-branch tokens whose ratio was clipped.
    """

    policy: Tensor
    distillation: Tensor
    distillation_by_token: Tensor
    clipped: Tensor


def truncated_ratio(log_prob: Tensor, reference_log_prob: Tensor, threshold: float) -> Tensor:
    """min(exp(log_prob - reference), threshold), elementwise and without gradient.

    With (old, rollout) log-probs it is the rollout correction; with (current, old) SDPO's importance weight.
    """
    log_ratio = (log_prob - reference_log_prob).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return log_ratio.exp().clamp(max=threshold)


def policy_loss(
    log_prob: Tensor,
    old_log_prob: Tensor,
    advantage: Tensor,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_c: float,
) -> tuple[Tensor, Tensor]:
    """Clipped surrogate with asymmetric clip and dual clip (section 2.1; table 3).

    Returns:
        [tokens] -min(rho A, clip(rho) A), bounded by -c A where A < 0; and [tokens] bool, where it was clipped.
    """
    ratio = (log_prob - old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    unclipped = -advantage * ratio
    clipped = -advantage * ratio.clamp(1 - clip_ratio_low, 1 + clip_ratio_high)
    loss = torch.maximum(unclipped, clipped)
    bounded = torch.where(advantage < 0, torch.minimum(loss, -advantage * clip_ratio_c), loss)
    return bounded, bounded != unclipped


def branch_losses(
    tokens: Tokens,
    *,
    clip_ratio_low: float,
    clip_ratio_high: float,
    clip_ratio_c: float,
    distillation_is_threshold: float,
) -> Losses:
    """Sum each branch's token losses over its own tokens.

    The objective is ``(policy + distillation) / D`` with D the number of routed valid tokens of the whole
    mini-batch. An empty branch contributes an exact zero that still has a gradient path.
    """
    loss, clipped = policy_loss(
        tokens.log_prob, tokens.old_log_prob, tokens.advantage, clip_ratio_low, clip_ratio_high, clip_ratio_c
    )
    policy = (loss * tokens.rollout_is_weight * tokens.in_policy_branch).sum()
    distilled = tokens.in_distillation_branch
    importance = truncated_ratio(tokens.log_prob[distilled], tokens.old_log_prob[distilled], distillation_is_threshold)
    constants = importance * tokens.rollout_is_weight[distilled] * tokens.divergence_weight
    distillation = tokens.divergence * constants
    return Losses(policy, distillation.sum(), distillation.detach(), (clipped & tokens.in_policy_branch).sum())
