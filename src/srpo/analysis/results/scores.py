"""Scores by model, benchmark, method and budget, in percent.

``in_training`` is the paper's protocol: the highest avg@k of the validations within the budget. ``resampled`` is the
score of the selected checkpoint with new samples, which do not contain the noise that made it the maximum. Their
difference is the ``selection_bias``.

The checkpoint was still selected on the reported questions. ``cross_fitted`` selects it on one half of the test
questions and measures it on the other half, in training (:mod:`~srpo.analysis.results.cross_fit`); ``resampled``
minus ``cross_fitted`` is the ``question_bias``. It decides: comparisons and verdicts use it. ``end`` is
the mean of the last validations, without any selection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from srpo.analysis.results.contrasts import run_spread
from srpo.analysis.results.cross_fit import MIN_QUESTIONS, end_score, selected_scores
from srpo.analysis.results.estimates import PERCENT, Estimate, Spread
from srpo.analysis.results.load import RUN_KEY, Results, records, tidy
from srpo.analysis.results.lookups import Lookup, Terms, combine, estimate_columns
from srpo.analysis.results.matrix import AVERAGE, BASE, SCORE_KEY, arms, is_paired, mixed_questions, planned
from srpo.analysis.results.run_logs import RunLogs

Deciding = Literal["cross_fitted", "in_training"]
SCORES = ("in_training", "resampled", "selection_bias", "cross_fitted", "question_bias")
_BIASES = ("selection_bias", "question_bias")


class Scores:
    """All scores of an experiment.

    Attributes:
        runs: one row per run and budget with its scores (``in_training``, ``resampled``, ``cross_fitted``, percent).
        deciding: the score of comparisons and verdicts: ``cross_fitted``, unless a run has too few questions for it.
        incomparable: benchmarks whose runs do not have the same test questions, each with what differs; nothing is
            compared on them.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self._vectors: dict[tuple[str, ...], dict[int, np.ndarray]] = {}
        self.incomparable = mixed_questions(results)
        for base in records(results.bases):
            key = (base["model"], base["benchmark"], BASE, BASE)
            # Validation never sees the untrained model, so its resampled score is used for all.
            for score in ("in_training", "resampled", "cross_fitted", "end"):
                self._vectors.setdefault((score, *key), {})[base["seed"]] = 100 * base["question_scores"]
        self.runs = _run_scores(results, self._vectors)
        lacking = self.runs["in_training"].notna() & self.runs["cross_fitted"].isna()
        self.deciding: Deciding = "in_training" if lacking.any() else "cross_fitted"

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, results: Results) -> Scores:
        return cls(results)

    def lookup(self, model: str, score: str) -> Lookup:
        """Per-question values of ``score`` (:data:`SCORES`, ``end``) for runs of ``model``, percent."""
        return lambda benchmark, method, budget: self._vectors.get((score, model, benchmark, method, budget), {})

    def estimate(
        self, model: str, terms: Terms, benchmarks: Iterable[str], score: str | None = None
    ) -> Estimate | None:
        """A contrast of scores in points; by default of the deciding score.

        None if runs of a benchmark have different test questions.
        """
        score, benchmarks = score or self.deciding, list(benchmarks)
        if any(benchmark in self.incomparable for benchmark in benchmarks):
            return None
        bounds = None if score in _BIASES else PERCENT
        paired = is_paired(self.results, model)
        return combine(self.lookup(model, score), terms, benchmarks, bounds, arms(self.results, model), paired)

    def run_spread(self, model: str, budget: str) -> Spread | None:
        """The spread between training seeds of the scores at ``budget``, pooled over the methods with several."""
        lookup = self.lookup(model, self.deciding)
        found = [lookup(benchmark, method, budget) for benchmark, method in arms(self.results, model)]
        same = [list(runs.values()) for runs in found if len({len(scores) for scores in runs.values()}) == 1]
        return run_spread([np.array(runs) for runs in same])

    def questions(self, model: str) -> list[int]:
        """The numbers of test questions of the benchmarks that were measured."""
        counts = {key[2]: len(next(iter(runs.values()))) for key, runs in self._vectors.items() if key[1] == model}
        return [*counts.values()]


TITLES = {
    "in_training": "in-training maximum",
    "cross_fitted": "cross-fitted",
    "resampled": "selected checkpoint, resampled",
    "end": "mean of the last three validations",
}
"""What readers call a score."""


