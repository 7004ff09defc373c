"""What a step says about itself, by hand-worked examples and against float64 gradients."""

import pytest
import torch

from srpo.algorithm.diagnostics import is_repetitive, weight_metrics

# ---------------------------------------------------------------- weights


def test_the_distribution_of_weights():
    found = weight_metrics(torch.arange(11.0))
    assert found == pytest.approx(
        {
            "weights/p10": 1,
            "weights/median": 5,
            "weights/p90": 9,
            "weights/max": 10,
            "weights/effective_fraction": 55**2 / (11 * 385),
        }
    )
    assert weight_metrics(torch.ones(3))["weights/effective_fraction"] == 1
    assert {*weight_metrics(torch.zeros(3)).values()} == {0}  # of solved groups only: no weight, and no 0 / 0


# ---------------------------------------------------------------- repetition


@pytest.mark.parametrize(
    ("tokens", "repetitive"),
    [
        ([], False),
        ([1, 1, 1], False),
        ([1] * 5, False),  # two 4-grams, half of them seen before
        ([1] * 6, True),
        ([1, 2, 3, 4, 5] * 2, False),
        ([1, 2, 3, 4, 5] * 3, True),
        (list(range(100)), False),
        ([*range(40), *[7, 8, 9] * 10], False),
        ([*range(20), *[7, 8, 9] * 10], True),
    ],
)
def test_a_response_repeats_itself_if_most_of_its_4_grams_were_there_before(tokens, repetitive):
    assert is_repetitive(tokens) is repetitive
    seen, again = set(), 0
    for i in range(len(tokens) - 3):
        gram = tuple(tokens[i : i + 4])
        again += gram in seen
        seen.add(gram)
    assert (again > max(len(tokens) - 3, 0) / 2) is repetitive
