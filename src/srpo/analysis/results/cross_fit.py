"""Choose on one half of the questions, measure on the other, swap, and average: no number flatters itself.

The best of many noisy scores is a lucky one, and on the questions that chose it, it stays lucky however often they are
sampled again. Whatever is chosen here is chosen without the question that it is measured on (cross-fitting;
Chernozhukov et al. 2018). Each result is one number a question, and its interval that of any other score
(:func:`~srpo.analysis.results.contrasts.contrast`).

Halves are drawn :data:`SPLITS` times with a fixed seed and averaged, so that no single division of the questions
decides. Runs with the same number of questions get the same halves, so that methods stay comparable by question.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from srpo.seeds import derive_seed

WINDOW = 3
"""Validations in a stretch: one alone is noisy."""
SPLITS = 10


def selected_scores(scores: np.ndarray) -> np.ndarray:
    """The score of the best validation, chosen for each question by the other half of the questions.

    Args:
        scores: validations x questions, those within the budget.

    Returns:
        One score a question. Its mean is free of the luck that the paper's maximum over validations has on the
        reported samples and questions; half the questions choose a little worse than all, so that it errs low.
    """
    return _cross_fitted(scores, lambda chosen_by, measured_on: measured_on[chosen_by.mean(axis=1).argmax()])


def late_drop(scores: np.ndarray, stretch: int = WINDOW) -> np.ndarray:
    """By how much the last validations lie below the best stretch, chosen by the other half of the questions.

    Args:
        scores: validations x questions of a finished run, more than two stretches of them.

    Returns:
        One difference a question, in the unit of ``scores``: above 0 on average if training ended below its best, 0
        if noise alone moved it, and exactly 0 if every half chooses the last stretch (of equally good ones the latest
        is the best). The run's own slow ups and downs are real and stay: compare methods, as their ups and downs
        cancel on average.
    """
    windows = np.lib.stride_tricks.sliding_window_view(scores, stretch, axis=0).mean(axis=-1)

    def drop(chosen_by: np.ndarray, measured_on: np.ndarray) -> np.ndarray:
        means = chosen_by.mean(axis=1)
        latest_best = np.flatnonzero(means >= means.max() - 1e-9)[-1]  # equal but for rounding is equal
        return measured_on[latest_best] - measured_on[-1]

    return _cross_fitted(windows, drop)


def area_under_curve(clock: np.ndarray, scores: np.ndarray, until: float) -> np.ndarray:
    """The mean score over training time up to ``until``, one a question: a summary that selects nothing.

    Args:
        clock: seconds of each validation, increasing.
        scores: validations x questions.
        until: seconds of the budget; the curve stays at its last score between the last validation and there.

    Returns:
        Trapezoids from the first validation on, divided by their time; the score itself of a single validation.
    """
    within = clock <= until
    clock, scores = clock[within], scores[within]
    if until > clock[-1]:
        clock, scores = np.append(clock, until), np.vstack([scores, scores[-1:]])
    return np.trapezoid(scores, clock, axis=0) / (clock[-1] - clock[0]) if len(clock) > 1 else scores[0]


def end_score(scores: np.ndarray, stretch: int = WINDOW) -> np.ndarray:
    """The mean of the last validations (validations x questions), one a question."""
    return scores[-stretch:].mean(axis=0)


def _cross_fitted(scores: np.ndarray, measure: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """``measure`` of every question, with what the questions of the other half chose; averaged over the splits."""
    total = np.zeros(scores.shape[1])
    for one, other in _halves(scores.shape[1]):
        total[other] += measure(scores[:, one], scores[:, other])
        total[one] += measure(scores[:, other], scores[:, one])
    return total / SPLITS


@cache
def _halves(questions: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(derive_seed("report", "question halves"))
    orders = [rng.permutation(questions) for _ in range(SPLITS)]
    return [(order[: questions // 2], order[questions // 2 :]) for order in orders]
