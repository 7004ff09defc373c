"""Intervals cover the truth as often as they say, in simulated experiments whose truth is known."""

import math

import numpy as np
import pytest
from scipy import stats

from srpo.analysis import statistics
from srpo.analysis.statistics import Arm, contrast, sum_interval
from srpo.errors import SrpoError

QUESTIONS, SAMPLES, EXPERIMENTS = 50, 16, 400


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 499)


def difficulties(rng, size):
    return rng.logistic(0.4, 1.5, size)


def solved(rng, difficulty, seeds=1, seed_spread=0.0):
    """Scores, seeds x questions, of a method whose skill differs a little from seed to seed."""
    skill = rng.normal(0, seed_spread, (seeds, 1))
    return rng.binomial(SAMPLES, 1 / (1 + np.exp(-(difficulty + skill)))) / SAMPLES


def coverage(truth, draw, interval):
    hits = [low <= truth <= high for low, high in (interval(draw()) for _ in range(EXPERIMENTS))]
    return sum(hits) / EXPERIMENTS


def ends(strata):
    estimate = contrast([[Arm(values) for values in arms] for arms in strata])
    return estimate.low, estimate.high


def twice_resampled(strata):
    """What contrast() does not do: draw samples again within the questions drawn. Normal interval of that variance."""
    (arms,) = strata
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, QUESTIONS, (300, QUESTIONS))
    totals = sum(
        sign * rng.binomial(SAMPLES, np.abs(values[0])[drawn]).mean(axis=1) / SAMPLES
        for sign, values in zip((1, -1), arms, strict=True)
    )
    middle = sum(values.mean() for values in arms)
    return middle - 1.96 * totals.std(), middle + 1.96 * totals.std()


# The standard error of a coverage of .95 over 400 experiments is .011.
AS_PROMISED = pytest.approx(0.95, abs=0.034)


@pytest.mark.usefixtures("quick")
def test_a_score_of_one_seed_covers_another_draw_of_questions():
    rng = np.random.default_rng(1)
    truth = (1 / (1 + np.exp(-difficulties(rng, 10**6)))).mean()
    assert coverage(truth, lambda: [[solved(rng, difficulties(rng, QUESTIONS))]], ends) == AS_PROMISED


def paired(rng):
    shared = difficulties(rng, QUESTIONS)
    return [solved(rng, shared), -solved(rng, shared)]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("benchmarks", [1, 4])
def test_a_paired_difference_of_one_seed(benchmarks):
    rng = np.random.default_rng(2)
    assert coverage(0.0, lambda: [paired(rng) for _ in range(benchmarks)], ends) == AS_PROMISED


def test_drawing_samples_twice_would_cover_too_much():
    rng = np.random.default_rng(3)
    assert coverage(0.0, lambda: [paired(rng)], twice_resampled) > 0.984


@pytest.mark.usefixtures("quick")
def test_pairing_is_what_makes_the_difference_sharp():
    """The same two methods on unrelated questions: a far wider interval, so the pairing is really used."""
    rng = np.random.default_rng(4)
    one, other = paired(rng)
    low, high = ends([[one, other]])
    apart_low, apart_high = ends([[one, np.roll(other, 17, axis=1)]])
    assert (high - low) < 0.75 * (apart_high - apart_low)


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("benchmarks", [1, 5])
def test_seeds_cover_another_training_seed_on_the_same_questions(seeds, benchmarks):
    rng = np.random.default_rng(5)
    shared = [difficulties(rng, QUESTIONS) for _ in range(benchmarks)]

    def draw():
        return [[solved(rng, d, seeds, 0.4), -solved(rng, d, seeds, 0.4)] for d in shared]

    assert coverage(0.0, draw, ends) == (AS_PROMISED if seeds > 2 else pytest.approx(0.96, abs=0.035))


@pytest.mark.usefixtures("quick")
def test_one_seed_does_not_cover_other_seeds():
    """Why the report says what its intervals leave out: over questions they miss the spread between seeds."""
    rng = np.random.default_rng(6)
    shared = difficulties(rng, QUESTIONS)
    assert coverage(0.0, lambda: [[solved(rng, shared, 1, 0.6), -solved(rng, shared, 1, 0.6)]], ends) < 0.8


def test_the_unit_is_the_seed_only_where_every_arm_has_several():
    rng = np.random.default_rng(7)
    questions = difficulties(rng, QUESTIONS)
    three, one = solved(rng, questions, 3, 0.3), -solved(rng, questions)
    assert contrast([[Arm(three)]]).unit == "seed"
    assert contrast([[Arm(three), Arm(one)]]).unit == "question"
    assert contrast([[Arm(three), Arm(one, fixed=True)]]).unit == "seed"
    assert contrast([[Arm(one, fixed=True)]]).unit == "question"
    logged = [[Arm(np.array([[value]]))] for value in (1.0, 2.0, 4.0)]
    assert contrast(logged).unit == "benchmark"
    assert contrast(logged[:1]).unit == "none"
    assert not contrast(logged[:1]).has_interval


def test_intervals_by_hand():
    values = np.array([[0.2], [0.4], [0.9]])
    estimate = contrast([[Arm(values)]])
    error = math.sqrt(((0.3**2 + 0.1**2 + 0.4**2) / 2) / 3)
    assert estimate.value == pytest.approx(0.5)
    assert estimate.high - 0.5 == pytest.approx(4.302653 * error, rel=1e-6)  # t quantile of 2 degrees of freedom
    welch = stats.ttest_ind(values[:, 0], values[:2, 0] * 3, equal_var=False).confidence_interval()
    assert sum_interval([values[:, 0], -3 * values[:2, 0]]) == pytest.approx((welch.low, welch.high))


def test_what_agrees_exactly_is_a_point():
    assert ends([[np.ones((1, 8))]]) == (1.0, 1.0)
    assert ends([[np.ones((3, 8))]]) == (1.0, 1.0)


def test_the_same_data_gives_the_same_interval():
    values = solved(np.random.default_rng(8), difficulties(np.random.default_rng(9), QUESTIONS))
    assert ends([[values]]) == ends([[values]])


@pytest.mark.parametrize("strata", [[], [[]], [[np.empty((0, 4))]], [[np.ones((1, 4)), np.ones((1, 5))]]])
def test_impossible_contrasts_are_refused(strata):
    with pytest.raises(SrpoError):
        ends(strata)
