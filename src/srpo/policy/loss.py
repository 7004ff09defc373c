"""The objective as verl's loss hook: verl calls it once per micro-batch of an update."""

from dataclasses import replace

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils.metric import AggregationType, Metric

from srpo.algorithm.branches import DROPPED, index_of
from srpo.algorithm.diagnostics import share_sums
from srpo.algorithm.distribution import top_k_with_tail
from srpo.algorithm.importance import sampler_mismatch
from srpo.algorithm.method import Method
from srpo.algorithm.objective import Losses, branch_losses, objective
from srpo.algorithm.targets import WorkerTargets
from srpo.policy.batches import unpack_targets


def srpo_loss(method: Method, model_output: dict, data: TensorDict, dp_group: object = None) -> tuple[Tensor, dict]:
    """Section 3.3's objective on one micro-batch.

    verl counts ``loss_mask`` over the mini-batch and all ranks into ``batch_num_tokens``; the driver sends exactly the
    rollouts that take a branch with a loss, so this count is the objective's denominator. FSDP averages gradients
    over ranks, hence the factor ``dp_size``.

    Returns:
        The loss and sums (not means) over the micro-batch, which add up over micro-batches. verl averages sums over
        ranks, too. So the sums of losses are multiplied by ``dp_size``; all other sums are used as ratios only
        (``outputs.update_metrics``).
    """
    targets = unpack_targets(data)
    method = method.scheduled(data["step"])
    student = model_output.get("student_log_probs")  # None if the micro-batch has no distilled token
    if student is not None and not targets.top_k_ids.shape[1]:  # the update has selected the top K
        ids = model_output["top_k_ids"]
        targets = replace(targets, top_k_ids=ids, teacher_log_probs=top_k_with_tail(targets.teacher_log_probs, ids))
    losses = branch_losses(method, targets, model_output["log_probs"], student)
    denominator = data["batch_num_tokens"] / data["dp_size"]
    values = {f"loss/{name}": (loss.detach() / denominator).item() for name, loss in losses.by_branch.items()}
    values |= {f"sum/{name}": value.item() for name, value in _sums(method, targets, losses, student).items()}
    shares = share_sums(targets.part_and_quarter, losses.distillation)
    values |= {f"sum/share/{name}": value for name, value in shares.items()}
    metrics = {name: Metric(value=value, aggregation=AggregationType.SUM) for name, value in values.items()}
    return objective(losses, denominator), metrics


def _sums(method: Method, targets: WorkerTargets, losses: Losses, student: Tensor | None) -> dict[str, Tensor]:
    """What the logged means are ratios of; each micro-batch of each rank has all of them, because verl averages them.

    Args:
        student: [distilled, K + 1] log-probs of the top K and the tail, if there are distilled tokens.
    """
    trained = targets.branch != index_of(DROPPED.name)  # false for filler rows
    correction = losses.rollout_is_weight[trained]
    asked = targets.copied >= 0
    tail = torch.zeros(0) if student is None else student.detach()[:, -1]
    return {
        "trained_tokens": trained.sum(),
        "rollout_is_weight": correction.sum(),
        "rollout_is_truncated": (correction >= method.rollout_is_threshold).sum(),
        **sampler_mismatch(losses.old_log_prob[trained], targets.rollout_log_prob[trained]),
        "policy_tokens": losses.policy_tokens,
        "clipped_tokens": losses.clipped,
        "distilled_tokens": torch.tensor(len(losses.divergence)),
        "distillation": losses.distillation.sum(),
        "divergence": losses.divergence.sum(),
        "distilled_correct": targets.correct.sum(),
        "divergence_correct": (losses.divergence * targets.correct).sum(),
        "distilled_wrong": (1 - targets.correct).sum(),
        "divergence_wrong": (losses.divergence * (1 - targets.correct)).sum(),
        "weighted_divergence": (losses.divergence * targets.divergence_weight).sum(),
        "student_top_k_mass": -tail.expm1().sum(),
        "teacher_top_k_mass": -targets.teacher_log_probs[:, -1:].expm1().sum(),
        "copying_cases": asked.sum(),
        "copying_student": (targets.top_k_ids[:, :1].flatten() == targets.copied)[asked].sum(),
    }
