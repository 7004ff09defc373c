"""Runs of a method with a second phase: the limits are the methods of its phases, and a resumed run is exact."""

from __future__ import annotations

import pytest
import torch
from tiny import hash_reward
from tiny_runs import assert_same, trained


@pytest.fixture(autouse=True)
def _rewards(monkeypatch):
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)


def test_a_switch_before_the_first_step_is_the_second_phase_bit_for_bit(tmp_path):
    found = trained(tmp_path / "phased", "sdpo_then_grpo", {"first_phase_steps": 0})
    assert_same(found, trained(tmp_path / "alone", "grpo_at_srpo_settings"))


@pytest.mark.parametrize(("name", "first"), [("sdpo_then_grpo", "sdpo"), ("srpo_then_grpo", "srpo")])
def test_a_switch_after_the_last_step_is_the_first_phase_bit_for_bit(name, first, tmp_path):
    found = trained(tmp_path / "phased", name, {"first_phase_steps": 4})
    # the branch of the phase that does not come has a share and a loss of 0
    but = {"loss/grpo", "routing/grpo_fraction"} if first == "sdpo" else set()
    assert_same(found, trained(tmp_path / "alone", first), but)


def test_a_run_that_is_resumed_across_the_switch_is_the_uninterrupted_one(tmp_path):
    changes = {"first_phase_steps": 2}
    whole = trained(tmp_path / "whole", "sdpo_then_grpo", changes)
    parts = trained(tmp_path / "parts", "sdpo_then_grpo", changes, steps=(1, 2, 3, 4))
    assert_same(whole, parts)
    events = whole[0]
    assert [event["metrics"]["routing/sdpo_fraction"] > 0 for event in events] == [True, True, False, False]
    assert [event["metrics"]["routing/grpo_fraction"] for event in events[2:]] == [1, 1]
    assert ["teacher" in event["phase_tokens"] for event in events] == [True, True, False, False]


@pytest.mark.parametrize("steps", [0, 1])
def test_rlsd_whose_lambda_is_0_from_the_first_step_on_is_grpo_bit_for_bit(steps, tmp_path):
    events, weights = trained(tmp_path / "decaying", "rlsd_decay", {"first_phase_steps": steps})
    usual, plain = trained(tmp_path / "alone", "grpo_at_srpo_settings")
    assert all(torch.equal(tensor, plain[name]) for name, tensor in weights.items())
    for event, other in zip(events, usual, strict=True):
        assert event["metrics"]["loss/total"] == other["metrics"]["loss/total"]
        assert ("teacher" in event["phase_tokens"]) == (event["step"] <= steps)


def test_a_step_of_a_decaying_rlsd_is_one_of_rlsd_with_its_lambda(tmp_path):
    """The learning rate of the first step is 0, so the second begins with the same weights for any lambda."""
    changes = {"first_phase_steps": 4, "rlsd_lambda": 0.8, "rlsd_clip": 0.9}
    found, _ = trained(tmp_path / "decaying", "rlsd_decay", changes)
    for step, share in ((1, 0.6), (2, 0.4)):
        constant = {"rlsd_lambda": share, "rlsd_clip": 0.9}
        other = trained(tmp_path / f"{step}", "rlsd", constant, steps=(2,))[0]
        mine, its = (events[step - 1]["metrics"] for events in (found, other))
        assert mine["loss/rlsd"] == pytest.approx(its["loss/rlsd"], abs=1e-9)
        assert mine["actor/grad_norm"] == pytest.approx(its["actor/grad_norm"], rel=1e-6)
    full = trained(tmp_path / "full", "rlsd", {"rlsd_lambda": 0.8, "rlsd_clip": 0.9}, steps=(2,))[0]
    differs = [event["metrics"]["actor/grad_norm"] for event in (found[1], full[1])]
    assert differs[0] != pytest.approx(differs[1], rel=1e-4)


def test_a_decaying_rlsd_that_is_resumed_is_the_uninterrupted_one(tmp_path):
    changes = {"first_phase_steps": 3}
    whole = trained(tmp_path / "whole", "rlsd_decay", changes)
    assert_same(whole, trained(tmp_path / "parts", "rlsd_decay", changes, steps=(1, 2, 3, 4)))
