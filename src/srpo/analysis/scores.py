"""Scores by model, benchmark, method and budget, in percent, and contrasts of anything that runs have.

Two scores stand side by side. ``in_training`` is the paper's protocol: the highest avg@k among the
validations whose training clock is within the budget. ``resampled`` is the score of the checkpoint that
this maximum selected, sampled anew, so that the noise that made it the maximum does not flatter it. Their
difference is the ``selection_bias``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Literal

import numpy as np
import pandas as pd

from srpo.analysis.load import RUN_KEY, Results, tidy
from srpo.analysis.statistics import Arm, Estimate, contrast

CELL = ["model", "method", "benchmark", "budget"]
AVERAGE = "average"
BASE = "base"
Protocol = Literal["in_training", "resampled"]
SCORES = ("in_training", "resampled", "selection_bias")

# Table 2 of the paper: the variant each ablation is compared with.
ABLATIONS = {"srpo_without_weighting": "srpo", "advantage_mix": "srpo_without_weighting"}

Terms = Mapping[tuple[str, str], float]
"""Weights by (method, when): which budget, or which part of training, is the lookup's to say."""
Lookup = Callable[[str, str, str], Mapping[int, np.ndarray]]
"""(benchmark, method, when) to the values of each seed, one a question; empty where there are none."""


def combine(lookup: Lookup, terms: Terms, benchmarks: Iterable[str]) -> Estimate | None:
    """The contrast of ``terms`` averaged over ``benchmarks``; None unless every benchmark has every term.

    None, too, if its runs are not of one test split, as while an experiment whose questions changed is trained anew.
    Terms of one method are combined run by run, so that early and late of the same run are compared; different
    methods are different runs.
    """
    strata = []
    for benchmark in benchmarks:
        arms, questions = [], set()
        for method in dict.fromkeys(method for method, _ in terms):
            weights = {when: weight for (name, when), weight in terms.items() if name == method}
            found = {when: lookup(benchmark, method, when) for when in weights}
            seeds = [seed for seed in next(iter(found.values())) if all(seed in of for of in found.values())]
            questions |= {len(by_seed[seed]) for by_seed in found.values() for seed in seeds}
            if not seeds or len(questions) > 1:
                return None
            runs = [sum(weight * found[when][seed] for when, weight in weights.items()) for seed in seeds]
            arms.append(Arm(np.array(runs), fixed=method == BASE))
        strata.append(arms)
    return contrast(strata) if strata else None


def available(lookup: Lookup, terms: Terms, benchmarks: Iterable[str]) -> list[str]:
    """Those of ``benchmarks`` that have every term."""
    return [benchmark for benchmark in benchmarks if combine(lookup, terms, [benchmark])]


