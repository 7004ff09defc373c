"""Runs that drop groups: what replaces them, in which order, at which cost, and what is left if nothing does."""

from __future__ import annotations

import itertools

import pytest
import torch
from safetensors.torch import load_file
from tiny import hash_reward
from tiny_runs import assert_same, trained

from srpo.training import questions
from srpo.training import step as steps

METHODS = {"grpo_filter_groups": "grpo_at_srpo_settings", "srpo_filter_groups": "srpo"}
OWN = {f"filter_groups/{name}" for name in ("gen_batches", "dropped_groups", "missing_groups")}


def counts(event: dict) -> list[float]:
    """Generation batches, dropped groups, missing groups of a step."""
    return [event["metrics"][f"filter_groups/{name}"] for name in ("gen_batches", "dropped_groups", "missing_groups")]


@pytest.fixture
def asked(monkeypatch) -> list[list[int]]:
    """The questions of each call of the engine."""
    found: list[list[int]] = []
    generate = steps.Step.generate

    def noting(self, questions):
        found.append([question.index for question in questions])
        return generate(self, questions)

    monkeypatch.setattr(steps.Step, "generate", noting)
    return found


def reward_by_question(monkeypatch, wrong=(), right=()) -> None:
    """Questions of which every rollout is wrong, or right; of the others every second one is."""
    generate = steps.Step.generate

    def rewarding(self, questions):
        rewards = iter(
            float(question.index in right or (question.index not in wrong and sample % 2))
            for question in questions
            for sample in range(4)
        )
        with monkeypatch.context() as patch:
            patch.setattr(steps, "compute_reward", lambda *_: next(rewards))
            return generate(self, questions)

    monkeypatch.setattr(steps.Step, "generate", rewarding)


@pytest.mark.parametrize(("method", "usual"), METHODS.items())
def test_a_run_without_a_group_to_drop_is_that_without_the_rule_bit_for_bit(method, usual, tmp_path, monkeypatch):
    reward_by_question(monkeypatch)
    found, plain = trained(tmp_path / "filtered", method), trained(tmp_path / "plain", usual)
    assert [counts(event) for event in found[0]] == [[1, 0, 0]] * 4
    assert_same(found, plain, OWN)


def first_batch(tmp_path, asked) -> list[int]:
    """The questions of a run's first step."""
    trained(tmp_path / "look", "grpo_at_srpo_settings", steps=(1,))
    (questions,) = asked
    asked.clear()
    return questions


@pytest.mark.parametrize(("method", "usual"), METHODS.items())
def test_a_step_is_one_of_the_questions_that_it_keeps(method, usual, tmp_path, monkeypatch, asked):
    """Of 4 questions, the 2nd is always wrong and the 4th always right; so is the first that replaces one."""
    a, b, c, d = first_batch(tmp_path, asked)
    order = [*questions.question_order(1, 40, 4, 1)]
    e, f, g = order[4:7]
    reward_by_question(monkeypatch, wrong={b, e}, right={d})
    events, weights = trained(tmp_path / "filtered", method, steps=(1, 2))
    filtered = [*asked]
    if method == "grpo_filter_groups":
        kept, expected, batches = [a, c, f, g], [3, 3, 0], [[a, b, c, d], [e, f], [g]]
    else:
        kept, expected, batches = [a, c, d, f], [3, 2, 0], [[a, b, c, d], [e], [f]]
    assert filtered[: len(batches)] == batches
    assert counts(events[0]) == expected
    metrics = events[0]["metrics"]
    groups = sum(map(len, batches))
    assert metrics["routing/dropped_fraction"] == pytest.approx(expected[1] / groups)
    assert metrics["routing/all_wrong_groups"] == pytest.approx(2 / groups)
    assert metrics["reward/mean"] == pytest.approx(((groups - 3) * 0.5 + 1) / groups)

    # the same step of a run that asks the kept questions at once, and then goes on with the same second step
    asked.clear()
    second = questions_kept(filtered[len(batches) :], wrong={b, e}, right={d} if "grpo" in method else set())
    monkeypatch.setattr(questions, "questions_of_step", lambda step, *_: [kept, second][step - 1])
    plain, plain_weights = trained(tmp_path / "plain", usual, steps=(1, 2))
    assert asked == [kept, second]
    for mine, other in zip(events, plain, strict=True):
        for name in ("actor/grad_norm", "loss/total"):
            assert mine["metrics"][name] == pytest.approx(other["metrics"][name], rel=1e-5)
        assert mine["phase_tokens"]["update"] == other["phase_tokens"]["update"]
    for name, tensor in weights.items():
        torch.testing.assert_close(tensor, plain_weights[name], rtol=0, atol=1e-6)
    generated = [event["phase_tokens"]["generate"] for event in (events[0], plain[0])]
    assert generated[0] > generated[1]
    assert events[0]["phase_seconds"]["generate"] > plain[0]["phase_seconds"]["generate"]


def questions_kept(batches, wrong, right) -> list[int]:
    return [question for batch in batches for question in batch if question not in wrong | right]


@pytest.mark.parametrize("method", METHODS)
def test_a_resumed_run_draws_the_questions_of_the_uninterrupted_one(method, tmp_path, monkeypatch, asked):
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    whole = trained(tmp_path / "whole", method)
    drawn = [*asked]
    asked.clear()
    parts = trained(tmp_path / "parts", method, steps=(1, 2, 3, 4))
    assert asked == drawn
    assert_same(whole, parts)
    assert sum(counts(event)[1] for event in whole[0]) > 0
    assert len(drawn) == sum(counts(event)[0] for event in whole[0]) > 4


@pytest.mark.parametrize("bound", [1, 2, 5])
def test_a_step_trains_on_what_it_has_when_the_bound_is_reached(bound, tmp_path, monkeypatch, asked):
    """Only the first question of the first step is ever answered right; with it alone goes the denominator."""
    first = first_batch(tmp_path, asked)[0]
    reward_by_question(monkeypatch, wrong={*range(40)} - {first})
    changes = {"filter_groups": {"drop": "one_reward", "max_num_gen_batches": bound}}
    events, _ = trained(tmp_path / "run", "grpo_filter_groups", changes, steps=(1,))
    assert counts(events[0]) == [bound, 3 * bound, 3]
    assert [len(batch) for batch in asked] == [4, *[3] * (bound - 1)]
    assert len({*itertools.chain(*asked)}) == 1 + 3 * bound  # none twice
    assert events[0]["metrics"]["actor/grad_norm"] > 0
    assert events[0]["phase_tokens"]["update"] < events[0]["phase_tokens"]["generate"]


def test_a_step_without_a_group_to_keep_changes_nothing(tmp_path, monkeypatch, asked):
    """It has no update, and asks no question twice though the bound would allow it: the split has 40."""
    reward_by_question(monkeypatch, wrong={*range(40)})
    changes = {"filter_groups": {"drop": "all_wrong", "max_num_gen_batches": 20}}
    events, weights = trained(tmp_path, "srpo_filter_groups", changes, steps=(2,))
    (base,) = tmp_path.rglob("models/miniature-tiny/*.safetensors")
    assert [counts(event) for event in events] == [[10, 40, 4]] * 2
    assert all(sorted(itertools.chain(*asked[i : i + 10])) == [*range(40)] for i in (0, 10))
    assert "update" not in events[0]["phase_tokens"]
    assert events[0]["metrics"]["routing/dropped_fraction"] == 1
    before = load_file(base)
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights.items())
