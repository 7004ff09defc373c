"""The metrics that a step logs, and the record of one group with its routing."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from srpo.algorithm.advantage import group_advantages
from srpo.algorithm.branches import BRANCHES
from srpo.algorithm.diagnostics import weight_metrics
from srpo.algorithm.rollouts import Rollouts, TeacherLogProbs
from srpo.algorithm.routing import NO_SIBLING, Routes
from srpo.algorithm.targets import Targets
from srpo.benchmarks.splits import Question
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


def teacher_metrics(targets: Mapping[int, Targets], teacher: TeacherLogProbs) -> dict[str, float]:
    """What is known of the teacher before the update: its entropy, the weights, and how often it would copy.

    All other metrics of tokens are ratios of the loss's sums (:func:`srpo.policy.outputs.update_metrics`).
    """
    metrics = {}
    if teacher.entropy:
        metrics["teacher/entropy"] = torch.cat(list(teacher.entropy.values())).mean().item()
    distilled = {row: own for row, own in targets.items() if len(own.divergence_weight)}
    if distilled:
        metrics |= weight_metrics(torch.cat([own.divergence_weight for own in distilled.values()]))
        copied = torch.cat([own.copied for own in distilled.values()])
        argmax = torch.cat([teacher.argmax_ids[row] for row in distilled])
        if (asked := copied >= 0).any():
            metrics["copying/teacher"] = (argmax == copied)[asked].double().mean().item()
    return metrics


def group_record(step: int, questions: Sequence[Question], rollouts: Rollouts, routes: Routes) -> dict[str, Any]:
    """One group of a step with its routing, for table 6: the first with correct and wrong rollouts, else the first.

    ``sibling`` is the index within the group of the rollout shown to the self-teacher, None if it is shown none;
    ``advantage`` is that of the whole group, before any routing.
    """
    rewards = rollouts.rewards.view(len(questions), -1)
    group = next((i for i, found in enumerate(rewards) if found.min() < found.max()), 0)
    first = group * rewards.shape[1]
    advantages = group_advantages(rollouts.rewards, rollouts.question)
    branches = routes.names
    siblings = routes.shown_sibling.where(routes.uses_teacher, NO_SIBLING).tolist()
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