class Scores:
    """Every score of an experiment, ready to be compared.

    Attributes:
        runs: one row per run and budget with both scores (``in_training``, ``resampled``, percent).
        protocol: the score that comparisons use: sampled anew, unless some run has been validated but not
            evaluated yet.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self.runs, self._vectors = _run_scores(results)
        for base in results.bases.itertuples():
            key = (base.model, base.benchmark, BASE, BASE)
            # Validation never sees the untrained model, so its anew sampled score stands in for both.
            for score in ("in_training", "resampled"):
                self._vectors.setdefault((score, *key), {})[0] = 100 * base.question_scores
        evaluated = self.runs["resampled"].notna().sum()
        complete = evaluated >= max(1, self.runs["in_training"].notna().sum())
        self.protocol: Protocol = "resampled" if complete else "in_training"

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, results: Results) -> Scores:
        """The scores of ``results``, computed once."""
        return cls(results)

    def lookup(self, model: str, score: str) -> Lookup:
        """Per-question values of ``score`` (:data:`SCORES`) for runs of ``model``, percent."""
        return lambda benchmark, method, budget: self._vectors.get((score, model, benchmark, method, budget), {})

    def seeds(self, model: str, benchmark: str, method: str, budget: str, score: str) -> int:
        """How many runs a score is the mean of."""
        return len(self.lookup(model, score)(benchmark, method, budget))

    def estimate(
        self, model: str, terms: Terms, benchmarks: Iterable[str], score: str | None = None
    ) -> Estimate | None:
        """A contrast of scores, points; by default of the protocol that comparisons use."""
        return combine(self.lookup(model, score or self.protocol), terms, benchmarks)

    def selection_bias(self) -> Estimate | None:
        """The mean selection bias of all trained scores, points: budgets within runs, runs within benchmarks."""
        arms: dict[str, list[np.ndarray]] = {}
        budgets = list(self.results.experiment.training.budgets)
        for model in self.results.experiment.models:
            lookup = self.lookup(model, "selection_bias")
            for method, benchmarks in planned(self.results, model).items():
                for benchmark in benchmarks:
                    found = [by_seed for budget in budgets if (by_seed := lookup(benchmark, method, budget))]
                    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in found))) if found else []
                    if seeds and len({len(by_seed[seed]) for by_seed in found for seed in seeds}) == 1:
                        runs = [np.mean([by_seed[seed] for by_seed in found], axis=0) for seed in seeds]
                        arms.setdefault(benchmark, []).append(np.array(runs))
        arms = {name: those for name, those in arms.items() if len({runs.shape[1] for runs in those}) == 1}
        return contrast([[Arm(runs / len(those)) for runs in those] for those in arms.values()]) if arms else None


PROTOCOLS = {"resampled": "selected checkpoint sampled anew", "in_training": "in-training maximum"}


def _run_scores(results: Results) -> tuple[pd.DataFrame, dict[tuple[str, ...], dict[int, np.ndarray]]]:
    """One row per run and budget with both scores; and their per-question vectors, percent, by cell and seed."""
    evaluated = results.evaluations.set_index([*RUN_KEY, "budget"])["question_scores"].to_dict()
    runs = results.runs.set_index(RUN_KEY)
    clock, finished = runs["clock"].to_dict(), (runs["status"] == "finished").to_dict()
    validations = dict(list(results.validations.groupby(RUN_KEY)))
    rows, vectors = [], {}
    for key in runs.index:
        for budget, seconds in results.experiment.training.budgets.items():
            found = {}
            # A run that has not used up the budget yet may still improve on what it has: no score.
            if key in validations and (finished[key] or clock[key] >= seconds):
                within = validations[key][validations[key]["clock"] <= seconds]
                if len(within):
                    found["in_training"] = 100 * within.loc[within["avg_at_k"].idxmax(), "question_scores"]
            if (*key, budget) in evaluated:
                found["resampled"] = 100 * evaluated[(*key, budget)]
            if len(found) == 2 and len(found["in_training"]) == len(found["resampled"]):
                found["selection_bias"] = found["in_training"] - found["resampled"]
            *cell, seed = key
            for score, vector in found.items():
                vectors.setdefault((score, *cell, budget), {})[seed] = vector
            means = {score: vector.mean() for score, vector in found.items()}
            rows.append(dict(zip(RUN_KEY, key, strict=True)) | {"budget": budget} | means)
    return tidy(rows, ["budget", *SCORES]), vectors


# ---------------------------------------------------------------- frames


def score_frame(
    results: Results, methods: Mapping[str, list[str]], average_over: Mapping[str, list[str]]
) -> pd.DataFrame:
    """Mean over seeds with its interval for every planned cell, base models (budget ``base``) first.

    Args:
        methods: which methods of each model; :data:`BASE` is one.
        average_over: the benchmarks of each model's rows of benchmark ``average``; none if fewer than two.

    Returns:
        One row a cell: ``in_training``, ``resampled`` and ``selection_bias`` in percent or points, each with
        ``_low``, ``_high``, the ``_unit`` of its interval and the ``_seeds`` behind it. An average is missing
        unless all its benchmarks are there.
    """
    scores = Scores.of(results)
    rows = []
    for model, names in methods.items():
        for method in names:
            benchmarks = _benchmarks_of(results, model, method)
            for budget in [BASE] if method == BASE else results.experiment.training.budgets:
                cells = [(benchmark, [benchmark]) for benchmark in benchmarks]
                if len(average_over.get(model, ())) > 1:
                    cells.append((AVERAGE, average_over[model]))
                for name, over in cells:
                    row = dict(zip(CELL, (model, method, name, budget), strict=True))
                    for score in SCORES:
                        estimate = scores.estimate(model, {(method, budget): 1.0}, over, score)
                        seeds = [scores.seeds(model, b, method, budget, score) for b in over] if estimate else [0]
                        row |= columns(score, estimate) | {f"{score}_seeds": min(seeds)}
                    rows.append(row)
    values = [f"{score}{end}" for score in SCORES for end in ("", "_low", "_high", "_unit", "_seeds")]
    frame = pd.DataFrame(rows, columns=[*CELL, *values])
    base = frame["method"] == BASE  # what is no maximum is in no column of maxima
    for score in ("in_training", "selection_bias"):
        frame.loc[base, [score, f"{score}_low", f"{score}_high"]] = np.nan
        frame.loc[base, [f"{score}_unit", f"{score}_seeds"]] = ["", 0]
    return frame


def columns(name: str, estimate: Estimate | None) -> dict[str, float | str]:
    """An estimate as columns of a frame."""
    if estimate is None:
        return {name: np.nan, f"{name}_low": np.nan, f"{name}_high": np.nan, f"{name}_unit": ""}
    ends = {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {name: estimate.value, **ends, f"{name}_unit": estimate.unit if estimate.has_interval else ""}


def _benchmarks_of(results: Results, model: str, method: str) -> list[str]:
    if method == BASE:
        return [benchmark for name, benchmark in results.experiment.bases() if name == model]
    return planned(results, model)[method]


# ---------------------------------------------------------------- the matrix


def planned(results: Results, model: str) -> dict[str, list[str]]:
    """The methods planned for ``model``, each with its benchmarks, in the matrix's order."""
    plan: dict[str, list[str]] = {}
    for run in results.experiment.runs():
        if run.model == model and run.benchmark not in plan.setdefault(run.method, []):
            plan[run.method].append(run.benchmark)
    return plan


def main_methods(results: Results) -> list[str]:
    """The methods of table 1: all that are not ablations."""
    return [m for m in results.experiment.methods if m not in ABLATIONS]


def model_benchmarks(results: Results, model: str, methods: Iterable[str] | None = None) -> list[str]:
    """The benchmarks over which methods of ``model`` are averaged: those planned for every one of ``methods``.

    Without ``methods``, the benchmarks of table 1's methods together, or those of the base evaluations.
    """
    plan = planned(results, model)
    bases = [benchmark for name, benchmark in results.experiment.bases() if name == model]
    if methods is not None:
        sets = [bases if m == BASE else plan.get(m, []) for m in methods]
        return [b for b in results.experiment.benchmarks if sets and all(b in s for s in sets)]
    trained = {b for method in main_methods(results) for b in plan.get(method, [])} or set(bases)
    return [b for b in results.experiment.benchmarks if b in trained]
