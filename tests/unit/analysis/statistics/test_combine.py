"""Contrasts of runs that are paired by base model: which runs count."""

import numpy as np
import pytest

from srpo.analysis.statistics.contrasts import available, combine

ROOM = np.random.default_rng(1)
QUESTIONS = ROOM.normal(50, 10, 20)
RUNS = {
    (benchmark, method): {seed: QUESTIONS + 10 * seed + shift + ROOM.normal(0, 1, 20) for seed in seeds}
    for benchmark in ("x", "y")
    for method, shift, seeds in (("a", 0.0, (1, 2, 3)), ("b", 3.0, (1, 2, 3)), ("base", -20.0, (1, 2, 3, 4)))
}
TERMS = {("b", "last"): 1.0, ("a", "last"): -1.0}


def values(runs):
    """Each number at the times that TERMS name."""
    return {(*key, "base" if key[1] == "base" else "last"): found for key, found in runs.items()}


def test_runs_of_one_seed_are_subtracted():
    found, apart = (combine(values(RUNS), TERMS, ["x", "y"], paired=paired) for paired in (True, False))
    assert found.value == pytest.approx(apart.value)
    assert found.high - found.low < (apart.high - apart.low) / 5
    assert found.meaning == "base model and question"


@pytest.mark.parametrize(("bounds", "ends"), [(None, None), ((0.0, 100.0), (-100.0, 100.0))])
def test_an_interval_of_a_difference_of_scores_ends_where_no_difference_can_be(bounds, ends):
    """Two runs of each may say less than nothing."""
    runs = {key: {seed: values + 60 * seed for seed, values in runs.items() if seed < 3} for key, runs in RUNS.items()}
    found = combine(values(runs), TERMS, ["x"], bounds)
    assert (found.low < -100, found.high > 100) == (bounds is None, bounds is None)
    assert ends in (None, (found.low, found.high))
    assert found.p_above(0) == combine(values(runs), TERMS, ["x"]).p_above(0)


def test_only_base_models_with_every_run_count():
    runs = RUNS | {("y", "b"): {seed: RUNS["y", "b"][seed] for seed in (2, 3)}}
    found = combine(values(runs), TERMS, ["x", "y"], paired=True)
    assert found.count == 2
    expected = [np.mean([runs[n, "b"][s] - runs[n, "a"][s] for s in (2, 3)]) for n in ("x", "y")]
    assert found.value == pytest.approx(np.mean(expected))
    nothing = runs | {("y", "a"): {1: RUNS["y", "a"][1]}}
    assert combine(values(nothing), TERMS, ["x", "y"], paired=True) is None
    assert available(values(nothing), TERMS, ["x", "y"], paired=True) == ["x"]
    apart = {("x", "a"): {1: QUESTIONS}, ("x", "b"): {1: QUESTIONS}, ("y", "a"): {2: QUESTIONS}}
    apart[("y", "b")] = {2: QUESTIONS}
    assert available(values(apart), TERMS, ["x", "y"], paired=True) == []


def test_the_untrained_model_is_paired_with_its_own_runs():
    terms = {("a", "last"): 1.0, ("base", "base"): -1.0}
    found = combine(values(RUNS), terms, ["x"], paired=True)
    assert found.value == pytest.approx(20, abs=1)
    assert found.count == 3
