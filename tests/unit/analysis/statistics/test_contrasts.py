"""Intervals over runs and questions hold the truth as often as they say. With more experiments: bench/coverage.csv."""

import math
from dataclasses import replace

import numpy as np
import pytest
from made_up_scores import PairedWorld, World, level, null_difference, paired_nulls
from scipy import stats

from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.deciding import over_benchmarks
from srpo.analysis.statistics.estimates import Estimate

EXPERIMENTS = 200


def right(rates, least=90, most=99.9, false=6):
    """Within the sampling error of 200 experiments (1.5 points at 95 %) of what the bench measures."""
    return least <= rates.coverage <= most and rates.false_above <= false


def rng(*key):
    return np.random.default_rng([7, *key])


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("benchmarks", [1, 5])
@pytest.mark.parametrize(("run_sd", "taste"), [(0.0, 1.0), (4.0, 1.0)])
def test_a_difference_of_several_seeds_covers_other_runs_and_other_questions(seeds, benchmarks, run_sd, taste):
    world = World(questions=50, seeds=seeds, run_sd=run_sd, taste=taste)
    rates = null_difference(rng(seeds, benchmarks, int(run_sd)), world, benchmarks, EXPERIMENTS)
    assert right(rates), (rates.coverage, rates.false_above)


@pytest.mark.parametrize("benchmarks", [1, 5])
def test_one_seed_covers_other_questions_and_not_other_runs(benchmarks):
    world = World(questions=50, taste=1.0)
    assert right(null_difference(rng(0), world, benchmarks, EXPERIMENTS))
    wobbling = null_difference(rng(1), replace(world, run_sd=4.0, taste=0.0), benchmarks, EXPERIMENTS)
    assert wobbling.coverage < 70
    assert wobbling.false_above > 15


@pytest.mark.parametrize(("questions", "mean", "seeds"), [(10, 0.95, 1), (20, 0.99, 1), (50, 0.95, 3), (50, 0.99, 1)])
def test_near_the_ceiling_and_with_few_questions_intervals_cover_or_are_not_given(questions, mean, seeds):
    world = World(mean=mean, questions=questions, seeds=seeds, taste=0.5, run_sd=1.0 if seeds > 1 else 0.0)
    assert right(null_difference(rng(3, questions), world, 1, EXPERIMENTS), most=100)
    assert right(level(rng(4, questions), replace(world, run_sd=0.0), 1, EXPERIMENTS), most=100)


# ---------------------------------------------------------------- paired by base model


@pytest.mark.parametrize(("base_models", "base_sd"), [(3, 2.0), (5, 1.0), (8, 2.0)])
def test_paired_differences_cover_other_base_models(base_models, base_sd):
    rates = paired_nulls(rng(20, base_models), PairedWorld(base_models, base_sd), 150)
    assert right(rates.coverage["the widest"])
    assert rates.coverage["the widest"].half >= rates.coverage["by benchmark"].half
    assert rates.false_family < 7


@pytest.mark.parametrize("base_models", [4, 8])
def test_paired_differences_cover_other_tables_of_facts(base_models):
    """The truth of question i differs by base model, and questions about the same fact are alike."""
    rates = paired_nulls(rng(24, base_models), PairedWorld(base_models, 2.0, facts=60), 100)
    assert right(rates.coverage["the widest"], most=100)
    assert rates.false_family < 7


def test_without_pairing_by_base_model_benchmarks_alone_cover_too_little():
    """Why the second estimate is needed: a base model moves a difference on all benchmarks alike."""
    rates = paired_nulls(rng(21), PairedWorld(8, 2.0, run_sd=1.0), 100)
    assert rates.coverage["by benchmark"].coverage < 88
    assert rates.coverage["the widest"].coverage > 88


