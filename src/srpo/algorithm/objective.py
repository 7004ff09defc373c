"""The training objective (section 3.3): each branch's token losses over one denominator."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from srpo.algorithm.branches import Branch, index_of, trained_branches
from srpo.algorithm.method import Method
from srpo.algorithm.routing import has_loss
from srpo.algorithm.targets import NOT_COMPUTED, Targets, WorkerTargets
from srpo.ground.errors import SrpoError

MAX_LOG_RATIO = 20.0
"""Bound of a log-ratio of probabilities before it is exponentiated."""


@dataclass(frozen=True)
class Losses:
    """Sums over a micro-batch.

    Attributes:
        by_branch: the sum of token losses of each branch of the method that is trained, with gradients.
        divergence: [distilled tokens] student-teacher divergence before any clip, without gradient.
        rollout_is_weight: [tokens] truncated pi_old / pi_rollout.
        old_log_prob: [tokens] log pi_old.
        clipped: number of policy-gradient tokens whose ratio was clipped.
        policy_tokens: number of policy-gradient tokens.
    """

    by_branch: dict[str, Float[Tensor, ""]]
    divergence: Float[Tensor, " distilled"]
    rollout_is_weight: Float[Tensor, " tokens"]
    old_log_prob: Float[Tensor, " tokens"]
    clipped: Tensor
    policy_tokens: Tensor


def objective(losses: Losses, denominator: float | int | Tensor) -> Tensor:
    """The part of the objective that a micro-batch contributes.

    Args:
        denominator: number of tokens of the whole mini-batch that take a branch with a loss.
    """
    return torch.stack([*losses.by_branch.values()]).sum() / denominator


def truncated_ratio(
    log_prob: Float[Tensor, " tokens"], reference_log_prob: Float[Tensor, " tokens"], threshold: float | int
) -> Float[Tensor, " tokens"]:
    """min(exp(log_prob - reference), threshold), elementwise and without gradient.

    With (old, rollout) log-probs it is the rollout correction (section 2.1); with (current, old) SDPO's importance
    weight (2.2).
    """
    log_ratio = (log_prob - reference_log_prob).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return log_ratio.exp().clamp(max=threshold)


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
    method: Method,
    targets: WorkerTargets,
    log_prob: Float[Tensor, " tokens"],
    student_log_probs: Float[Tensor, "distilled K_and_tail"] | None,
) -> Losses:
    """Sum each branch's token losses over its own tokens.

    A branch without tokens here adds an exact zero that still has a gradient path.

    Args:
        targets: of the micro-batch.
        log_prob: log pi_theta(y_t), with gradients.
        student_log_probs: log p of the student's top-K tokens and the tail at distilled tokens, with gradients; None
            if no token is distilled.
    """
    branches = trained_branches(method.branches)
    policy_gradient = has_loss(targets.branch, "policy_gradient")
    distilled = has_loss(targets.branch, "distillation")
    # with one update per batch, pi_old is the policy of this update
    old = targets.old_log_prob.where(targets.old_log_prob != NOT_COMPUTED, log_prob.detach())
    rollout_is_weight = truncated_ratio(old, targets.rollout_log_prob, method.rollout_is_threshold)
    loss, clipped = policy_loss(
        log_prob,
        old,
        branch_advantages(method, targets, old),
        method.clip_ratio_low,
        method.clip_ratio_high,
        method.clip_ratio_c,
    )
    corrected = loss * rollout_is_weight
    divergence, distillation = log_prob.new_zeros(0), log_prob[:0]
    own = targets.branch[distilled]
    if student_log_probs is not None:
        divergence = _divergences(method, branches, own, student_log_probs, targets.teacher_log_probs)
        importance = truncated_ratio(log_prob[distilled], old[distilled], method.distillation_is_clip)
        weight = importance * rollout_is_weight[distilled] * targets.divergence_weight
        distillation = divergence * weight
    by_branch: dict[str, Tensor] = {}
    for branch in branches:
        if branch.loss == "policy_gradient":
            by_branch[branch.name] = (corrected * (targets.branch == index_of(branch.name))).sum()
        else:
            by_branch[branch.name] = distillation[own == index_of(branch.name)].sum()
    return Losses(
        by_branch,
        divergence.detach(),
        rollout_is_weight,
        old,
        (clipped & policy_gradient).sum(),
        policy_gradient.sum(),
    )


def branch_advantages(
    method: Method, targets: Targets, old_log_prob: Float[Tensor, " tokens"]
) -> Float[Tensor, " tokens"]:
    """Each token's advantage: the rollout's advantage in its group, as the rollout's branch changes it."""
    advantage = targets.advantage
    teacher = targets.teacher_log_prob.where(targets.teacher_log_prob != NOT_COMPUTED, old_log_prob)
    for branch in trained_branches(method.branches):
        if branch.advantage is not None:
            own = targets.branch == index_of(branch.name)
            changed = branch.advantage_function(method, advantage[own], old_log_prob[own], teacher[own])
            advantage = advantage.masked_scatter(own, _checked(branch, changed, advantage[own]))
    return advantage


def _divergences(method: Method, branches: list[Branch], own: Tensor, student: Tensor, teacher: Tensor) -> Tensor:
    """[distilled tokens] each token's divergence, as its branch computes it."""
    distilling = [branch for branch in branches if branch.loss == "distillation"]
    if len(distilling) == 1:  # without copies
        return _divergence(distilling[0], method, student, teacher)
    result = student.new_zeros(len(student))
    for branch in distilling:
        rows = (own == index_of(branch.name)).nonzero().flatten()
        if len(rows):
            result = result.index_copy(0, rows, _divergence(branch, method, student[rows], teacher[rows]))
    return result


def _divergence(branch: Branch, method: Method, student: Tensor, teacher: Tensor) -> Tensor:
    found = _checked(branch, branch.divergence_function(method, student, teacher), student[:, 0])
    if torch.is_grad_enabled() and student.requires_grad and not found.requires_grad:
        raise SrpoError(f"branch {branch.name}: its divergence has no gradient of the student and would train nothing")
    return found


def _checked(branch: Branch, found: object, like: Tensor) -> Tensor:
    """What a branch's function returned. A tensor of another shape may be broadcast to all tokens."""
    what = "divergence" if branch.loss == "distillation" else "advantage"
    if not isinstance(found, Tensor) or found.shape != like.shape:
        given = f"of shape {[*found.shape]}" if isinstance(found, Tensor) else f"a {type(found).__name__}"
        raise SrpoError(f"branch {branch.name}: its {what} is {given}; return a tensor of shape {[*like.shape]}")
    return found
