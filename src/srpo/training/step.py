"""What a step computes between verl's passes: pure functions of a batch of rollouts, shared by both drivers."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from srpo.algorithm.advantage import group_advantages, mixed_advantages
from srpo.algorithm.diagnostics import weight_metrics
from srpo.algorithm.divergence import generalised_jsd
from srpo.algorithm.objective import truncated_ratio
from srpo.algorithm.routing import Routes
from srpo.algorithm.weighting import dynamic_weights, keep_loss
from srpo.benchmarks.splits import Question
from srpo.config import Method
from srpo.errors import SrpoError
from srpo.seeds import derive_seed
from srpo.text import shortened

LOGGED_CHARACTERS = 1000
"""Of a question or response in the log of groups."""


@dataclass(frozen=True)
class Rollouts:
    """The rollouts of one step; the rollouts of a question are adjacent.

    Attributes:
        question: [rollouts] index of the question within the step.
        prompts, responses: token ids per rollout, int64 tensors.
        texts: decoded responses.
        rollout_log_probs: [response] float32 per rollout, as the rollout engine returned them.
        rewards: [rollouts] float32 in {0, 1}.
        truncated: [rollouts] bool, no end of sequence within the length limit.
    """

    question: Tensor
    prompts: list[Tensor]
    responses: list[Tensor]
    texts: list[str]
    rollout_log_probs: list[Tensor]
    rewards: Tensor
    truncated: Tensor

    def __len__(self) -> int:
        return len(self.responses)


@dataclass(frozen=True)
class StudentScores:
    """The student's view before the update, by rollout index; all but ``log_probs`` of taught rollouts only.

    Attributes:
        log_probs: [response] log pi_old(y_t).
        top_k_ids: [response * K] int64, the most likely tokens at each position, best first, flattened.
        top_k_mass: [response] their probability.
        buckets: [response * (K + 1)] log p on these ids and the tail, flattened; empty unless asked for.
    """

    log_probs: dict[int, Tensor]
    top_k_ids: dict[int, Tensor]
    top_k_mass: dict[int, Tensor]
    buckets: dict[int, Tensor] = field(default_factory=dict)

    def favourites(self, row: int) -> Tensor:
        """[response] int64 the most likely token at each position of a taught rollout."""
        return self.top_k_ids[row].view(len(self.log_probs[row]), -1)[:, 0]


@dataclass(frozen=True)
class TeacherScores:
    """The teacher's view of the taught rollouts, by rollout index.

    Attributes:
        log_probs: [response] log q(y_t).
        entropy: [response] H_t in nats, over the full vocabulary.
        buckets: [response * (K + 1)] log q on the student's top-K ids and the tail, flattened.
        favourites: [response] int64 the most likely token at each position.
    """

    log_probs: dict[int, Tensor]
    entropy: dict[int, Tensor]
    buckets: dict[int, Tensor]
    favourites: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Targets:
    """Constants of the loss, one entry per rollout; empty tensors where a branch does not apply.

    Attributes:
        advantages, rollout_is_weight: [response] float32.
        in_policy_branch, in_distillation_branch, mask: [response] bool; ``mask`` is their union.
        divergence_weight: [response] w~_t of distilled rollouts.
    """

    advantages: list[Tensor]
    rollout_is_weight: list[Tensor]
    in_policy_branch: list[Tensor]
    in_distillation_branch: list[Tensor]
    mask: list[Tensor]
    divergence_weight: list[Tensor]


def questions_of_step(step: int, questions: int, per_batch: int, seed: int) -> list[int]:
    """Indices of a step's questions: a fresh shuffle each epoch, the last incomplete batch dropped.

    A function of the step alone, so that a resumed run needs no data state.

    Raises:
        SrpoError: if the split is smaller than a batch.
    """
    batches = questions // per_batch
    if batches == 0:
        raise SrpoError(f"training.questions_per_batch = {per_batch}: the train split has only {questions} questions")
    epoch, batch = divmod(step - 1, batches)
    order = list(range(questions))
    random.Random(derive_seed("question order", seed, epoch)).shuffle(order)
    return order[batch * per_batch : (batch + 1) * per_batch]


def mini_batches(rollouts: Rollouts, routes: Routes, mini_batch_questions: int) -> list[list[int]]:
    """Rows of each mini-batch, dropped rollouts left out; a mini-batch that keeps none is left out too."""
    kept = (~routes.dropped).tolist()
    batches: dict[int, list[int]] = {}
    for row, question in enumerate(rollouts.question.tolist()):
        if kept[row]:
            batches.setdefault(question // mini_batch_questions, []).append(row)
    return list(batches.values())


def targets(
    method: Method,
    rollouts: Rollouts,
    routes: Routes,
    batches: Sequence[Sequence[int]],
    student: StudentScores,
    teacher: TeacherScores,
) -> Targets:
    """Turn rewards, routes and scores into the constants of the loss (sections 3.1 to 3.3).

    Advantages are computed over the whole group, before any routing. Weights are normalised over all distilled
    tokens of a mini-batch.
    """
    advantages = group_advantages(rollouts.rewards, rollouts.question)
    mixed = routes.mix.tolist()
    empty = torch.zeros(0)
    size = len(rollouts)
    result = Targets(*([torch.zeros(0, dtype=torch.bool) for _ in range(size)] for _ in range(6)))
    for row, old in student.log_probs.items():
        advantage = advantages[row].expand(len(old))
        if mixed[row]:
            advantage = mixed_advantages(advantage, teacher.log_probs.get(row, old), old, method.mix_lambda)
        result.advantages[row] = advantage
        result.rollout_is_weight[row] = truncated_ratio(
            old, rollouts.rollout_log_probs[row], method.rollout_is_threshold
        )
        result.in_policy_branch[row] = (routes.grpo | routes.mix)[row].expand(len(old))
        result.in_distillation_branch[row] = routes.sdpo[row].expand(len(old))
        result.mask[row] = torch.ones(len(old), dtype=torch.bool)
        result.divergence_weight[row] = empty
    distilled = routes.sdpo.tolist()
    for rows in batches:
        chosen = [row for row in rows if distilled[row]]
        if chosen:
            weights = dynamic_weights(torch.cat([teacher.entropy[row] for row in chosen]), method.entropy_beta)
            if method.weights_keep == "loss":
                weights = keep_loss(weights, torch.cat([_divergence(method, student, teacher, row) for row in chosen]))
            lengths = [len(teacher.entropy[row]) for row in chosen]
            for row, weight in zip(chosen, weights.split(lengths), strict=True):
                result.divergence_weight[row] = weight
    return result


def _divergence(method: Method, student: StudentScores, teacher: TeacherScores, row: int) -> Tensor:
    """[response] divergence of a distilled rollout at the start of the batch."""
    shape = (len(teacher.entropy[row]), -1)
    return generalised_jsd(student.buckets[row].view(shape), teacher.buckets[row].view(shape), method.divergence_alpha)


def rollout_metrics(rollouts: Rollouts, routes: Routes) -> dict[str, float]:
    """Rewards, lengths and routing of a step (figures 4a and 5)."""
    groups = rollouts.rewards.view(int(rollouts.question.max()) + 1, -1).mean(1)
    lengths = torch.tensor([len(response) for response in rollouts.responses], dtype=torch.float32)
    values = {
        "reward/mean": rollouts.rewards.mean(),
        "response_length/mean": lengths.mean(),
        "response_length/truncated_fraction": rollouts.truncated.float().mean(),
        "routing/grpo_fraction": routes.grpo.float().mean(),
        "routing/sdpo_fraction": routes.sdpo.float().mean(),
        "routing/mix_fraction": routes.mix.float().mean(),
        "routing/dropped_fraction": routes.dropped.float().mean(),
        "routing/correct_fraction": routes.correct.float().mean(),
        "routing/teacher_available_fraction": routes.teacher_available.float().mean(),
        "routing/all_wrong_groups": (groups == 0).float().mean(),
        "routing/all_correct_groups": (groups == 1).float().mean(),
    }
    return {name: value.item() for name, value in values.items()}


def target_metrics(method: Method, result: Targets, student: StudentScores, teacher: TeacherScores) -> dict[str, float]:
    """The rollout correction, and what student, teacher and weights look like where they exist."""
    correction = torch.cat(result.rollout_is_weight)
    metrics = {
        "actor/rollout_is_weight": correction.mean().item(),
        "actor/rollout_is_truncated_fraction": (correction >= method.rollout_is_threshold).float().mean().item(),
    }
    if student.top_k_mass:
        metrics["student/top_k_mass"] = torch.cat(list(student.top_k_mass.values())).mean().item()
    if teacher.entropy:
        metrics["teacher/entropy"] = torch.cat(list(teacher.entropy.values())).mean().item()
    if teacher.buckets:
        tail = torch.cat([row.view(len(teacher.entropy[i]), -1)[:, -1] for i, row in teacher.buckets.items()])
        metrics["teacher/top_k_mass"] = -tail.expm1().mean().item()
    weights = torch.cat(result.divergence_weight)
    if len(weights):
        metrics |= weight_metrics(weights)
    return metrics


def group_record(step: int, questions: Sequence[Question], rollouts: Rollouts, routes: Routes) -> dict[str, Any]:
    """One group of a step as it was routed, for table 6: the first that has right and wrong rollouts, else the first.

    ``teacher`` is the place within the group of the rollout shown to the self-teacher, None for rollouts that it does
    not score; ``advantage`` is the whole group's, before any routing.
    """
    rewards = rollouts.rewards.view(len(questions), -1)
    group = next((i for i, found in enumerate(rewards) if found.min() < found.max()), 0)
    first = group * rewards.shape[1]
    advantages = group_advantages(rollouts.rewards, rollouts.question)
    branches = {"grpo": routes.grpo, "sdpo": routes.sdpo, "mix": routes.mix, "none": routes.dropped}
    question = questions[group]
    return {
        "step": step,
        "question": question.index,
        "prompt": shortened(
            next(m["content"] for m in reversed(question.messages) if m["role"] == "user"), LOGGED_CHARACTERS
        ),
        "ground_truth": shortened(question.ground_truth, LOGGED_CHARACTERS),
        "rollouts": [
            {
                "reward": rollouts.rewards[row].item(),
                "truncated": rollouts.truncated[row].item(),
                "branch": next(name for name, taken in branches.items() if taken[row]),
                "teacher": int(routes.teacher[row]) - first if routes.taught[row] else None,
                "advantage": advantages[row].item(),
                "response_length": len(rollouts.responses[row]),
                "response": shortened(rollouts.texts[row], LOGGED_CHARACTERS),
            }
            for row in range(first, first + rewards.shape[1])
        ],
    }
