"""The numbers of `srpo gap`, worked by hand; intervals against scipy's paired t interval."""

import numpy as np
import pytest
from scipy import stats

from srpo.analysis.gap import as_json, gap_estimates, gap_text, verdict
from srpo.analysis.statistics.estimates import Estimate
from srpo.training.self_teacher import GapSamples

RIGHT = [0, 0, 4, 1, 1, 2, 2, 3, 3, 1]
"""Right ones of four rollouts of each question."""
STUDENT = [4, 1, 1, 2, 1, 3, 2, 1]
TEACHER = [4, 2, 3, 3, 3, 3, 4, 2]


def rows(counts: list[int]) -> np.ndarray:
    return np.array([[1.0] * n + [0.0] * (4 - n) for n in counts])


@pytest.fixture
def samples() -> GapSamples:
    return GapSamples(rows(RIGHT), list(range(2, 10)), rows(STUDENT), rows(TEACHER), rows([0, 1] * 4))


def test_hand_worked(samples: GapSamples) -> None:
    values = {key: estimate.value for key, estimate in gap_estimates(samples).items()}
    assert values == pytest.approx(
        {
            "student": 100 * 17 / 40,
            "mixed_groups": 70,
            "wrong_with_sibling": 100 * 15 / 23,  # of 23 wrong ones, the 8 of the first two questions have none
            "distilled": 100 * 15 / 40,
            "student_same": 100 * 15 / 32,
            "teacher_sibling": 75,
            "gap": 100 * 9 / 32,
            "response_copied_sibling": 12.5,
        }
    )


def test_the_interval_of_a_gap_is_that_of_paired_questions(samples: GapSamples) -> None:
    found = gap_estimates(samples)
    differences = 25 * (np.array(TEACHER) - np.array(STUDENT))
    known = stats.ttest_1samp(differences, 0).confidence_interval()
    assert (found["gap"].low, found["gap"].high) == pytest.approx((known.low, known.high))


def test_the_error_of_a_ratio_is_that_of_leaving_questions_out() -> None:
    right = np.random.default_rng(0).binomial(8, np.random.default_rng(1).beta(0.5, 1, 400))
    rollouts = np.array([[1.0] * n + [0.0] * (8 - n) for n in right])
    found = gap_estimates(GapSamples(rollouts, [], *[np.zeros((0, 8))] * 3))["wrong_with_sibling"]
    wrong, with_sibling = 8 - right, np.where(right > 0, 8 - right, 0)
    left_out = 100 * (with_sibling.sum() - with_sibling) / (wrong.sum() - wrong)
    jackknife = np.sqrt(399 / 400 * ((left_out - left_out.mean()) ** 2).sum())
    assert found.value == pytest.approx(100 * with_sibling.sum() / wrong.sum())
    assert found.error == pytest.approx(jackknife, rel=0.02)


def gap_of(value: float) -> Estimate:
    return Estimate(value, "question", 48, 2.0, 47)


@pytest.mark.parametrize(
    ("gap", "words"),
    [(30, ("above 0", "94 such pairs")), (-14, ("below 0", "31 such pairs")), (2, ("Undecided",))],
)
def test_verdict_is_that_of_the_interval(gap: float, words: tuple[str, ...]) -> None:
    found = {"gap": gap_of(gap), "mixed_groups": gap_of(3)}
    assert "together in 3 % of groups: GRPO and SRPO learn from these alone." in verdict(found)
    assert all(word in verdict(found) for word in words)


def test_without_a_right_rollout() -> None:
    samples = GapSamples(np.zeros((9, 4)), [], *[np.zeros((0, 4))] * 3)
    found = gap_estimates(samples)
    zeros = dict.fromkeys(("student", "mixed_groups", "wrong_with_sibling", "distilled"), 0)
    assert {key: estimate.value for key, estimate in found.items()} == zeros
    assert "no sibling" in verdict(found)
    assert "every question gives the same value" in gap_text(found, "title")
    assert as_json(samples, found)["estimates"]["student"] == {"value": 0.0, "low": None, "high": None}


def test_a_student_that_is_always_right_has_no_wrong_rollout() -> None:
    ones = np.ones((9, 4))
    found = gap_estimates(GapSamples(ones, list(range(9)), ones, ones, ones))
    assert "wrong_with_sibling" not in found
    assert found["gap"].value == 0
    assert "Undecided" in verdict(found)


def test_text_has_the_numbers_and_what_they_rest_on(samples: GapSamples) -> None:
    text = gap_text(gap_estimates(samples), "tiny on physics")
    assert "gap: teacher - student                   +28.1   [" in text
