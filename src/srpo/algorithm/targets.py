"""What the loss reads of each token, from rewards, routes and log-probs (sections 3.1 to 3.3)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor

from srpo.algorithm.advantage import group_advantages
from srpo.algorithm.method import Method
from srpo.algorithm.rollouts import Rollouts, TeacherLogProbs
from srpo.algorithm.routing import Routes
from srpo.algorithm.weighting import dynamic_weights, group_spread, preserve_loss_scale

NOT_COMPUTED = math.inf
"""Stands for a log-prob that no pass has computed. Unlike NaN, no fault makes it."""

DISTILLED = {"distilled": True}
INTEGER = {"dtype": torch.int64}


@dataclass(frozen=True)
class Targets:
    """What the loss reads of the response tokens of one rollout, or of a micro-batch, one rollout after another.

    Only this class declares these fields: ``policy/batches.py`` sends each to the workers and restores it there, in
    float32 or the ``dtype`` that it declares. ``distilled`` fields have one entry per token with a distillation loss,
    in order.

    Attributes:
        old_log_prob: log pi_old(y_t) of the trainer; ``NOT_COMPUTED`` if the batch has one update, whose own forward
            pass computes it.
        rollout_log_prob: log pi_rollout(y_t) of the rollout engine.
        teacher_log_prob: log q(y_t); ``NOT_COMPUTED`` without a teacher.
        advantage: of the rollout in its group, before its branch changes it.
        branch: index of the branch in ``BRANCHES``.
        divergence_weight: w~_t, normalised over the whole mini-batch.
    """

    old_log_prob: Float[Tensor, " tokens"]
    rollout_log_prob: Float[Tensor, " tokens"]
    teacher_log_prob: Float[Tensor, " tokens"]
    advantage: Float[Tensor, " tokens"]
    branch: Integer[Tensor, " tokens"] = field(metadata=INTEGER)
    divergence_weight: Float[Tensor, " distilled"] = field(metadata=DISTILLED)


@dataclass(frozen=True)
class WorkerTargets(Targets):
    """The targets of a micro-batch with the distributions, which are large and never leave their worker.

    Attributes:
        top_k_ids: the student's most likely tokens; without columns if the update selects them.
        teacher_log_probs: log q of these tokens and the tail; of the whole vocabulary if the update selects them.
    """

    top_k_ids: Int64[Tensor, "distilled K"]
    teacher_log_probs: Float[Tensor, "distilled K_and_tail_or_vocabulary"]


def mini_batches(rollouts: Rollouts, routes: Routes, mini_batch_questions: int) -> list[list[int]]:
    """Rollouts of each mini-batch, dropped ones left out; a mini-batch of which none is left has no update."""
    dropped = routes.dropped.tolist()
    batches: dict[int, list[int]] = {}
    for row, question in enumerate(rollouts.question.tolist()):
        if not dropped[row]:
            batches.setdefault(question // mini_batch_questions, []).append(row)
    return list(batches.values())


def make_targets(
    method: Method,
    rollouts: Rollouts,
    routes: Routes,
    batches: Sequence[Sequence[int]],
    old_log_probs: Mapping[int, Tensor],
    teacher: TeacherLogProbs,
) -> dict[int, Targets]:
    """Turn rewards, routes and log-probs into what the loss reads, by rollout that is not dropped.

    Advantages are computed over the whole group, before any routing. Weights are normalised over all distilled
    tokens of a mini-batch.

    Args:
        batches: :func:`mini_batches` of the step.
        old_log_probs: [response] log pi_old(y_t) by rollout; empty if the update computes them.
    """
    advantages = group_advantages(rollouts.rewards, rollouts.question)
    weights = _weights(method, rollouts, routes, batches, teacher)
    none, result = torch.zeros(0), {}
    for row in sorted(row for rows in batches for row in rows):
        length = len(rollouts.responses[row])
        unknown = torch.full((length,), NOT_COMPUTED)
        result[row] = Targets(
            old_log_prob=old_log_probs.get(row, unknown),
            rollout_log_prob=rollouts.rollout_log_probs[row],
            teacher_log_prob=teacher.log_probs.get(row, unknown),
            advantage=advantages[row].expand(length),
            branch=routes.branch[row].to(torch.uint8).expand(length),
            divergence_weight=weights.get(row, none),
        )
    return result


def _weights(
    method: Method, rollouts: Rollouts, routes: Routes, batches: Sequence[Sequence[int]], teacher: TeacherLogProbs
) -> dict[int, Tensor]:
    """[response] w~_t of the distilled rollouts, normalised over each mini-batch (section 3.2)."""
    distilled = set(routes.distilled.nonzero().flatten().tolist())
    spread = group_spread(rollouts.correct, rollouts.question) if method.group_weight == "spread" else None
    result: dict[int, Tensor] = {}
    for batch in batches:
        rows = [row for row in batch if row in distilled]
        if not rows:
            continue
        lengths = [len(teacher.entropy[row]) for row in rows]
        of_group = None if spread is None else spread[rows].repeat_interleave(torch.tensor(lengths))
        weights = dynamic_weights(torch.cat([teacher.entropy[row] for row in rows]), method.entropy_beta, of_group)
        if method.preserve_loss_scale:
            weights = preserve_loss_scale(weights, torch.cat([teacher.divergence[row] for row in rows]))
        result |= dict(zip(rows, weights.split(lengths), strict=True))
    return result
