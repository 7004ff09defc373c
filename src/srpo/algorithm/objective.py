"""The training objective (section 3.3): each branch's token losses over one denominator."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from srpo.algorithm.branches import Branch, index_of, trained_branches
from srpo.algorithm.importance import MAX_LOG_RATIO, truncated_ratio
from srpo.algorithm.routing import has_loss
from srpo.algorithm.settings import Settings
from srpo.algorithm.targets import Targets


@dataclass(frozen=True)
class Losses:
    """Sums over a micro-batch.

    Attributes:
        by_branch: the sum of token losses of each branch of the method that is trained, with gradients.
        distillation: [distilled tokens] what the distillation branches sum, without gradient.
        divergence: [distilled tokens] student-teacher divergence, without gradient.
        clipped: number of policy-gradient tokens whose ratio was clipped.
        policy_tokens: number of policy-gradient tokens.
    """

    by_branch: dict[str, Float[Tensor, ""]]
    distillation: Float[Tensor, " distilled"]
    divergence: Float[Tensor, " distilled"]
    clipped: Tensor
    policy_tokens: Tensor


def objective(losses: Losses, denominator: float | int | Tensor) -> Tensor:
    """The part of the objective that a micro-batch contributes.

    Args:
        denominator: number of tokens of the whole mini-batch that take a branch with a loss.
    """
    return torch.stack([*losses.by_branch.values()]).sum() / denominator


def policy_loss(
    log_prob: Float[Tensor, " tokens"],
    old_log_prob: Float[Tensor, " tokens"],
    advantage: Float[Tensor, " tokens"],
    clip_ratio_low: float | int,
    clip_ratio_high: float | int,
    clip_ratio_c: float | int,
) -> tuple[Float[Tensor, " tokens"], Bool[Tensor, " tokens"]]:
    """Clipped surrogate with asymmetric clip and dual clip (section 2.1; table 3).

    Returns:
        -min(rho A, clip(rho) A), bounded by -c A where A < 0; and where it was clipped.
    """
    ratio = (log_prob - old_log_prob).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    unclipped = -advantage * ratio
    clipped = -advantage * ratio.clamp(1 - clip_ratio_low, 1 + clip_ratio_high)
    loss = torch.maximum(unclipped, clipped)
    bounded = torch.where(advantage < 0, torch.minimum(loss, -advantage * clip_ratio_c), loss)
    return bounded, bounded != unclipped


def branch_losses(
    settings: Settings,
    targets: Targets,
    log_prob: Float[Tensor, " tokens"],
    student_log_probs: Float[Tensor, "distilled K_and_tail"] | None,
) -> Losses:
    """Sum each branch's token losses over its own tokens.

    A branch without tokens here adds an exact zero that still has a gradient path.

    Args:
        targets: of the micro-batch.
        log_prob: log pi_theta(y_t), with gradients.
        student_log_probs: log p of the student's top-K tokens and the tail at distilled tokens, with gradients; None
            where no token is distilled.
    """
    branches = trained_branches(settings.routing.branches)
    by_branch: dict[str, Tensor] = {}
    policy_gradient = has_loss(targets.branch, "policy_gradient")
    loss, clipped = policy_loss(
        log_prob,
        targets.old_log_prob,
        targets.advantage,
        settings.clip_ratio_low,
        settings.clip_ratio_high,
        settings.clip_ratio_c,
    )
    corrected = loss * targets.rollout_is_weight
    divergence = log_prob.new_zeros(0)
    distillation = log_prob[:0]
    distilled = has_loss(targets.branch, "distillation")
    own = targets.branch[distilled]
    if student_log_probs is not None:
        divergence = _divergences(settings, branches, own, student_log_probs, targets.teacher_log_probs)
        importance = truncated_ratio(
            log_prob[distilled], targets.old_log_prob[distilled], settings.distillation_is_threshold
        )
        distillation = divergence * (importance * targets.rollout_is_weight[distilled] * targets.divergence_weight)
    for branch in branches:
        if branch.loss == "policy_gradient":
            by_branch[branch.name] = (corrected * (targets.branch == index_of(branch.name))).sum()
        else:
            by_branch[branch.name] = distillation[own == index_of(branch.name)].sum()
    return Losses(
        by_branch,
        distillation.detach(),
        divergence.detach(),
        (clipped & policy_gradient).sum(),
        policy_gradient.sum(),
    )


def _divergences(settings: Settings, branches: list[Branch], own: Tensor, student: Tensor, teacher: Tensor) -> Tensor:
    """[distilled tokens] each token's divergence, that of its branch."""
    distilling = [branch for branch in branches if branch.loss == "distillation"]
    if len(distilling) == 1:  # without copies
        return distilling[0].divergence(settings, student, teacher)
    result = student.new_zeros(len(student))
    for branch in distilling:
        rows = (own == index_of(branch.name)).nonzero().flatten()
        if len(rows):
            result = result.index_copy(0, rows, branch.divergence(settings, student[rows], teacher[rows]))
    return result