def test_both_estimates_of_a_paired_error_by_hand():
    """What a base model adds to both methods cancels; the variance with the widest interval counts."""
    generator = rng(22)
    shared = generator.normal(0, 30, (3, 1))
    moved = np.array([[4.0], [0.0], [-4.0]])  # the difference, on both benchmarks alike
    strata, differences = [], []
    for _ in range(2):
        one, other = generator.normal(50, 5, (3, 40)), generator.normal(50, 5, (3, 40))
        strata.append([Arm(one + moved + shared), Arm(-other - shared)])
        differences.append(one + moved - other)
    estimate = contrast(strata, paired=True)
    questions = sum(d.mean(axis=0).var(ddof=1) / 40 for d in differences) / 4
    residuals = [d - d.mean(axis=0) - d.mean(axis=1, keepdims=True) + d.mean() for d in differences]
    both = sum((r**2).sum() / (2 * 39) / (3 * 40) for r in residuals) / 4
    by_benchmark = sum(d.mean(axis=1).var(ddof=1) / 3 for d in differences) / 4
    by_model = np.mean([d.mean(axis=1) for d in differences], axis=0).var(ddof=1) / 3
    assert estimate.error == pytest.approx(math.sqrt(by_model))
    independent = math.sqrt(questions - both + by_benchmark)
    assert min(abs(error - independent) for error, _ in estimate.others) == pytest.approx(0, abs=1e-9)
    assert estimate.value == pytest.approx(np.mean([d.mean() for d in differences]))
    assert (estimate.sampling_unit, estimate.meaning, estimate.count) == (
        "seed and question",
        "base model and question",
        3,
    )
    assert contrast(strata).error > 2 * estimate.error  # unpaired, base models count as noise
    assert estimate.dof == 2


def test_the_p_value_of_a_paired_difference_is_the_largest_of_three_at_every_threshold():
    generator = rng(23)
    values = [generator.normal(2, 6, (3, 64)) + generator.normal(0, 0.3, (3, 1)) for _ in range(5)]
    estimate = contrast([[Arm(each)] for each in values], paired=True)
    apart = contrast([[Arm(each)] for each in values])  # by benchmark
    shared = np.mean([each.mean(axis=1) for each in values], axis=0)
    for threshold in (-1.0, 0.0, 1.0):
        by_model = stats.ttest_1samp(shared, threshold, alternative="greater").pvalue
        assert estimate.p_above(threshold) >= max(apart.p_above(threshold), by_model) - 1e-12
    assert estimate.interval(0.999)[0] <= stats.ttest_1samp(shared, 0).confidence_interval(0.999).low + 1e-9
    assert len(estimate.others) == 2


def test_paired_numbers_without_questions_give_the_paired_t_interval():
    one, other = np.array([[1.0], [2.0], [4.0]]), np.array([[3.0], [3.5], [5.0]])
    estimate = contrast([[Arm(one), Arm(-other)]], paired=True)
    paired = stats.ttest_rel(one[:, 0], other[:, 0]).confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((paired.low, paired.high))
    assert estimate.meaning == "base model"


def test_paired_methods_need_the_same_base_models():
    with pytest.raises(ValueError, match="inhomogeneous"):
        contrast([[Arm(np.ones((2, 9))), Arm(np.ones((3, 9)))]], paired=True)


# ---------------------------------------------------------------- by hand


def test_the_variance_is_that_of_the_crossed_decomposition():
    generator = rng(6)
    values = generator.normal(50, 10, (3, 40)) + generator.normal(0, 8, (3, 1)) + generator.normal(0, 8, 40)
    estimate = contrast([[Arm(values)]])
    residual = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    parts = [
        values.mean(axis=0).var(ddof=1) / 40,
        values.mean(axis=1).var(ddof=1) / 3,
        (residual**2).sum() / (2 * 39) / (3 * 40),
    ]
    assert estimate.error**2 == pytest.approx(parts[0] + parts[1] - parts[2])
    assert estimate.sampling_unit == "seed and question"
    assert estimate.high - estimate.value == pytest.approx(stats.t.ppf(0.975, estimate.dof) * estimate.error)


def test_numbers_without_questions_give_welchs_interval():
    one, other = np.array([[1.0], [2.0], [4.0]]), np.array([[3.0], [3.5]])
    estimate = contrast([[Arm(one), Arm(-other)]])
    welch = stats.ttest_ind(one[:, 0], other[:, 0], equal_var=False).confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((welch.low, welch.high))
    assert estimate.sampling_unit == "seed"


