"""What a step logs: metrics by hand, and the group that table 6 shows."""

import dataclasses
import json

import pytest
import torch
from batch import LENGTHS, REWARDS, rollouts_of, targets_of
from helpers import load_method

from srpo.algorithm.routing import route
from srpo.questions.splits import Question
from srpo.training.batch import Batch
from srpo.training.metrics import (
    distillation_metrics,
    group_record,
    response_metrics,
    rollout_metrics,
    teacher_metrics,
)


def test_metrics_of_a_batch_by_hand():
    rollouts = rollouts_of(REWARDS, 4, LENGTHS)
    method = load_method("srpo")
    routes = route(rollouts.correct, rollouts.question, method.routing)
    expected = {
        "reward/mean": 7 / 16,
        "response_length/mean": 2.5,
        "response_length/max": max(LENGTHS),
        "response_length/truncated_fraction": 0.25,
        "routing/grpo_fraction": 11 / 16,
        "routing/sdpo_fraction": 5 / 16,
        "routing/dropped_fraction": 0,
        "routing/correct_fraction": 7 / 16,
        "routing/sibling_available_fraction": 11 / 16,
        "routing/all_wrong_groups": 0.25,
        "routing/all_correct_groups": 0.25,
    }
    assert rollout_metrics(method, rollouts, routes) == pytest.approx(expected)


def test_a_branch_is_logged_by_methods_that_use_it_only():
    rollouts = rollouts_of(REWARDS, 4, LENGTHS)
    for name in ("rlsd", "grpo"):
        method = load_method(name)
        metrics = rollout_metrics(method, rollouts, route(rollouts.correct, rollouts.question, method.routing))
        logged = {key: metrics.get(f"routing/{key}_fraction") for key in ("rlsd", "grpo")}
        assert {key: value for key, value in logged.items() if value is not None} == {name: 1.0}


def test_metrics_of_the_teacher_are_means_over_tokens():
    found, _, _, teacher = targets_of("srpo", 2)
    metrics = teacher_metrics(found, teacher)
    entropies = [h for row in teacher.entropy.values() for h in row.tolist()]
    assert metrics["teacher/entropy"] == pytest.approx(sum(entropies) / len(entropies))
    assert metrics["weights/max"] == max(w for row in found.values() for w in row.divergence_weight.tolist())
    found, _, _, teacher = targets_of("grpo", 2)
    assert teacher_metrics(found, teacher) == {}
    found, _, _, teacher = targets_of("advantage_mix", 2)
    assert teacher_metrics(found, teacher).keys() == {"teacher/entropy"}


# ---------------------------------------------------------------- the logged group

QUESTIONS = [
    Question(
        index=70 + i,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What is {i}?"}],
        ground_truth=f"It is {i}",
        reward="multiple_choice",
        data_source="made up",
    )
    for i in range(3)
]


def record_of(name: str, rewards: list[float]):
    rollouts = rollouts_of(rewards, 4, [1, 3, 2, 4] * 3)
    rollouts = dataclasses.replace(rollouts, texts=[f"text {i}" for i in range(12)])
    routes = route(rollouts.correct, rollouts.question, load_method(name).routing)
    record = json.loads(
        json.dumps(group_record(15, Batch(QUESTIONS, rollouts, routes, [], None, None, {})), allow_nan=False)
    )
    return record, record.pop("rollouts")


def test_the_logged_group_is_the_first_with_right_and_wrong_rollouts_by_hand():
    record, rollouts = record_of("srpo", [0, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0])
    assert record == {"step": 15, "question": 71, "prompt": "What is 1?", "ground_truth": "It is 1"}
    keys = ["reward", "truncated", "branch", "sibling", "advantage", "response_length", "response"]
    assert [tuple(rollout[key] for key in keys) for rollout in rollouts] == [
        (0.0, False, "sdpo", 1, -0.5, 1, "text 4"),
        (1.0, False, "grpo", None, 0.5, 3, "text 5"),
        (0.0, False, "sdpo", 1, -0.5, 2, "text 6"),
        (1.0, True, "grpo", None, 0.5, 4, "text 7"),
    ]
    assert [list(rollout) for rollout in rollouts] == [keys] * 4


