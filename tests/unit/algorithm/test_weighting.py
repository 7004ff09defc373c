"""Dynamic weights: worked by hand, mean 1, constants."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from srpo.algorithm.weighting import dynamic_weights

entropies = st.lists(st.floats(0, 12, width=32), min_size=1, max_size=200)


def test_by_hand():
    weights = dynamic_weights(torch.tensor([0.0, math.log(2), math.log(4)]), beta=1.0)  # 1, 1/2, 1/4
    torch.testing.assert_close(weights, torch.tensor([12 / 7, 6 / 7, 3 / 7]))
    weights = dynamic_weights(torch.tensor([0.0, math.log(2)]), beta=2.0)  # 1, 1/4
    torch.testing.assert_close(weights, torch.tensor([1.6, 0.4]))


@given(entropies, st.floats(0, 5))
def test_mean_is_one(values, beta):
    weights = dynamic_weights(torch.tensor(values), beta)
    assert weights.double().mean().item() == pytest.approx(1, abs=1e-5)
    assert (weights >= 0).all()


@given(entropies)
def test_beta_zero_is_exactly_no_weighting(values):
    assert dynamic_weights(torch.tensor(values), 0.0).tolist() == [1.0] * len(values)


@given(entropies, st.floats(0.1, 3))
def test_the_more_uncertain_the_teacher_the_less_a_token_weighs(values, beta):
    ordered = torch.tensor(sorted(set(values)))
    assert (dynamic_weights(ordered, beta).diff() <= 0).all()
    apart = dynamic_weights(torch.tensor([0.1, 0.6]), beta)
    assert apart[0] > 1 > apart[1]


@given(entropies, st.floats(0.1, 3))
def test_follow_the_formula_in_float64(values, beta):
    raw = [math.exp(-beta * value) for value in values]
    expected = [value * len(raw) / math.fsum(raw) for value in raw]
    assert dynamic_weights(torch.tensor(values), beta).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-30)


def test_are_constants_and_none_for_no_token():
    assert not dynamic_weights(torch.tensor([0.5, 1.0], requires_grad=True), 1.0).requires_grad
    assert dynamic_weights(torch.zeros(0), 1.0).shape == (0,)
