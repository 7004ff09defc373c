"""The planned runs of an experiment: the methods of each model, their benchmarks, and the order."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import pandas as pd

from srpo.analysis.results.load import Results, RunKey, by_run

SCORE_KEY = ["model", "method", "benchmark", "budget"]
AVERAGE = "average"
BASE = "base"

# Table 2 of the paper: the variant each ablation is compared with.
ABLATIONS = {"srpo_without_weighting": "srpo", "advantage_mix": "srpo_without_weighting"}


@lru_cache(maxsize=8)
def planned(results: Results, model: str) -> Mapping[str, list[str]]:
    """The methods planned for ``model``, each with its benchmarks, in the matrix's order."""
    plan: dict[str, list[str]] = {}
    for run in results.experiment.runs():
        if run.model == model and run.benchmark not in plan.setdefault(run.method, []):
            plan[run.method].append(run.benchmark)
    return plan


def is_paired(results: Results, model: str) -> bool:
    """Whether seed s of every method of ``model`` starts from base model s, so that runs are paired by base model."""
    return results.experiment.draws_per_seed(model)


def arms(results: Results, model: str) -> list[tuple[str, str]]:
    """The (benchmark, method) pairs of ``model``; the spread between runs is pooled over them."""
    return [(benchmark, method) for method, benchmarks in planned(results, model).items() for benchmark in benchmarks]


def mixed_questions(results: Results) -> dict[str, str]:
    """Benchmarks whose runs have different test questions, and what differs.

    Runs are compared question by question. So all runs must have the same questions in the same order: one checksum of
    the test split for each table of facts, and one number of questions.
    """
    checksums = {name: max(of.values(), key=len) for name, of in recorded_tests(results).items()}
    logs = pd.concat([results.validations, results.evaluations, results.bases])
    counts = logs["question_scores"].map(len).groupby(logs["benchmark"]).unique()
    found = {name: f"{len(there)} different test files" for name, there in checksums.items() if len(there) > 1}
    found |= {
        str(name): f"{' and '.join(map(str, sorted(there)))} test questions"
        for name, there in counts.items()
        if len(there) > 1
    }
    return {name: found[name] for name in results.experiment.benchmarks if name in found}


def recorded_tests(results: Results) -> dict[str, dict[str, set[str]]]:
    """The checksums of the test splits that runs have recorded, by benchmark and data set."""
    found: dict[str, dict[str, set[str]]] = {}
    for run, record in results.provenance.items():
        if checksum := (record.get("data") or {}).get("test"):
            base_model = results.experiment.models[run.model].base_model(run.seed)
            data_set = results.experiment.benchmarks[run.benchmark].for_model(base_model).data_set
            found.setdefault(run.benchmark, {}).setdefault(data_set, set()).add(checksum)
    return found


@lru_cache(maxsize=2)
def repeated_runs(results: Results) -> Mapping[RunKey, int]:
    """Runs with the same logs as an earlier seed of the same arm, and that seed.

    They are one run under several seeds, and count once: their agreement says nothing about other runs.
    """
    names = map(str, results.steps)
    measured = [name for name in names if name.startswith(("reward/", "loss/", "response_length/", "actor/"))]
    steps, validations = by_run(results.steps), by_run(results.validations)
    found: dict[RunKey, int] = {}
    first: dict[tuple, int] = {}
    for key in by_run(results.runs):
        if key in steps and key in validations:
            *arm, seed = key
            scores = np.concatenate([*validations[key]["question_scores"]])
            same = (*arm, steps[key][["step", *measured]].to_numpy().tobytes(), scores.tobytes())
            if (earlier := first.setdefault(same, seed)) != seed:
                found[key] = earlier
    return found


def main_methods(results: Results) -> list[str]:
    """The methods of table 1: all that are not ablations."""
    return [m for m in results.experiment.methods if m not in ABLATIONS]


def model_benchmarks(results: Results, model: str, methods: Iterable[str] | None = None) -> list[str]:
    """The benchmarks over which methods of ``model`` are averaged: those planned for every one of ``methods``.

    Without ``methods``, the benchmarks of table 1's methods together, or of the base evaluations.
    """
    plan = planned(results, model)
    bases = [benchmark for name, benchmark in results.experiment.bases() if name == model]
    if methods is not None:
        sets = [bases if m == BASE else plan.get(m, []) for m in methods]
        return [b for b in results.experiment.benchmarks if sets and all(b in s for s in sets)]
    trained = {b for method in main_methods(results) for b in plan.get(method, [])} or set(bases)
    return [b for b in results.experiment.benchmarks if b in trained]


def ablated(results: Results, model: str) -> list[str]:
    """SRPO and its ablations in the order of comparison; empty if the matrix holds no ablation of it."""
    plan = planned(results, model)
    methods = [m for m in ("srpo", *ABLATIONS) if m in plan]
    return methods if set(methods) & set(ABLATIONS) else []


def in_matrix_order(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """Sort rows in the order of the experiment file, whatever the order in which files were read."""
    experiment = results.experiment
    orders = {
        "model": list(experiment.models),
        "benchmark": [*experiment.benchmarks, AVERAGE],
        "method": [BASE, *experiment.methods],
        "budget": [BASE, *experiment.training.budget_seconds],
    }
    keys = [c for c in ("model", "method", "benchmark", "budget", "seed") if c in frame]
    rank = pd.DataFrame({k: frame[k].map(orders[k].index) if k in orders else frame[k] for k in keys})
    return frame.loc[rank.sort_values(keys, kind="stable").index].reset_index(drop=True)
