"""Ratios, shares of runs and smallest contrasts: their intervals against other computations and simulations."""

import math

import numpy as np
import pytest
from scipy import stats

from srpo.analysis.results.contrasts import Arm, contrast
from srpo.analysis.results.estimates import Estimate, Proportion, Ratio, Smallest


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
    share = Proportion.of(successes, runs)
    low = stats.beta.ppf(0.025, successes, runs - successes + 1) if successes else 0.0
    high = stats.beta.ppf(0.975, successes + 1, runs - successes) if successes < runs else 1.0
    assert (share.low, share.high) == pytest.approx((100 * low, 100 * high))
    assert share.has_interval
    if successes:
        assert share.p_above(share.low) == pytest.approx(0.025)
    if successes < runs:
        assert share.p_below(share.high) == pytest.approx(0.025)


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
