"""Families of claims, equivalence, power and aggregates, against values worked out by hand or by scipy."""

import math

import numpy as np
import pytest
from scipy import stats

from srpo.analysis.results import aggregates
from srpo.analysis.results.aggregates import (
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
)
from srpo.analysis.results.estimates import Estimate
from srpo.analysis.results.multiple_testing import equivalence_p, holm


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, math.nan, 0.9])[[0, 2]] == pytest.approx([1.0, 1.0])
    assert math.isnan(holm([0.5, math.nan])[1])
    assert len(holm([])) == 0


def test_holm_keeps_the_error_of_a_family_of_nulls():
    rng = np.random.default_rng(0)
    families = rng.uniform(size=(2000, 11))
    assert np.mean([np.nanmin(holm(family)) < 0.025 for family in families]) == pytest.approx(0.025, abs=0.012)
    assert np.mean(families.min(axis=1) < 0.025) > 0.2


def test_equivalence_needs_the_interval_of_twice_the_level_within_the_margin():
    estimate = Estimate(0.5, "question", 40, error=0.7, dof=20)
    low, high = estimate.interval(0.95)
    assert equivalence_p(estimate, high) == pytest.approx(0.025)
    assert equivalence_p(estimate, high + 0.01) < 0.025
    assert equivalence_p(estimate, high - 0.01) > 0.025
    assert low < 0
    assert equivalence_p(Estimate(0.0, "question", 40, error=5.0, dof=20), 2) > 0.025  # no evidence of absence
    assert math.isnan(equivalence_p(Estimate(0.0), 2))
    with pytest.raises(ValueError, match="margin 0"):
        equivalence_p(estimate, 0)


def test_interquartile_mean_is_the_trimmed_mean_where_benchmarks_have_equal_runs():
    rng = np.random.default_rng(2)
    runs = [rng.normal(50, 10, 4) for _ in range(5)]
    assert interquartile_mean(runs) == pytest.approx(stats.trim_mean(np.concatenate(runs), 0.25))


def test_a_benchmark_counts_the_same_however_many_runs_it_has():
    assert interquartile_mean([np.array([1.0]), np.array([3.0] * 9)]) == pytest.approx(2.0)
    assert performance_profile([np.array([1.0]), np.array([3.0] * 9)], np.array([0.0, 2.0, 3.0])) == pytest.approx(
        [1.0, 0.5, 0.0]
    )


def test_probability_of_improvement_by_hand():
    assert probability_of_improvement([np.array([1.0, 3.0])], [np.array([2.0, 3.0])]) == pytest.approx(1.5 / 4)
    one, other = [np.array([2.0]), np.array([5.0])], [np.array([1.0]), np.array([6.0])]
    assert probability_of_improvement(one, other) == 0.5


def test_paired_base_models_are_resampled_together(monkeypatch):
    """What a base model adds to both methods on all benchmarks cancels in their difference."""
    monkeypatch.setattr(aggregates, "RESAMPLES", 200)
    rng = np.random.default_rng(4)
    models = rng.normal(0, 20, 6)
    one, other = ([models + rng.normal(shift, 0.1, 6) for _ in range(3)] for shift in (2.0, 0.0))

    def difference(a, b):
        return float(np.mean(a) - np.mean(b))

    low, high = stratified_interval(difference, one, other, paired=True)
    apart = stratified_interval(difference, one, other)
    assert 1.8 < low < 2 < high < 2.2
    assert apart[1] - apart[0] > 10 * (high - low)


def test_stratified_intervals_have_the_spread_of_few_runs(monkeypatch):
    monkeypatch.setattr(aggregates, "RESAMPLES", 400)
    rng = np.random.default_rng(3)

    def mean(method):
        return float(np.mean([runs.mean() for runs in method]))

    hits = 0
    for _ in range(60):
        low, high = stratified_interval(mean, [rng.normal(0, 1, 5) for _ in range(5)])
        hits += low <= 0 <= high
    assert hits >= 51
    low, high = stratified_interval(mean, [rng.normal(0, 1, 4), rng.normal(0, 1, 9)])
    assert math.isnan(low)
    assert math.isnan(high)
