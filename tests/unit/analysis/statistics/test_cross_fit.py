"""What is chosen on one half of the questions and measured on the other does not flatter itself."""

import numpy as np
import pytest
from made_up_scores import World, curve, late_drops, selection_biases, true_drop

from srpo.analysis.statistics.cross_fit import late_drop, selected_scores

EXPERIMENTS = 60


def same_questions(scores):
    windows = np.lib.stride_tricks.sliding_window_view(scores, 3, axis=0).mean(axis=-1)
    return windows[windows.mean(axis=1).argmax()] - windows[-1]


def test_no_late_drop_is_found_where_none_is():
    rates = late_drops(np.random.default_rng(1), World(), 0.0, late_drop, 5, EXPERIMENTS)
    assert rates.mean == pytest.approx(0, abs=0.3)
    assert rates.coverage > 88
    assert rates.false_above < 6


def test_the_best_window_on_its_own_questions_finds_one_everywhere():
    rates = late_drops(np.random.default_rng(1), World(), 0.0, same_questions, 5, EXPERIMENTS)
    assert rates.mean > 0.8
    assert rates.coverage < 60


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_late_drop_against_another_methods(seeds):
    rates = late_drops(np.random.default_rng(2), World(seeds=seeds), 8.0, late_drop, 5, EXPERIMENTS, against=0.0)
    assert rates.truth == pytest.approx(true_drop(World(), 8.0))
    assert rates.mean == pytest.approx(rates.truth, abs=0.5)
    assert rates.coverage > 86


def test_a_curve_that_ends_at_its_best_drops_by_exactly_nothing():
    rising = np.linspace(0, 90, 12)[:, None] + np.zeros(20)
    assert late_drop(rising).tolist() == [0.0] * 20


def test_a_drop_without_noise_is_the_drop():
    world = World(questions=20)
    steep = np.concatenate([np.linspace(0, 80, 6), np.full(4, 80.0), np.full(4, 50.0)])
    assert late_drop(steep[:, None] + np.zeros(20)) == pytest.approx(30.0)
    rng = np.random.default_rng(3)
    scores = curve(rng, world, world.questions_drawn(rng), 5.0)
    assert late_drop(scores).shape == (20,)
    assert np.array_equal(late_drop(scores), late_drop(scores))


def test_selection_luck_is_of_samples_and_of_questions_and_cross_fitting_has_neither():
    biases = selection_biases(np.random.default_rng(4), World(questions=50, taste=0.7), EXPERIMENTS)
    assert biases["in_training"] > biases["resampled"] + 0.7
    assert biases["resampled"] > 1.5
    assert biases["cross_fitted"] == pytest.approx(0, abs=0.8)


def test_one_checkpoint_is_reported_as_it_is():
    scores = np.arange(8.0)[None, :]
    assert selected_scores(scores) == pytest.approx(scores[0])
