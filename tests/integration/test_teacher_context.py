"""I-SDPO, whose teacher is shown the ground truth: its prompts by hand, and the method that it is while it is not."""

import torch
from tiny_runs import trained

from srpo.training import step


def test_groups_without_a_success_are_shown_the_ground_truth(tmp_path, monkeypatch):
    """Of four groups, the last two are all wrong."""
    asked: list[str] = []
    shown, prompt = [], step.teacher_prompt_ids
    monkeypatch.setattr(step, "teacher_prompt_ids", lambda *given: shown.append(given[2]) or prompt(*given))
    monkeypatch.setattr(
        step, "compute_reward", lambda _, text, truth: float(asked.append(truth) or (len(asked) - 1) % 16 in (0, 4))
    )
    events, _ = trained(tmp_path, "i_sdpo", steps=(1,))
    assert sorted(shown) == sorted(f"<answer> {truth}</answer>" for truth in (asked[8], asked[12]))
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
