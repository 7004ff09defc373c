"""Logs of one method under three names: runs and questions vary, the methods do not differ."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import paper_truth
import yaml
from made_up_scores import World
from run_files import base_identity, validation, write_evaluation, write_run
from scipy.special import expit

from srpo.analysis.load import load_results
from srpo.analysis.numbers import with_numbers
from srpo.analysis.results import Results
from srpo.experiment.config import Block, Experiment
from srpo.ground.files import write_text
from srpo.ground.layout import RunId
from srpo.hosts.functional import load_method

METHODS = ("grpo", "sdpo", "srpo")
SAME = paper_truth.Truth(seconds={"srpo": (80.0, 80.0, 80.0)}, length={"srpo": 500.0}, late_drop={})
VALIDATIONS = 30


@dataclass(frozen=True)
class Null:
    """What varies.

    Attributes:
        run_sd: standard deviation between runs, points.
        gain: by method, points that its scores lie above the others': no null if any does.
        methods: one and the same, under these names.
    """

    number: int = 0
    seeds: tuple[int, ...] = (1, 2, 3)
    run_sd: float = 2.0
    gain: tuple[tuple[str, float], ...] = ()
    methods: tuple[str, ...] = METHODS


def experiment(null: Null) -> Experiment:
    """One model and five benchmarks."""
    whole = paper_truth.experiment()
    block = Block(models=["qwen3-8b"], benchmarks=[*whole.benchmarks], methods=[*null.methods], seeds=[*null.seeds])
    models = {"qwen3-8b": whole.models["qwen3-8b"]}
    methods = {name: load_method(name) for name in null.methods}
    changes = {"name": "null", "models": models, "methods": methods, "matrix": [block]}
    return whole.model_copy(update=changes | {"training": whole.training.model_copy(update={"validate_every": 2})})


def write(root: Path, null: Null, run_exists: Callable[[RunId], bool] = lambda run: True) -> Experiment:
    """Write the logs of every run that exists."""
    made = experiment(null)
    write_text(root / "experiment.yaml", yaml.safe_dump(made.model_dump(mode="json"), sort_keys=False))
    for model, benchmark in made.bases():
        scores = expit(_difficulty(null, benchmark) - 1.5)
        rounded = [round(16 * float(s)) / 16 for s in scores]
        write_evaluation(root / "base" / model / benchmark, base_identity(model, benchmark), 16, {"base": (0, rounded)})
    for run in filter(run_exists, made.runs()):
        _write_run(root / "runs" / run.path, null, run, made)
    return made


def results_of(root: Path, null: Null, run_exists: Callable[[RunId], bool] = lambda run: True) -> Results:
    """Write the logs and read them."""
    write(root, null, run_exists)
    return load_results(root)


def _write_run(folder: Path, null: Null, run: RunId, experiment: Experiment) -> None:
    rng = np.random.default_rng([null.number, *run.path.encode()])
    own = _difficulty(null, run.benchmark) + rng.normal(0, 0.3, paper_truth.QUESTIONS[run.benchmark])
    shift = (rng.normal(0, null.run_sd) + dict(null.gain).get(run.method, 0.0)) / 18
    course = shift - 1.5 * np.exp(-np.linspace(0, 4, VALIDATIONS + 1)[1:])
    chance = expit(own + course[:, None])
    method, last = experiment.methods[run.method], paper_truth.BUDGETS["10h"]
    steps = [paper_truth.step(SAME, run, method, number, 2 * VALIDATIONS) for number in range(1, 2 * VALIDATIONS + 1)]
    validations = [
        validation(2 * (i + 1), (i + 1) * last / VALIDATIONS, scores.tolist(), 16)
        for i, scores in enumerate(rng.binomial(16, chance) / 16)
    ]
    selected = write_run(folder, run, steps, validations, paper_truth.BUDGETS)
    again = {
        name: (best["step"], (rng.binomial(16, chance[best["step"] // 2 - 1]) / 16).tolist())
        for name, best in selected.items()
    }
    write_evaluation(folder, run.model_dump(), 16, again)


@cache
def _difficulty(null: Null, benchmark: str) -> np.ndarray:
    world = World(mean=0.7, questions=paper_truth.QUESTIONS[benchmark], hardness=2.0)
    rng = np.random.default_rng([null.number, *benchmark.encode()])
    return world.middle() + world.questions_drawn(rng)


def by_base_model(results: Results) -> Results:
    """``results`` as if seed s of every method had started from base model s."""
    experiment = results.experiment
    models = {name: model.model_copy(update={"draws": "per_seed"}) for name, model in experiment.models.items()}
    seeds = sorted(results.runs["seed"].unique())
    bases = pd.concat([results.bases.assign(seed=seed) for seed in seeds], ignore_index=True)
    return with_numbers(replace(results, experiment=experiment.model_copy(update={"models": models}), bases=bases))
