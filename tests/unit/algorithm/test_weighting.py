"""Dynamic weights: worked by hand, the formula, constants."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srpo.algorithm.weighting import dynamic_weights, group_spread

entropies = st.lists(st.floats(0, 12, width=32), min_size=1, max_size=200)


def test_by_hand():
    weights = dynamic_weights(torch.tensor([0.0, math.log(2), math.log(4)]), beta=1.0)  # 1, 1/2, 1/4
    torch.testing.assert_close(weights, torch.tensor([12 / 7, 6 / 7, 3 / 7]))
    weights = dynamic_weights(torch.tensor([0.0, math.log(2)]), beta=2.0)  # 1, 1/4
    torch.testing.assert_close(weights, torch.tensor([1.6, 0.4]))


@given(entropies)
def test_beta_zero_is_exactly_no_weighting(values):
    assert dynamic_weights(torch.tensor(values), 0.0).tolist() == [1.0] * len(values)


@given(entropies, st.floats(0, 5))
def test_follow_the_formula_in_float64(values, beta):
    raw = [math.exp(-beta * value) for value in values]
    expected = [value * len(raw) / math.fsum(raw) for value in raw]
    assert dynamic_weights(torch.tensor(values), beta).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-30)


def test_are_constants_and_none_for_no_token():
    assert not dynamic_weights(torch.tensor([0.5, 1.0], requires_grad=True), 1.0).requires_grad
    assert dynamic_weights(torch.zeros(0), 1.0).shape == (0,)


# ---------------------------------------------------------------- a weight by group


def test_spread_of_groups_by_hand():
    correct = torch.tensor(
        [1, 0, 1, 0, 0, 1] + [0] * 6
    ).bool()  # of 8, 1 correct in the group 3 and 2 of 4 in the group 5
    groups = torch.tensor([5, 5, 5, 5, 3, 3] + [3] * 6)
    expected = [math.sqrt(1 / 4)] * 4 + [math.sqrt(7 / 64)] * 8
    assert group_spread(correct, groups).tolist() == pytest.approx(expected)
    assert expected[-1] == pytest.approx(0.3307, abs=1e-4)
    assert group_spread(torch.tensor([True, True, False, False]), torch.tensor([0, 0, 1, 1])).tolist() == [0] * 4


def test_weights_by_group_by_hand():
    """SRPO with 10 tokens a rollout and groups of 8: 7 wrong rollouts where 1 is correct, 4 where 4 are."""
    spread = torch.tensor([math.sqrt(7 / 64)] * 70 + [0.5] * 40)
    weights = dynamic_weights(torch.zeros(110), 0.0, spread)
    assert spread.mean().item() == pytest.approx(0.3923, abs=1e-4)
    assert weights[0].item() == pytest.approx(0.8431, abs=1e-4)
    assert weights[-1].item() == pytest.approx(1.2746, abs=1e-4)
    nats = torch.tensor([0.0, math.log(2), math.log(4)])
    both = dynamic_weights(nats, 1.0, torch.tensor([0.1, 0.4, 0.4]))  # 0.1, 0.2, 0.1
    torch.testing.assert_close(both, torch.tensor([0.75, 1.5, 0.75]))


@given(entropies, st.floats(0, 5), st.floats(0.01, 0.5))
def test_equal_weights_of_all_groups_change_nothing(values, beta, weight):
    nats = torch.tensor(values)
    assert dynamic_weights(nats, beta, torch.full_like(nats, weight)).equal(dynamic_weights(nats, beta))


def test_a_group_without_weight_is_silent_and_the_others_make_up_for_it():
    assert dynamic_weights(torch.zeros(4), 1.0, torch.tensor([0.0, 0, 0.5, 0.5])).tolist() == [0, 0, 2, 2]
    assert dynamic_weights(torch.ones(3), 1.0, torch.zeros(3)).tolist() == [0] * 3
    assert dynamic_weights(torch.zeros(0), 1.0, torch.zeros(0)).tolist() == []
