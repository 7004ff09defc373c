"""Runs whose teacher is shown feedback or the ground truth: its prompts by hand, and the methods that they extend."""

from __future__ import annotations

import pytest
import torch
from tiny import hash_reward
from tiny_runs import assert_same, trained

from srpo.training import step

NOTHING_SAID = {"routing/feedback_shown_fraction"}


@pytest.fixture
def shown(monkeypatch) -> list[tuple]:
    """What the teacher's prompts have shown: solution and feedback."""
    seen, prompt = [], step.teacher_prompt_ids

    def record(tokenizer, messages, solution, longest, feedback=None):
        seen.append((solution, feedback))
        return prompt(tokenizer, messages, solution, longest, feedback)

    monkeypatch.setattr(step, "teacher_prompt_ids", record)
    return seen


def test_without_feedback_it_is_sdpo_bit_for_bit(tmp_path, monkeypatch, shown):
    monkeypatch.setattr(step, "compute_reward", hash_reward)
    monkeypatch.setattr(step, "judge", lambda *each: (hash_reward(*each), None))
    found, usual = (trained(tmp_path / name, name, steps=(3,)) for name in ("sdpo_feedback", "sdpo"))
    assert {feedback for _, feedback in shown} == {None}
    assert found[0][0]["metrics"]["routing/feedback_shown_fraction"] == 0
    assert_same(found, usual, NOTHING_SAID)


@pytest.mark.parametrize("feedback", ["without_solution", "always"])
def test_feedback_is_of_the_rollouts_own_attempt(feedback, tmp_path, monkeypatch, shown):
    """In each step the first rollout of the first two groups is right; the others are wrong, and all are told why."""
    asked: list[str] = []

    def judge(_kind, text, _truth):
        asked.append(text)
        right = (len(asked) - 1) % 16 in (0, 4)
        return float(right), None if right else f"no: {text}"

    monkeypatch.setattr(step, "judge", judge)
    context = {"feedback": feedback}
    events, _ = trained(tmp_path, "sdpo_feedback", {"teacher_context": context}, steps=(1,))
    own = [(None, f"no: {text}") for text in asked[8:]]
    siblings = [
        (asked[first], f"no: {text}" if feedback == "always" else None)
        for first in (0, 4)
        for text in asked[first + 1 : first + 4]
    ]
    assert sorted(map(str, set(shown))) == sorted(map(str, {*own, *siblings}))
    metrics = events[0]["metrics"]
    assert metrics["routing/sdpo_fraction"] == 14 / 16
    assert metrics["routing/feedback_shown_fraction"] == (8 if feedback == "without_solution" else 14) / 16


def test_groups_without_a_success_are_shown_the_ground_truth(tmp_path, monkeypatch, shown):
    """I-SDPO: of four groups, the last two are all wrong."""
    asked: list[str] = []
    monkeypatch.setattr(
        step, "compute_reward", lambda _, text, truth: float(asked.append(truth) or (len(asked) - 1) % 16 in (0, 4))
    )
    events, _ = trained(tmp_path, "i_sdpo", steps=(1,))
    assert sorted(shown) == sorted((f"<answer> {truth}</answer>", None) for truth in (asked[8], asked[12]))
    assert events[0]["metrics"]["routing/sdpo_fraction"] == 0.5


def test_i_sdpo_is_grpo_while_every_group_has_a_success(tmp_path, monkeypatch):
    """At SRPO's rate and updates, bit for bit."""
    rewards = {}

    def first_of_each(name):
        rewards[name] = 0

        def reward(*_):
            rewards[name] += 1
            return float(rewards[name] % 4 == 1)

        return reward

    weights = []
    for name in ("i_sdpo", "grpo_at_srpo_settings"):
        monkeypatch.setattr(step, "compute_reward", first_of_each(name))
        weights.append(trained(tmp_path / name, name, steps=(3,))[1])
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())
