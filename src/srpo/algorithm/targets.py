"""The constants of the loss for each token, from rewards, routes and scores (sections 3.1 to 3.3)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int64, Integer
from torch import Tensor

from srpo.algorithm.advantage import group_advantages
from srpo.algorithm.branches import BRANCHES, index_of, trained_branches
from srpo.algorithm.distribution import top_k_with_tail
from srpo.algorithm.importance import truncated_ratio
from srpo.algorithm.rollouts import Rollouts, StudentScores, TeacherScores
from srpo.algorithm.routing import Routes, has_loss
from srpo.algorithm.settings import Settings
from srpo.algorithm.weighting import dynamic_weights, preserve_loss_scale

DISTILLED = {"of": "distilled"}
SCORED = {"of": "scored"}


@dataclass(frozen=True)
class Constants:
    """The loss's constants for the response tokens of one rollout, or of a micro-batch, one rollout after another.

    Only this class declares these fields: ``policy/batches.py`` sends them to the workers and restores them there.
    ``distilled`` fields have one entry per token with a distillation loss, in order.

    Attributes:
        old_log_prob: log pi_old(y_t), the trainer's own score at the start of the batch.
        rollout_is_weight: truncated pi_old / pi_rollout.
        advantage: of the policy-gradient loss.
        branch: index of the branch in ``BRANCHES``.
        divergence_weight: w~_t, normalised over the whole mini-batch.
        cell: part and quarter of the response (``diagnostics.loss_cells``), for the logged shares of the loss.
    """

    old_log_prob: Float[Tensor, " tokens"]
    rollout_is_weight: Float[Tensor, " tokens"]
    advantage: Float[Tensor, " tokens"]
    branch: Integer[Tensor, " tokens"]
    divergence_weight: Float[Tensor, " distilled"] = field(metadata=DISTILLED)
    cell: Int64[Tensor, " distilled"] = field(metadata=DISTILLED)


@dataclass(frozen=True)
class Targets(Constants):
    """The constants and the distributions, which are large and never leave the worker that computed them.

    Attributes:
        top_k_ids: the student's most likely tokens.
        teacher_log_probs: log q of these tokens and the tail.
    """

    top_k_ids: Int64[Tensor, "distilled K"] = field(metadata=DISTILLED)
    teacher_log_probs: Float[Tensor, "distilled K_and_tail"] = field(metadata=DISTILLED)


@dataclass(frozen=True)
class PendingConstants:
    """:class:`Constants` of a batch with one update, before the student has scored it.

    With one update per batch, pi_old is pi_theta at that update, whose forward pass computes it. So there is no
    separate pass, and :func:`complete` adds the fields that depend on it. Sent like ``Constants``; ``scored`` fields
    have one entry per token that the teacher has scored, in order.

    Attributes:
        rollout_log_prob: log-probs of the rollout engine.
        advantage: of the whole group, before any branch changes it.
        branch: index of the branch in ``BRANCHES``.
        scored: whether the teacher has scored the token.
        divergence_weight, cell: as in ``Constants``.
        copied: at the first token of a rollout's answer, the first answer token of the shown sibling if it differs;
            else -1.
        teacher_log_prob: log q(y_t).
    """

    rollout_log_prob: Float[Tensor, " tokens"]
    advantage: Float[Tensor, " tokens"]
    branch: Integer[Tensor, " tokens"]
    scored: Bool[Tensor, " tokens"]
    divergence_weight: Float[Tensor, " distilled"] = field(metadata=DISTILLED)
    cell: Int64[Tensor, " distilled"] = field(metadata=DISTILLED)
    copied: Int64[Tensor, " distilled"] = field(metadata=DISTILLED)
    teacher_log_prob: Float[Tensor, " scored"] = field(metadata=SCORED)


@dataclass(frozen=True)
class PendingTargets(PendingConstants):
    """The pending constants with the distributions, as :class:`Targets` has them.

    Attributes:
        top_k_ids: the student's most likely tokens; without columns if the update selects them.
        teacher_log_probs: log q of these tokens and the tail, or of the whole vocabulary if there are no ids.
    """

    top_k_ids: Int64[Tensor, "scored K"] = field(metadata=SCORED)
    teacher_log_probs: Float[Tensor, "scored K_and_tail_or_vocabulary"] = field(metadata=SCORED)


def mini_batches(rollouts: Rollouts, routes: Routes, mini_batch_questions: int) -> list[list[int]]:
    """Rollouts of each mini-batch, dropped ones left out; a mini-batch that keeps none is left out too."""
    kept = (~routes.dropped).tolist()
    batches: dict[int, list[int]] = {}
    for row, question in enumerate(rollouts.question.tolist()):
        if kept[row]:
            batches.setdefault(question // mini_batch_questions, []).append(row)
    return list(batches.values())


def make_constants(
    settings: Settings,
    rollouts: Rollouts,
    routes: Routes,
    batches: Sequence[Sequence[int]],
    student: StudentScores,
    teacher: TeacherScores,
    cells: dict[int, Tensor] | None = None,
) -> dict[int, Constants]:
    """Turn rewards, routes and scores into the constants of the loss, by rollout that is not dropped.

    Advantages are computed over the whole group, before any routing. Weights are normalised over all distilled
    tokens of a mini-batch.

    Args:
        batches: :func:`mini_batches` of the step.
        cells: :func:`srpo.algorithm.diagnostics.loss_cells` of distilled rollouts; default: 0.
    """
    advantages = group_advantages(rollouts.rewards, rollouts.question)
    names = routes.names
    weights = _weights(settings, routes, batches, teacher)
    nothing = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    result = {}
    for row, old in sorted(student.log_probs.items()):
        branch, length = BRANCHES[names[row]], len(old)
        if row in weights:
            of_distilled = weights[row], (cells or {}).get(row, torch.zeros(length, dtype=torch.int64))
        else:
            of_distilled = nothing
        result[row] = Constants(
            old,
            truncated_ratio(old, rollouts.rollout_log_probs[row], settings.rollout_is_threshold),
            branch.advantage(settings, advantages[row], old, teacher.log_probs.get(row, old)),
            routes.branch[row].to(torch.uint8).expand(length),
            *of_distilled,
        )
    return result


def make_pending_constants(
    settings: Settings,
    rollouts: Rollouts,
    routes: Routes,
    batches: Sequence[Sequence[int]],
    teacher: TeacherScores,
    cells: dict[int, Tensor] | None = None,
    copied: dict[int, Tensor] | None = None,
) -> dict[int, PendingConstants]:
    """The inputs of :func:`make_constants` for a batch with one update, by rollout that is not dropped.

    Args:
        batches: the one mini-batch.
        cells, copied: of distilled rollouts (``srpo.algorithm.diagnostics``); default: none.
    """
    advantages = group_advantages(rollouts.rewards, rollouts.question)
    weights = _weights(settings, routes, batches, teacher)
    numbers, ids = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    result = {}
    for row in sorted(row for rows in batches for row in rows):
        length, scored = len(rollouts.responses[row]), row in teacher.entropy
        of_distilled = numbers, ids, ids
        if row in weights:
            of_distilled = (
                weights[row],
                (cells or {}).get(row, torch.zeros(length, dtype=torch.int64)),
                (copied or {}).get(row, torch.full((length,), -1)),
            )
        result[row] = PendingConstants(
            rollouts.rollout_log_probs[row],
            advantages[row].expand(length),
            routes.branch[row].to(torch.uint8).expand(length),
            torch.full((length,), scored),
            *of_distilled,
            teacher.log_probs.get(row, numbers),
        )
    return result


def complete(
    settings: Settings,
    targets: PendingTargets,
    log_prob: Float[Tensor, " tokens"],
    ids: Int64[Tensor, "scored K"],
    teacher_log_probs: Float[Tensor, "scored K_and_tail"],
) -> Targets:
    """The targets of a micro-batch, if the batch has one update.

    Args:
        log_prob: log pi_theta(y_t) at this update, which is pi_old.
        ids: the student's most likely tokens at the positions that the teacher has scored.
        teacher_log_probs: what the teacher says of them (:func:`teacher_log_probs_at`).
    """
    old = log_prob.detach()
    teacher = old.masked_scatter(targets.scored, targets.teacher_log_prob)
    advantage = targets.advantage
    for branch in trained_branches(settings.routing.branches):
        if branch.loss == "policy_gradient" and branch.uses_teacher:
            own = targets.branch == index_of(branch.name)
            mixed = branch.advantage(settings, advantage[own], old[own], teacher[own])
            advantage = advantage.masked_scatter(own, mixed)
    distilled = has_loss(targets.branch[targets.scored], "distillation")
    return Targets(
        old,
        truncated_ratio(old, targets.rollout_log_prob, settings.rollout_is_threshold),
        advantage,
        targets.branch,
        targets.divergence_weight,
        targets.cell,
        ids[distilled],
        teacher_log_probs[distilled],
    )


def teacher_log_probs_at(targets: PendingTargets, ids: Int64[Tensor, "scored K"]) -> Float[Tensor, "scored K_and_tail"]:
    """log q of the student's most likely tokens and the tail at the positions that the teacher has scored."""
    if not len(ids) or targets.top_k_ids.shape[1]:
        return targets.teacher_log_probs
    return top_k_with_tail(targets.teacher_log_probs, ids)


def _weights(
    settings: Settings, routes: Routes, batches: Sequence[Sequence[int]], teacher: TeacherScores
) -> dict[int, Tensor]:
    """[response] w~_t of the distilled rollouts, normalised over each mini-batch (section 3.2)."""
    distilled = set(routes.distilled.nonzero().flatten().tolist())
    result: dict[int, Tensor] = {}
    for batch in batches:
        rows = [row for row in batch if row in distilled]
        if not rows:
            continue
        weights = dynamic_weights(torch.cat([teacher.entropy[row] for row in rows]), settings.entropy_beta)
        if settings.preserve_loss_scale:
            weights = preserve_loss_scale(weights, torch.cat([teacher.divergence[row] for row in rows]))
        lengths = [len(teacher.entropy[row]) for row in rows]
        result |= dict(zip(rows, weights.split(lengths), strict=True))
    return result
