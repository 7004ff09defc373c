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
from srpo.analysis.results.contrasts import Estimate
from srpo.analysis.results.multiple_testing import equivalence_p, holm
from srpo.analysis.results.power import Design, power_sentences, sample_noise
from srpo.config import RunId


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


def test_power_is_what_simulated_experiments_find():
    design = Design(2.0, benchmarks=5)
    rng = np.random.default_rng(1)
    runs = rng.normal(0, 2.0, (4000, 2, 5, 3))
    runs[:, 0] += 1.8
    differences = runs[:, 0].mean(axis=(1, 2)) - runs[:, 1].mean(axis=(1, 2))
    errors = np.sqrt(runs.var(axis=3, ddof=1).mean(axis=(1, 2)) * 2 / 15)
    found = np.mean(differences / errors > stats.t.ppf(0.975, 20))
    assert design.power(1.8, 3) == pytest.approx(found, abs=0.03)


def test_what_seeds_resolve():
    design = Design(2.0, benchmarks=5, noise_sd=sample_noise(50, 16))
    assert design.resolved(3) == pytest.approx(2.0, abs=0.15)  # as the issue has it
    assert design.seeds_needed(1.8) in (7, 8)
    assert design.power(3.4, 3) > 0.9
    assert design.power(design.detectable(3), 3) == pytest.approx(0.8)
    assert math.isinf(design.resolved(1))
    assert math.isinf(design.detectable(1))
    assert design.power(100.0, 1) == 0
    assert Design(1000.0).seeds_needed(0.1) is None


def test_each_number_of_seeds_is_said_of_its_methods():
    """A method has as many seeds as on the benchmark with the fewest: c has one, although two on the other."""
    seeds = {("a", "x"): 3, ("a", "y"): 3, ("b", "x"): 3, ("b", "y"): 3, ("c", "x"): 2, ("c", "y"): 1, ("d", "x"): 1}
    runs = [
        RunId(model="m", benchmark=benchmark, method=method, seed=seed)
        for (method, benchmark), count in seeds.items()
        for seed in range(count)
    ]
    design = Design(1.5, benchmarks=2, noise_sd=1.0)
    three, one, assumed = power_sentences(runs, {name: name.upper() for name in "abcd"}, 1.0, 1.5)
    resolved = {count: f"±{design.resolved(count):.1f}" for count in (2, 3, 4)}
    assert three.startswith(f"A and B: 3 seeds resolve about {resolved[3]} points between two methods, 4 would ")
    assert three.endswith(f"resolve {resolved[4]}.")
    assert one == f"C and D: one seed resolves nothing, 2 would resolve {resolved[2]}."
    assert assumed.startswith("This is for an average over 2 benchmarks at a run SD of 1.5 points (measured); ")
    assert f" needs {design.seeds_needed(1.8)} seeds " in assumed


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


def test_stratified_intervals_have_the_spread_of_few_runs(monkeypatch):
    monkeypatch.setattr(aggregates, "RESAMPLES", 400)
    rng = np.random.default_rng(3)

    def mean(method):
        return float(np.mean([runs.mean() for runs in method]))

    hits = 0
    for _ in range(60):
        low, high = stratified_interval(mean, [rng.normal(0, 1, 3) for _ in range(5)])
        hits += low <= 0 <= high
    assert hits >= 51
    low, high = stratified_interval(mean, [np.array([1.0]), np.array([1.0, 2.0])])
    assert math.isnan(low)
    assert math.isnan(high)
