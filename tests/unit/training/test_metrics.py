"""What a step logs: metrics by hand, and the group that table 6 shows."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from batch import LENGTHS, REWARDS, rollouts_of, targets_of
from helpers import load_method

from srpo.algorithm.routing import route
from srpo.benchmarks.splits import Question
from srpo.training.metrics import group_record, rollout_metrics, teacher_metrics


def test_metrics_of_a_batch_by_hand():
    rollouts = rollouts_of(REWARDS, 4, LENGTHS)
    routes = route(rollouts.rewards, rollouts.question, load_method("srpo").routing)
    assert rollout_metrics(rollouts, routes) == pytest.approx(
        {
            "reward/mean": 7 / 16,
            "response_length/mean": 2.5,
            "response_length/truncated_fraction": 0.25,
            "routing/grpo_fraction": 11 / 16,
            "routing/sdpo_fraction": 5 / 16,
            "routing/mix_fraction": 0,
            "routing/anchored_fraction": 0,
            "routing/dropped_fraction": 0,
            "routing/correct_fraction": 7 / 16,
            "routing/sibling_available_fraction": 11 / 16,
            "routing/all_wrong_groups": 0.25,
            "routing/all_correct_groups": 0.25,
        }
    )


def test_metrics_of_the_teacher_are_means_over_tokens():
    found, _, _, teacher = targets_of("srpo", 2)
    metrics = teacher_metrics(found, teacher)
    entropies = [h for row in teacher.entropy.values() for h in row.tolist()]
    assert metrics["teacher/entropy"] == pytest.approx(sum(entropies) / len(entropies))
    assert metrics["weights/max"] == max(w for row in found.values() for w in row.divergence_weight.tolist())
    assert "copying/teacher" not in metrics
    found, _, _, teacher = targets_of("grpo", 2)
    assert teacher_metrics(found, teacher) == {}
    found, _, _, teacher = targets_of("advantage_mix", 2)
    assert teacher_metrics(found, teacher).keys() == {"teacher/entropy"}


def test_the_teacher_copies_if_the_token_to_copy_is_its_most_likely_one():
    found, _, _, teacher = targets_of("srpo", 2)
    found[3] = dataclasses.replace(found[3], copied=torch.tensor([-1, 5, -1, -1]))
    found[9] = dataclasses.replace(found[9], copied=torch.tensor([-1, -1, 6]))
    found[11] = dataclasses.replace(found[11], copied=torch.tensor([7, -1, -1, -1]))
    teacher.argmax_ids[3] = torch.tensor([0, 5, 0, 0])
    teacher.argmax_ids[9] = torch.tensor([6, 6, 0])
    teacher.argmax_ids[11] = torch.tensor([7, 0, 0, 0])
    assert teacher_metrics(found, teacher)["copying/teacher"] == pytest.approx(2 / 3)


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
    routes = route(rollouts.rewards, rollouts.question, load_method(name).routing)
    record = json.loads(json.dumps(group_record(15, QUESTIONS, rollouts, routes), allow_nan=False))
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
