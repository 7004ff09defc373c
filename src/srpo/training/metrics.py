"""The metrics that a step logs, and the record of one group with its routing."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from srpo.algorithm.advantage import group_advantages
from srpo.algorithm.branches import BRANCHES
from srpo.algorithm.diagnostics import weight_metrics
from srpo.algorithm.rollouts import Rollouts, StudentScores, TeacherScores
from srpo.algorithm.routing import NO_SIBLING, Routes
from srpo.algorithm.targets import Constants, PendingConstants
from srpo.benchmarks.splits import Question
from srpo.config import Method
from srpo.text import shortened

LOGGED_CHARACTERS = 1000
"""Maximum characters of a question or response in the log of groups."""


def rollout_metrics(rollouts: Rollouts, routes: Routes) -> dict[str, float]:
    """Rewards, lengths and routing of a step (figures 4a and 5)."""
    groups = rollouts.rewards.view(int(rollouts.question.max()) + 1, -1).mean(1)
    lengths = torch.tensor([len(response) for response in rollouts.responses], dtype=torch.float32)
    values = {
        "reward/mean": rollouts.rewards.mean(),
        "response_length/mean": lengths.mean(),
        "response_length/truncated_fraction": rollouts.truncated.float().mean(),
        **{f"routing/{name}_fraction": routes.takes(name).float().mean() for name in BRANCHES},
        "routing/correct_fraction": routes.correct.float().mean(),
        "routing/sibling_available_fraction": routes.sibling_available.float().mean(),
        "routing/all_wrong_groups": (groups == 0).float().mean(),
        "routing/all_correct_groups": (groups == 1).float().mean(),
    }
    return {name: value.item() for name, value in values.items()}


def target_metrics(
    method: Method,
    constants: Mapping[int, Constants] | Mapping[int, PendingConstants],
    student: StudentScores,
    teacher: TeacherScores,
) -> dict[str, float]:
    """The metrics that are known before the update: of student, teacher, weights and rollout correction.

    With one update per batch, the update computes the others: :func:`srpo.policy.outputs.update_metrics` has it.
    """
    metrics = {}
    if known := [row.rollout_is_weight for row in constants.values() if isinstance(row, Constants)]:
        correction = torch.cat(known)
        metrics["actor/rollout_is_weight"] = correction.mean().item()
        truncated = (correction >= method.rollout_is_threshold).float().mean().item()
        metrics["actor/rollout_is_truncated_fraction"] = truncated
    if student.top_k_mass:
        metrics["student/top_k_mass"] = torch.cat(list(student.top_k_mass.values())).mean().item()
    if teacher.entropy:
        metrics["teacher/entropy"] = torch.cat(list(teacher.entropy.values())).mean().item()
    if teacher.top_k_mass:
        metrics["teacher/top_k_mass"] = torch.cat(list(teacher.top_k_mass.values())).mean().item()
    weights = torch.cat([row.divergence_weight for row in constants.values()])
    if len(weights):
        metrics |= weight_metrics(weights)
    return metrics


def group_record(step: int, questions: Sequence[Question], rollouts: Rollouts, routes: Routes) -> dict[str, Any]:
    """One group of a step with its routing, for table 6: the first with correct and wrong rollouts, else the first.

    ``sibling`` is the index within the group of the rollout shown to the self-teacher, None for rollouts that it does
    not score; ``advantage`` is that of the whole group, before any routing.
    """
    rewards = rollouts.rewards.view(len(questions), -1)
    group = next((i for i, found in enumerate(rewards) if found.min() < found.max()), 0)
    first = group * rewards.shape[1]
    advantages = group_advantages(rollouts.rewards, rollouts.question)
    branches = routes.names
    siblings = routes.shown_sibling.where(routes.scored_by_teacher, NO_SIBLING).tolist()
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
                "branch": branches[row],
                "sibling": None if siblings[row] == NO_SIBLING else siblings[row] - first,
                "advantage": advantages[row].item(),
                "response_length": len(rollouts.responses[row]),
                "response": shortened(rollouts.texts[row], LOGGED_CHARACTERS),
            }
            for row in range(first, first + rewards.shape[1])
        ],
    }