@pytest.mark.parametrize(
    ("name", "branches", "siblings"),
    [
        # every rollout that needs the self-teacher is shown the first correct one of the others
        ("sdpo", ["sdpo"] * 4, [1, 3, 1, 1]),
        ("advantage_mix", ["mix"] * 4, [1, 3, 1, 1]),
        ("grpo", ["grpo"] * 4, [None] * 4),
        ("sdpo_failed_only", ["sdpo", "dropped", "sdpo", "dropped"], [1, None, 1, None]),
        ("sdpo_correct_only", ["dropped", "sdpo", "dropped", "sdpo"], [None, 3, None, 1]),
    ],
)
def test_the_logged_group_names_branch_and_sibling_shown(name, branches, siblings):
    _, rollouts = record_of(name, [0, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0])
    assert [rollout["branch"] for rollout in rollouts] == branches
    assert [rollout["sibling"] for rollout in rollouts] == siblings


def test_without_a_mixed_group_the_first_is_logged():
    record, rollouts = record_of("srpo", [0] * 4 + [1] * 8)
    assert record["question"] == 70
    assert {(r["branch"], r["sibling"], r["advantage"]) for r in rollouts} == {("grpo", None, 0.0)}


# ---------------------------------------------------------------- signs of a collapse


def test_signs_of_a_collapse_by_hand():
    """Two questions, two rollouts each: two of four in the format, one that repeats itself."""
    responses = [torch.tensor(ids) for ids in ([1, 2, 3, 4, 5], [7, 8, 9] * 4, [1], [5, 5])]
    log_probs = [-torch.rand(len(ids), generator=torch.Generator().manual_seed(i)) for i, ids in enumerate(responses)]
    formats = [True, False, True, False]
    rollouts = dataclasses.replace(
        rollouts_of([0.0, 0, 1, 0], 2), responses=responses, in_format=formats, rollout_log_probs=log_probs
    )
    metrics = response_metrics(rollouts)
    numbers = [float(value) for row in log_probs for value in row]
    assert metrics["student/entropy"] == pytest.approx(-sum(numbers) / 20, rel=1e-12)
    assert metrics["response/format_fraction"] == 0.5
    assert metrics["response/repeated_fraction"] == 0.25


def test_formats_that_nobody_knows_do_not_count():
    rollouts = rollouts_of([0.0, 1, 1, 0], 2)
    half = dataclasses.replace(rollouts, in_format=[None, None, False, True])
    assert response_metrics(half)["response/format_fraction"] == 0.5
    assert "response/format_fraction" not in response_metrics(rollouts)


def test_the_entropy_is_estimated_without_bias():
    """Sampled from known distributions: the mean of -log p against the exact entropy, in float64."""
    generator = torch.Generator().manual_seed(3)
    logits = 3 * torch.randn(4, 50, generator=generator, dtype=torch.float64)
    log_p = logits.log_softmax(-1)
    exact = -(log_p.exp() * log_p).sum(-1).mean().item()
    sampled = log_p.exp().multinomial(20_000, replacement=True, generator=generator)
    rows = [log_p[i, ids].float() for i, ids in enumerate(sampled)]
    rollouts = dataclasses.replace(rollouts_of([0.0] * 4, 2), responses=[*sampled], rollout_log_probs=rows)
    found = response_metrics(rollouts)["student/entropy"]
    error = torch.cat(rows).double().std().item() / 80_000**0.5
    assert abs(found - exact) < 4 * error < 0.03


@pytest.mark.parametrize(("name", "questions", "share"), [("srpo", 1, 0.5), ("srpo", 2, 0.0), ("sdpo", 1, 0.25)])
def test_mini_batches_without_a_distilled_token(name, questions, share):
    """Of the four groups one is all wrong and one all correct, where SRPO distils nothing, SDPO the correct one."""
    found, routes, _, _ = targets_of(name, questions)
    batches = [[row for row in range(16) if row // 4 // questions == batch and row in found] for batch in range(4)]
    metrics = distillation_metrics(routes, [rows for rows in batches if rows], 4 // questions)
    assert metrics == {"routing/mini_batches_without_distillation": share}