def _run_scores(results: Results, vectors: dict[tuple[str, ...], dict[int, np.ndarray]]) -> pd.DataFrame:
    """One row per run and budget with both scores.

    Args:
        vectors: per-question scores, percent, by arm and seed. It has the base models' scores; the runs' are added.
    """
    evaluated = results.evaluations.set_index([*RUN_KEY, "budget"])["question_scores"].to_dict()
    logs, rows = RunLogs.of(results), []
    for run in logs.runs:
        *arm, seed = run
        for budget, seconds in results.experiment.training.budget_seconds.items():
            found: dict[str, np.ndarray] = {}
            # A run that is still within the budget has no score yet: it may improve.
            if run in logs.validations and logs.reached(run, seconds):
                within = logs.validations[run][logs.validations[run]["clock"] <= seconds]
                if len(within):
                    best = within["avg_at_k"].argmax()
                    found["in_training"] = 100 * within["question_scores"].iloc[best]
                    found |= _unselected(within)
            if (*run, budget) in evaluated:
                found["resampled"] = 100 * evaluated[(*run, budget)]
            both = {"in_training", "resampled"} <= set(found)
            if both and len(found["in_training"]) == len(found["resampled"]):
                found["selection_bias"] = found["in_training"] - found["resampled"]
                if "cross_fitted" in found:
                    found["question_bias"] = found["resampled"] - found["cross_fitted"]
            for score, vector in found.items():
                vectors.setdefault((score, *arm, budget), {})[seed] = vector
            means = {score: vector.mean() for score, vector in found.items() if score in SCORES}
            rows.append(dict(zip(RUN_KEY, run, strict=True)) | {"budget": budget} | means)
    return tidy(rows, ["budget", *SCORES])


def _unselected(within: pd.DataFrame) -> dict[str, np.ndarray]:
    """Scores of a run within a budget that have no selection bias, percent, one per question.

    Too few questions have no cross-fitted score.
    """
    if within["question_scores"].map(len).nunique() > 1:
        return {}
    scores = 100 * np.vstack([*within["question_scores"]])
    found = {"end": end_score(scores)}
    if scores.shape[1] >= MIN_QUESTIONS:
        found["cross_fitted"] = selected_scores(scores)
    return found


# ---------------------------------------------------------------- frames


def score_frame(
    results: Results,
    methods: Mapping[str, list[str]],
    average_over: Mapping[str, list[str]],
    shown: Sequence[str] = SCORES,
) -> pd.DataFrame:
    """Mean over seeds with its interval for every planned score, base models (budget ``base``) first.

    Args:
        shown: which scores: of :data:`SCORES`, and ``end``.
        methods: which methods of each model; :data:`BASE` is one.
        average_over: the benchmarks of each model's rows of benchmark ``average``; none if fewer than two.

    Returns:
        One row per :data:`SCORE_KEY`: each of ``shown`` in percent or points with
        ``_low``, ``_high``, the ``_unit`` of its interval and the number of its ``_seeds``. An average is missing
        unless all its benchmarks have a score.
    """
    scores = Scores.of(results)
    rows = []
    for model, names in methods.items():
        for method in names:
            benchmarks = _benchmarks_of(results, model, method)
            for budget in [BASE] if method == BASE else results.experiment.training.budget_seconds:
                averaged = {benchmark: [benchmark] for benchmark in benchmarks}
                if len(average_over.get(model, ())) > 1:
                    averaged[AVERAGE] = average_over[model]
                for name, over in averaged.items():
                    row: dict[str, float | str] = dict(zip(SCORE_KEY, (model, method, name, budget), strict=True))
                    for score in shown:
                        estimate = scores.estimate(model, {(method, budget): 1.0}, over, score)
                        seeds = [len(scores.lookup(model, score)(b, method, budget)) for b in over] if estimate else [0]
                        row |= estimate_columns(score, estimate) | {f"{score}_seeds": min(seeds)}
                    rows.append(row)
    values = [f"{score}{end}" for score in shown for end in ("", "_low", "_high", "_unit", "_seeds")]
    frame = pd.DataFrame(rows, columns=[*SCORE_KEY, *values])
    base = frame["method"] == BASE  # the base score is not a maximum over validations
    for score in {*shown} - {"resampled", "end"}:
        frame.loc[base, [score, f"{score}_low", f"{score}_high"]] = np.nan
        frame.loc[base, f"{score}_unit"], frame.loc[base, f"{score}_seeds"] = "", 0
    return frame


def _benchmarks_of(results: Results, model: str, method: str) -> list[str]:
    if method == BASE:
        return [benchmark for name, benchmark in results.experiment.bases() if name == model]
    return planned(results, model)[method]
