"""Group advantages: worked by hand, against verl, and under permutations."""

import numpy as np
import pytest
import torch
from helpers import load_method
from hypothesis import given
from hypothesis import strategies as st
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

from srpo.algorithm.advantage import (
    anchored_advantages,
    group_advantages,
    mixed_advantages,
    reweighted_advantages,
)
from srpo.algorithm.method import Method

MIX = load_method("advantage_mix", mix_lambda=0.9)


def anchored(kl_coef: float) -> Method:
    return load_method("grpo_with_anchor", kl_coef=kl_coef)


def advantages(rewards: list[float], groups: list[int]) -> list[float]:
    return group_advantages(torch.tensor(rewards, dtype=torch.float32), torch.tensor(groups)).tolist()


@st.composite
def batches(draw) -> tuple[list[float], list[int]]:
    """Groups of 2 to 6 rollouts with gaps in their ids, rows in any order."""
    sizes = draw(st.lists(st.integers(2, 6), min_size=1, max_size=5))
    groups = draw(st.permutations([7 * i + 3 for i, size in enumerate(sizes) for _ in range(size)]))
    rewards = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(groups), max_size=len(groups)))
    return rewards, list(groups)


def test_one_success_of_four():
    assert advantages([1, 0, 0, 0], [0] * 4) == [0.75, -0.25, -0.25, -0.25]


def test_no_division_by_the_standard_deviation():
    # with it, [1, 0] and [1, 0, 0, 0] would both have unit variance
    assert advantages([1, 0], [0, 0]) == [0.5, -0.5]
    assert advantages([0.5, 0.0], [0, 0]) == [0.25, -0.25]


def test_each_group_has_its_own_mean_wherever_its_rows_are():
    assert advantages([1, 1, 0, 0, 0, 1], [5, 2, 5, 2, 2, 2]) == [0.5, 0.5, -0.5, -0.5, -0.5, 0.5]


@pytest.mark.parametrize("size", range(2, 18))
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_equal_rewards_give_exactly_zero(size, reward):
    assert advantages([reward] * size, [0] * size) == [0.0] * size


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="group of one"):
        advantages([1, 0, 1], [0, 0, 1])


@given(batches())
def test_equals_verl_without_std(batch):
    rewards, groups = batch
    mask = torch.ones(len(rewards), 3)
    token_rewards = torch.zeros(len(rewards), 3)
    token_rewards[:, -1] = torch.tensor(rewards)
    expected, _ = compute_grpo_outcome_advantage(
        token_rewards, mask, np.array(groups, dtype=object), norm_adv_by_std_in_grpo=False
    )
    torch.testing.assert_close(torch.tensor(advantages(rewards, groups)), expected[:, 0])


def test_mix_by_hand():
    teacher, student = torch.tensor([-1.0, -3.0]), torch.tensor([-2.0, -0.5])
    mixed = mixed_advantages(MIX, torch.tensor([0.75, 0.75]), student, teacher)
    torch.testing.assert_close(mixed, torch.tensor([0.675 + 0.1, 0.675 - 0.25]))


def test_mix_without_a_teacher_scales_the_group_advantage():
    log_prob = torch.tensor([-2.0, -0.5])
    torch.testing.assert_close(
        mixed_advantages(MIX, torch.tensor([-0.25, -0.25]), log_prob, log_prob), torch.full((2,), -0.225)
    )


def test_mix_is_a_constant():
    student = torch.tensor([-2.0], requires_grad=True)
    teacher = torch.tensor([-1.0], requires_grad=True)
    assert not mixed_advantages(MIX, torch.tensor([1.0]), student, teacher).requires_grad


# ---------------------------------------------------------------- anchor


def test_penalty_by_hand():
    teacher, student = torch.tensor([-1.0, -3.0]), torch.tensor([-2.0, -0.5], requires_grad=True)
    penalised = anchored_advantages(anchored(0.1), torch.tensor([0.75, 0.75]), student, teacher)
    torch.testing.assert_close(penalised, torch.tensor([0.75 + 0.1, 0.75 - 0.25]))
    assert not penalised.requires_grad


def test_no_penalty_leaves_the_group_advantage():
    advantage = torch.tensor([0.25, -0.75])
    student, teacher = torch.tensor([-1.0, -9.0]), torch.tensor([-9.0, -1.0])
    assert anchored_advantages(anchored(0.0), advantage, student, teacher).equal(advantage)


def test_the_mean_penalty_is_the_kl_divergence():
    """The k1 estimate: its expectation over tokens of p is KL(p || q)."""
    p, q = torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).log_softmax(-1)
    penalties = -anchored_advantages(anchored(1.0), torch.zeros(7, dtype=torch.float64), p, q)
    torch.testing.assert_close(
        (p.exp() * penalties).sum(), torch.nn.functional.kl_div(q, p, reduction="sum", log_target=True)
    )


# ---------------------------------------------------------------- RLSD

RLSD = load_method("rlsd")
GROUP = [0.75, 0.75, -0.25, -0.25]  # 2 correct of 8
P, Q = torch.tensor([0.25, 0.5, 0.25, 0.5]).log(), torch.tensor([0.5, 0.25, 0.5, 0.25]).log()


def test_reweighted_advantages_by_hand():
    """q/p is 2 or 1/2, both beyond the clip, and half of the weight counts: 0.75 becomes 0.825 or 0.675."""
    found = reweighted_advantages(RLSD, torch.tensor(GROUP), P.requires_grad_(), Q)
    weights = [1.2, 0.8, 0.8, 1.2]
    assert found.tolist() == pytest.approx([a * (0.5 + 0.5 * w) for a, w in zip(GROUP, weights, strict=True)])
    assert not found.requires_grad
    unclipped = load_method("rlsd", rlsd_clip=0.6, rlsd_lambda=1.0)
    inside = reweighted_advantages(unclipped, torch.tensor([1.0]), P[:1], P[:1] + 0.1)
    assert inside.item() == pytest.approx(np.exp(0.1))


@given(st.lists(st.tuples(*[st.floats(-30, 30, width=32)] * 2), min_size=1), st.floats(0, 1))
def test_limits_of_reweighted_advantages_are_grpos_bit_for_bit(gaps, lam):
    student, teacher = torch.tensor(gaps).unbind(1)
    advantage = torch.linspace(-0.875, 0.875, len(gaps))
    method = load_method("rlsd", rlsd_lambda=lam)
    assert reweighted_advantages(method, advantage, student, student).equal(advantage)
    assert reweighted_advantages(load_method("rlsd", rlsd_lambda=0.0), advantage, student, teacher).equal(advantage)
    found = reweighted_advantages(method, advantage, student, teacher)
    assert found.sign().equal(advantage.sign())  # so 0 stays 0
    assert ((found - advantage).abs() <= lam * 0.2 * advantage.abs() * (1 + 1e-5) + 1e-7).all()