def test_one_seed_gives_the_paired_t_interval_where_scores_are_not_heavy_tailed():
    one = np.linspace(10, 90, 30)[None, :]
    other = one - np.tile([3.0, -1.0, 1.0], 10)
    estimate = contrast([[Arm(one), Arm(-other)]])
    paired = stats.ttest_rel(one[0], other[0]).confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((paired.low, paired.high))
    assert (estimate.sampling_unit, estimate.several_seeds) == ("question", False)


def test_a_score_stays_within_its_bounds_and_its_p_value_agrees_with_its_interval():
    scores = np.r_[np.full(18, 100.0), 40.0, 60.0][None, :]
    estimate = contrast([[Arm(scores)]], bounds=(0, 100))
    assert 0 < estimate.low < 95 < estimate.high < 100
    assert estimate.p_above(estimate.low) == pytest.approx(0.025)
    assert estimate.p_below(estimate.high) == pytest.approx(0.025)


def test_p_values_agree_with_the_interval_of_a_difference():
    estimate = Estimate(2.0, "question", 40, error=1.0, dof=12)
    assert estimate.p_above(estimate.low) == pytest.approx(0.025)
    assert estimate.p_below(estimate.high) == pytest.approx(0.025)
    low, high = estimate.interval(0.9)
    assert estimate.p_above(low) == pytest.approx(0.05)
    assert estimate.p_below(high) == pytest.approx(0.05)


def test_one_method_with_one_seed_is_enough_for_not_having_several():
    generator = rng(10)
    world = World(seeds=3)
    questions = world.questions_drawn(generator)
    three, one = world.method(generator, questions), -replace(world, seeds=1).method(generator, questions)
    mixed = contrast([[Arm(three), Arm(one)]])
    assert (mixed.meaning, mixed.several_seeds) == ("question", False)
    on_another_benchmark = contrast([[Arm(three), Arm(-three)], [Arm(three), Arm(one)]])
    assert not on_another_benchmark.several_seeds
    assert not contrast([[Arm(three[:, :1]), Arm(one[:, :1])]]).has_interval
    assert contrast([[Arm(three), Arm(one, fixed=True)]]).several_seeds


# ---------------------------------------------------------------- nothing from nothing


@pytest.mark.parametrize(
    ("strata", "reason"),
    [
        ([[np.ones((1, 30))]], "every question gives the same value"),
        ([[np.zeros((3, 30))]], "every question gives the same value"),
        ([[np.arange(6.0)[None, :]]], "6 questions are too few for an interval"),
        ([[np.array([[1.0]])]], "one run, and no questions to draw from"),
        ([[np.array([[1.0]])], [np.array([[9.0]])]], "one run, and no questions to draw from"),
        ([[np.array([[2.0], [2.0]])]], "all runs agree exactly"),
    ],
)
def test_what_agrees_exactly_or_is_too_little_has_no_interval_and_says_why(strata, reason):
    estimate = contrast([[Arm(values) for values in arms] for arms in strata])
    assert estimate.reason == reason
    assert not estimate.has_interval
    assert math.isnan(estimate.low)
    assert math.isnan(estimate.p_above(0))


def test_the_interval_over_benchmarks_is_students_of_their_values():
    values = [1.0, 2.0, 4.0, 3.0]
    estimate, expected = over_benchmarks(values), stats.ttest_1samp(values, 0).confidence_interval()
    assert (estimate.low, estimate.high) == pytest.approx((expected.low, expected.high))
    assert (estimate.sampling_unit, estimate.count, estimate.several_seeds) == ("benchmark", 4, False)
    assert over_benchmarks(values[:2]) is None
    assert not over_benchmarks([2.0, 2.0, 2.0]).has_interval


def test_the_same_data_gives_the_same_interval():
    values = World().method(rng(11), World().questions_drawn(rng(12)))
    assert contrast([[Arm(values)]]) == contrast([[Arm(values)]])
