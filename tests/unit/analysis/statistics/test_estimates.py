"""Ratios, shares of runs and smallest contrasts: their intervals against other computations and simulations."""

import math

import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import expit

from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.deciding import Proportion, Ratio, Smallest
from srpo.analysis.statistics.estimates import Estimate


def test_a_ratio_is_the_interval_of_the_logarithms():
    estimate = Ratio.of(Estimate(math.log(1.5), "seed", 3, error=0.1, dof=8))
    half = stats.t.ppf(0.975, 8) * 0.1
    assert estimate.value == pytest.approx(50)
    assert (estimate.low, estimate.high) == pytest.approx(
        (100 * (1.5 * math.exp(-half) - 1), 100 * (1.5 * math.exp(half) - 1))
    )
    assert estimate.p_above(estimate.low) == pytest.approx(0.025)
    assert estimate.p_below(estimate.high) == pytest.approx(0.025)
    assert math.isnan(Ratio.of(Estimate(0.1)).p_above(0))
    assert math.isnan(Ratio.of(Estimate(0.1)).low)


def test_a_ratio_covers_the_truth_where_the_reference_varies_more():
    """Seconds of a stable method in percent of an unstable one: the reference's spread counts with its ratio."""
    rng, covered = np.random.default_rng(1), 0
    for _ in range(400):
        one, other = 1.5 * np.exp(rng.normal(0, 0.02, (5, 1))), np.exp(rng.normal(0, 0.2, (5, 1)))
        estimate = Ratio.of(contrast([[Arm(np.log(one)), Arm(-np.log(other))]]))
        covered += estimate.low <= 50 <= estimate.high
    assert covered / 400 > 0.92


@pytest.mark.parametrize(("successes", "runs"), [(0, 15), (2, 15), (15, 15)])
def test_a_share_of_runs_has_clopper_and_pearsons_interval(successes, runs):
    share = Proportion.of([[place < successes] for place in range(runs)])
    low = stats.beta.ppf(0.025, successes, runs - successes + 1) if successes else 0.0
    high = stats.beta.ppf(0.975, successes + 1, runs - successes) if successes < runs else 1.0
    assert (share.low, share.high) == pytest.approx((100 * low, 100 * high))
    assert share.has_interval
    if successes:
        assert share.p_above(share.low) == pytest.approx(0.025)
    if successes < runs:
        assert share.p_below(share.high) == pytest.approx(0.025)


def test_runs_of_one_base_model_count_as_many_as_they_are_alike():
    """All or none of a base model's five runs: as eight runs. No base model matters: as forty."""
    alike = Proportion.of([[place < 3] * 5 for place in range(8)])
    eight = stats.binomtest(3, 8).proportion_ci(method="exact")
    assert (alike.low, alike.high) == pytest.approx((100 * eight.low, 100 * eight.high))
    assert (alike.successes, alike.runs, alike.count, alike.meaning) == (15, 40, 8, "base model")
    each_one = Proportion.of([[True, *[False] * 4]] * 8)
    forty = stats.binomtest(8, 40).proportion_ci(method="exact")
    assert (each_one.low, each_one.high) == pytest.approx((100 * forty.low, 100 * forty.high))
    none = Proportion.of([[False] * 5] * 8)  # nothing is known of how alike they are: as eight
    assert none.p_below(25) == pytest.approx(0.75**8)
    alone = Proportion.of([[True, False, False]])
    assert (alone.low, alone.high) == pytest.approx((0.4, 99.6), abs=1.0)


@pytest.mark.parametrize("frailty", [0.0, 2.0, 4.0])
def test_the_share_of_collapses_is_rarely_decided_wrongly_if_base_models_matter(frailty):
    """At a true share of 25 %, the limit: either verdict is wrong. Clopper and Pearson of all 40 runs: 5 to 30 %."""
    rng, wrong = np.random.default_rng(3), 0
    nodes = rng.normal(0, 1, 100_000) * frailty
    middle = optimize.brentq(lambda m: expit(m + nodes).mean() - 0.25, -30, 5)
    for _ in range(1000):
        chance = expit(middle + frailty * rng.normal(0, 1, (8, 1)))
        share = Proportion.of((rng.random((8, 5)) < chance).tolist())
        wrong += min(share.p_above(25), share.p_below(25)) < 0.025
    assert wrong / 1000 < 0.06


def test_the_largest_p_value_of_several_errors_counts_at_every_level():
    """The larger error decides at 95 %, the one with few degrees of freedom at Holm's level."""
    estimate = Estimate(3.0, "seed and question", 3, error=1.5, dof=50.0, others=((0.65, 2.0),))
    first, second = stats.t(50, 3, 1.5), stats.t(2, 3, 0.65)
    assert (estimate.low, estimate.high) == pytest.approx(first.interval(0.95))
    assert estimate.interval(0.999) == pytest.approx(second.interval(0.999))
    for threshold in (-9.0, 0.0, 2.0, 5.0):
        apart = [stats.t.sf((3 - threshold) / error, dof) for error, dof in ((1.5, 50), (0.65, 2))]
        assert estimate.p_above(threshold) == pytest.approx(max(apart))
        assert estimate.p_below(threshold) == pytest.approx(max(1 - p for p in apart))


def test_the_smallest_of_ten_leads_is_covered_and_its_own_interval_is_not():
    rng, covered, alone = np.random.default_rng(2), 0, 0
    for _ in range(500):
        leads = [Estimate(float(value), "seed", 3, error=1.0, dof=1000.0) for value in rng.normal(3, 1, 10)]
        smallest = Smallest.of(leads)
        covered += smallest.low <= 3 <= smallest.high
        least = min(leads, key=lambda lead: lead.value)
        alone += least.low <= 3 <= least.high
    assert covered / 500 > 0.95
    assert alone / 500 < 0.85
    assert smallest.low == min(lead.low for lead in leads)
    assert smallest.high == min(lead.interval(0.995)[1] for lead in leads)


def test_without_one_interval_the_smallest_has_none():
    known, unknown = Estimate(1.0, "seed", 3, error=1.0, dof=5.0), Estimate(4.0, reason="all runs agree exactly")
    smallest = Smallest.of([known, unknown])
    assert not smallest.has_interval
    assert (smallest.value, smallest.reason) == (1.0, "all runs agree exactly")
    assert math.isnan(smallest.low)
