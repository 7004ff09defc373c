"""Power from the parts of a variance, against simulated experiments and against other numbers of runs."""

import math

import numpy as np
import pytest
from scipy import stats

from srpo.analysis.statistics.power import ASSUMED_RUN_SD, assumed, half_width, power, sample_noise, seeds_needed
from srpo.ground.layout import RunId
from srpo.plan.seeds_text import assumed_sentences


def test_power_is_what_simulated_experiments_find():
    rng = np.random.default_rng(1)
    runs = rng.normal(0, 2.0, (4000, 2, 5, 3))
    runs[:, 0] += 1.8
    differences = runs[:, 0].mean(axis=(1, 2)) - runs[:, 1].mean(axis=(1, 2))
    errors = np.sqrt(runs.var(axis=3, ddof=1).mean(axis=(1, 2)) * 2 / 15)
    found = np.mean(differences / errors > stats.t.ppf(0.975, 20))
    assert power(assumed(2.0, benchmarks=5), 1.8, 3) == pytest.approx(found, abs=0.03)


def test_what_seeds_resolve_if_only_runs_vary():
    variance = assumed(2.0, 5, sample_noise([50], 16))
    assert half_width(variance, 3) == pytest.approx(2.0, abs=0.15)
    assert half_width(variance, 3, 0.99) > half_width(variance, 3)
    needed = seeds_needed(variance, 1.8)
    assert power(variance, 1.8, needed) >= 0.8 > power(variance, 1.8, needed - 1)
    assert power(variance, 3.4, 3) > 0.9
    assert math.isinf(half_width(variance, 1))
    assert power(variance, 100.0, 1) == 0
    assert seeds_needed(assumed(1000.0), 0.1) is None


def test_the_noise_of_samples_is_that_of_simulated_scores():
    """Two runs on benchmarks of 50 and 210 questions, four samples of each, half of them right."""
    rng = np.random.default_rng(1)
    means = [100 * rng.binomial(4 * count, 0.5, 20_000) / (4 * count) for count in (50, 210)]
    found = 2 * np.std(np.mean(means, axis=0)) / math.sqrt(2)  # of one benchmark: the mean has half the sum
    assert sample_noise([50, 210], 4) == pytest.approx(found, rel=0.02)
    assert sample_noise([130], 4) < 0.9 * found


def test_three_base_models_leave_two_degrees_of_freedom():
    """By hand: SD 2 on 5 benchmarks is a variance of 2 * 4 / 5 / 3 of the difference; t(2) at 97.5 % is 4.303."""
    assert half_width(assumed(2.0, 5, paired=True), 3) == pytest.approx(4.303 * (2 * 4 / 5 / 3) ** 0.5, rel=1e-3)
    assert half_width(assumed(2.0, 5), 3) < half_width(assumed(2.0, 5, paired=True), 3) / 2


def test_each_number_of_seeds_is_said_of_its_methods():
    """A method has as many seeds as on the benchmark with the fewest: c has one, although two on the other."""
    seeds = {("a", "x"): 3, ("a", "y"): 3, ("b", "x"): 3, ("b", "y"): 3, ("c", "x"): 2, ("c", "y"): 1, ("d", "x"): 1}
    runs = [
        RunId(model="m", benchmark=benchmark, method=method, seed=seed)
        for (method, benchmark), count in seeds.items()
        for seed in range(count)
    ]
    variance = assumed(ASSUMED_RUN_SD, benchmarks=2, noise_sd=1.0)
    three, one, condition = assumed_sentences(runs, {name: name.upper() for name in "abcd"}, 1.0)
    resolved = {count: f"±{half_width(variance, count):.1f}" for count in (2, 3, 4)}
    assert three == f"A and B: 3 seeds would resolve {resolved[3]} points between two methods, 4 seeds {resolved[4]}."
    assert one == f"C and D: one seed resolves nothing, 2 seeds {resolved[2]}."
    assert condition.startswith("This is for an average over 2 benchmarks, if runs have an SD of 2.0 points (assumed)")
    assert "measured intervals are wider." in condition
    assert f" need {seeds_needed(variance, 1.8)} seeds " in condition
