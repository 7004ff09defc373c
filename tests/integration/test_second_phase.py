"""Runs of a method with a second phase: the limits are the methods of its phases, and a resumed run is exact."""

import pytest
from tiny import hash_reward
from tiny_runs import assert_same, trained


@pytest.fixture(autouse=True)
def _rewards(monkeypatch):
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)


def test_a_switch_before_the_first_step_is_the_second_phase_bit_for_bit(tmp_path):
    found = trained(tmp_path / "phased", "sdpo_then_grpo", {"first_phase_steps": 0})
    assert_same(found, trained(tmp_path / "alone", "grpo_at_srpo_settings"))


def test_a_switch_after_the_last_step_is_the_first_phase_bit_for_bit(tmp_path):
    found = trained(tmp_path / "phased", "srpo_then_grpo", {"first_phase_steps": 4})
    assert_same(found, trained(tmp_path / "alone", "srpo"))


def test_a_run_that_is_resumed_across_the_switch_is_the_uninterrupted_one(tmp_path):
    changes = {"first_phase_steps": 2}
    whole = trained(tmp_path / "whole", "sdpo_then_grpo", changes)
    parts = trained(tmp_path / "parts", "sdpo_then_grpo", changes, steps=(1, 2, 3, 4))
    assert_same(whole, parts)
    events = whole[0]
    assert [event["metrics"]["routing/sdpo_fraction"] > 0 for event in events] == [True, True, False, False]
    assert [event["metrics"]["routing/grpo_fraction"] for event in events[2:]] == [1, 1]
    assert ["teacher" in event["phase_tokens"] for event in events] == [True, True, False, False]
