"""The metrics that a step logs, and the record of one group with its routing."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import torch

from srpo.algorithm.advantage import group_advantages
from srpo.algorithm.branches import logged_branches
from srpo.algorithm.diagnostics import is_repetitive, weight_metrics
from srpo.algorithm.method import Method
from srpo.algorithm.rollouts import Rollouts, TeacherLogProbs
from srpo.algorithm.routing import NO_SIBLING, Routes
from srpo.algorithm.targets import Targets
from srpo.ground.text import shortened
from srpo.training.batch import Batch
from srpo.training.success_buffer import Success

LOGGED_CHARACTERS = 1000
"""Maximum characters of a question or response in the log of groups."""


def step_metrics(method: Method, number: int, batch: Batch) -> dict[str, float]:
    """What is known of a step before its passes."""
    metrics = rollout_metrics(method, batch.rollouts, batch.routes) | response_metrics(batch.rollouts)
    if method.at(number).routing.distils:
        mini_batches = len(batch.questions) // method.mini_batch_questions
        metrics |= distillation_metrics(batch.routes, batch.mini_batches, mini_batches)
    if method.success_buffer:
        metrics |= buffer_metrics(number, batch.routes, batch.earlier)
    return metrics


def rollout_metrics(method: Method, rollouts: Rollouts, routes: Routes) -> dict[str, float]:
    """Rewards, lengths and routing of a step (figures 4a and 5)."""
    groups = rollouts.rewards.view(int(rollouts.question.max()) + 1, -1).mean(1)
    lengths = torch.tensor([len(response) for response in rollouts.responses], dtype=torch.float32)
    logged = logged_branches(method.branches)
    values = {
        "reward/mean": rollouts.rewards.mean(),
        "response_length/mean": lengths.mean(),
        "response_length/max": lengths.max(),
        "response_length/truncated_fraction": rollouts.truncated.float().mean(),
        **{f"routing/{name}_fraction": routes.takes(name).float().mean() for name in logged},
        "routing/correct_fraction": routes.correct.float().mean(),
        "routing/sibling_available_fraction": routes.sibling_available.float().mean(),
        "routing/all_wrong_groups": (groups == 0).float().mean(),
        "routing/all_correct_groups": (groups == 1).float().mean(),
    }
    return {name: value.item() for name, value in values.items()}


def buffer_metrics(step: int, routes: Routes, earlier: Mapping[int, Success]) -> dict[str, float]:
    """Share of the rollouts whose teacher is shown a response of an earlier step, and how many steps old these are."""
    shown = routes.shown_earlier
    metrics = {"buffer/served_fraction": shown.float().mean().item()}
    if ages := [step - earlier[row].step for row in shown.nonzero().flatten().tolist()]:
        metrics["buffer/age"] = sum(ages) / len(ages)
    return metrics


def response_metrics(rollouts: Rollouts) -> dict[str, float]:
    """Signs of a collapse in the responses of a step: entropy, format, repetition.

    ``student/entropy`` is the mean of -log p(y_t) over all sampled tokens, in nats: an unbiased estimate of the entropy
    of the distribution that they were sampled from, which costs no pass.
    """
    known = [found for found in rollouts.in_format if found is not None]
    metrics = {
        "student/entropy": -torch.cat(rollouts.rollout_log_probs).double().mean().item(),
        "response/repeated_fraction": fmean(is_repetitive(response.tolist()) for response in rollouts.responses),
    }
    return metrics | ({"response/format_fraction": fmean(known)} if known else {})


def distillation_metrics(routes: Routes, batches: Sequence[Sequence[int]], mini_batches: int) -> dict[str, float]:
    """The share of a step's mini-batches that have no distilled token.

    Args:
        batches: rollouts of each mini-batch that has an update.
        mini_batches: how many the step has. ``batches`` lacks a mini-batch whose rollouts are all dropped.
    """
    distilled = routes.distilled.tolist()
    there = sum(any(distilled[row] for row in rows) for rows in batches)
    return {"routing/mini_batches_without_distillation": 1 - there / mini_batches}


def teacher_metrics(targets: Mapping[int, Targets], teacher: TeacherLogProbs) -> dict[str, float]:
    """What is known of the teacher before the update: its entropy, and the weights.

    All other metrics of tokens are ratios of the loss's sums (:func:`srpo.policy.interface.update_metrics`).
    """
    metrics = {}
    if teacher.entropy:
        metrics["teacher/entropy"] = torch.cat(list(teacher.entropy.values())).mean().item()
    distilled = {row: own for row, own in targets.items() if len(own.divergence_weight)}
    if distilled:
        metrics |= weight_metrics(torch.cat([own.divergence_weight for own in distilled.values()]))
    return metrics


def group_record(step: int, batch: Batch) -> dict[str, Any]:
    """One group of a step with its routing, for table 6: the first with correct and wrong rollouts, else the first.

    ``sibling`` is the index within the group of the rollout shown to the self-teacher, None if it is shown none;
    ``advantage`` belongs to the whole group, before any routing. A rollout whose teacher is shown a response of an
    earlier step also has the number of that step; one that is shown the ground truth says so.
    """
    rollouts, routes, earlier = batch.rollouts, batch.routes, batch.earlier
    rewards = rollouts.rewards.view(len(batch.questions), -1)
    group = next((i for i, found in enumerate(rewards) if found.min() < found.max()), 0)
    first = group * rewards.shape[1]
    advantages = group_advantages(rollouts.rewards, rollouts.question)
    branches = routes.names
    siblings = routes.shown_sibling.where(routes.uses_teacher, NO_SIBLING).tolist()
    from_buffer, truth = routes.shown_earlier.tolist(), routes.shown_truth.tolist()
    question = batch.questions[group]
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
            | ({"earlier_step": earlier[row].step} if from_buffer[row] else {})
            | ({"ground_truth_shown": True} if truth[row] else {})
            for row in range(first, first + rewards.shape[1])
        ],
    }
