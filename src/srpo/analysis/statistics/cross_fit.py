"""Cross-fitting: select on one half of the questions, measure on the other half, swap the halves, and average.

The best of many noisy scores is partly luck. On the questions that selected it, the luck stays, however often they are
sampled again. Here a question is never measured by what it helped to select (cross-fitting; Chernozhukov et al. 2018).
Each result is one number per question, and its interval is computed as for any other score
(:func:`~srpo.analysis.statistics.contrasts.contrast`).

The questions are split :data:`SPLITS` times with a fixed seed and the results are averaged, so that they do not depend
on a single split. Runs with the same number of questions have the same splits, so methods can be compared by question.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

MIN_QUESTIONS = 8
"""With fewer questions, half of them neither select nor measure anything."""
WINDOW = 3
"""Validations in a window; a single validation is noisy."""
SPLITS = 10
SEED = 1528870920160104293


def selected_scores(scores: np.ndarray) -> np.ndarray:
    """The score of the best validation, chosen for each question by the other half of the questions.

    Args:
        scores: validations x questions, those within the budget.

    Returns:
        One score per question. Its mean has no selection bias, unlike the paper's maximum over validations. It is
        slightly too low, because half of the questions select less well than all of them.
    """
    return _cross_fitted(scores, lambda chosen_by, measured_on: measured_on[chosen_by.mean(axis=1).argmax()])


def late_drop(scores: np.ndarray) -> np.ndarray:
    """How far the last validations are below the best window, which the other half of the questions selects.

    Args:
        scores: validations x questions of a finished run, with more than two windows of validations.

    Returns:
        One difference per question, in the unit of ``scores``: above 0 on average if training ended below its best, 0
        on average if there was only noise, and exactly 0 if every half selects the last window (of equally good
        windows the latest counts). A run's own slow ups and downs are real and remain: compare methods, whose ups and
        downs cancel on average.
    """
    windows = np.lib.stride_tricks.sliding_window_view(scores, WINDOW, axis=0).mean(axis=-1)

    def drop(chosen_by: np.ndarray, measured_on: np.ndarray) -> np.ndarray:
        means = chosen_by.mean(axis=1)
        latest_best = np.flatnonzero(means >= means.max() - 1e-9)[-1]  # ignores rounding errors
        return measured_on[latest_best] - measured_on[-1]

    return _cross_fitted(windows, drop)


def end_score(scores: np.ndarray) -> np.ndarray:
    """The mean of the last validations (validations x questions), one per question."""
    return scores[-WINDOW:].mean(axis=0)


def _cross_fitted(scores: np.ndarray, measure: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """One number per question: the other half of the questions selects what is measured; averaged over the splits."""
    total = np.zeros(scores.shape[1])
    for one, other in _halves(scores.shape[1]):
        total[other] += measure(scores[:, one], scores[:, other])
        total[one] += measure(scores[:, other], scores[:, one])
    return total / SPLITS


@cache
def _halves(questions: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(SEED)
    orders = [rng.permutation(questions) for _ in range(SPLITS)]
    return [(order[: questions // 2], order[questions // 2 :]) for order in orders]
