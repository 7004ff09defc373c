"""The objective as verl's loss hook: verl calls it once per micro-batch of an update."""

import torch
from tensordict import TensorDict
from verl.utils.metric import AggregationType, Metric

from srpo.algorithm.branches import DROPPED, index_of
from srpo.algorithm.diagnostics import share_sums
from srpo.algorithm.objective import branch_losses, objective
from srpo.algorithm.routing import has_loss
from srpo.algorithm.targets import PendingTargets, Targets, complete, teacher_log_probs_at
from srpo.config import Method
from srpo.policy.batches import unpack_targets


def srpo_loss(
    method: Method, model_output: dict, data: TensorDict, dp_group: object = None
) -> tuple[torch.Tensor, dict]:
    """Section 3.3's objective on one micro-batch.

    verl counts ``loss_mask`` over the mini-batch and all ranks into ``batch_num_tokens``; the driver sends exactly the
    rollouts that take a branch with a loss, so this count is the objective's denominator. FSDP averages gradients
    over ranks, hence the factor ``dp_size``.

    Returns:
        The loss and sums (not means) over the micro-batch, which add up over micro-batches. verl
        averages even sums over ranks: those of the losses are multiplied by ``dp_size``, of the others only ratios are
        used.
    """
    targets = unpack_targets(data)
    log_prob, student = model_output["log_probs"], model_output.get("student_log_probs")
    of_scores = {}
    if isinstance(targets, PendingTargets):
        assert student is not None  # the engine returns them wherever the targets are open
        ids, pending = model_output["top_k_ids"], targets
        teacher = teacher_log_probs_at(pending, ids)
        targets = complete(method, pending, log_prob, ids, teacher)
        of_scores = _score_sums(method, pending, targets, ids, student.detach(), teacher)
        student = student[has_loss(pending.branch[pending.scored], "distillation")]
        student = student if len(student) else None
    losses = branch_losses(method, targets, log_prob, student)
    denominator = data["batch_num_tokens"] / data["dp_size"]
    sums = {f"loss/{name}": loss.detach() / denominator for name, loss in losses.by_branch.items()}
    sums |= {
        "sum/distillation": losses.distillation.sum(),
        "sum/divergence": losses.divergence.sum(),
        "sum/weighted_divergence": (losses.divergence * targets.divergence_weight).sum(),
        "sum/distilled_tokens": torch.tensor(len(losses.divergence)),
        "sum/clipped_tokens": losses.clipped,
        "sum/policy_tokens": losses.policy_tokens,
        **of_scores,
    }
    values = {name: value.item() for name, value in sums.items()}
    shares = share_sums(targets.cell, losses.distillation)
    values |= {f"sum/share/{name}": value for name, value in shares.items()}
    metrics = {name: Metric(value=value, aggregation=AggregationType.SUM) for name, value in values.items()}
    return objective(losses, denominator), metrics


def _score_sums(
    method: Method,
    pending: PendingTargets,
    targets: Targets,
    ids: torch.Tensor,
    student: torch.Tensor,
    teacher: torch.Tensor,
) -> dict[str, torch.Tensor]:
    """Sums that :func:`srpo.training.metrics.target_metrics` logs with several updates; here the batch has one update.

    Args:
        ids: [scored, K] the student's most likely tokens.
        student, teacher: [scored, K + 1] their log-probs and the tail's.
    """
    trained = targets.branch != index_of(DROPPED.name)  # false for filler rows
    correction = targets.rollout_is_weight[trained]
    asked = pending.copied >= 0
    sums = {
        "sum/trained_tokens": trained.sum(),
        "sum/rollout_is_weight": correction.sum(),
        "sum/rollout_is_truncated": (correction >= method.rollout_is_threshold).sum(),
        "sum/scored_tokens": pending.scored.sum(),
        "sum/student_top_k_mass": -student[:, -1:].expm1().sum(),
        "sum/teacher_top_k_mass": -teacher[:, -1:].expm1().sum(),
        "sum/copying_cases": asked.sum(),
    }
    distilled = has_loss(pending.branch[pending.scored], "distillation")
    argmax = ids[distilled][:, :1].flatten()
    sums["sum/copying_student"] = (argmax == pending.copied)[asked].sum() if len(argmax) else asked.sum()
    return sums
