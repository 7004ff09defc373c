"""Logs of one method under three names: runs and questions vary, the methods do not differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import paper_truth
import yaml
from made_up_scores import World
from scipy.special import expit

from srpo.config import Block, Experiment, RunId
from srpo.files import write_json, write_text

METHODS = ("grpo", "sdpo", "srpo")
SAME = paper_truth.Truth(seconds={"srpo": (80.0, 80.0, 80.0)}, length={"srpo": 500.0}, late_drop={})
VALIDATIONS = 12


@dataclass(frozen=True)
class Null:
    """What varies.

    Attributes:
        run_sd: standard deviation between runs, points.
        gain: by method, points that its scores lie above the others': no null if any does.
    """

    number: int = 0
    seeds: tuple[int, ...] = (1, 2, 3)
    run_sd: float = 2.0
    gain: tuple[tuple[str, float], ...] = ()


def experiment(null: Null) -> Experiment:
    """One model, five benchmarks, three methods."""
    whole = paper_truth.experiment()
    block = Block(models=["qwen3-8b"], benchmarks=[*whole.benchmarks], methods=[*METHODS], seeds=[*null.seeds])
    models = {"qwen3-8b": whole.models["qwen3-8b"]}
    return whole.model_copy(update={"name": "null", "models": models, "matrix": [block]})


def write(root: Path, null: Null, run_exists=lambda run: True) -> Experiment:
    """Write the logs of every run that exists."""
    made = experiment(null)
    write_text(root / "experiment.yaml", yaml.safe_dump(made.model_dump(mode="json"), sort_keys=False))
    for model, benchmark in made.bases():
        scores = expit(_difficulty(null, benchmark) - 1.5)
        paper_truth._evaluation(root / "base" / model / benchmark, {"base": [round(16 * s) / 16 for s in scores]})
    for run in filter(run_exists, made.runs()):
        _write_run(root / "runs" / run.path, null, run, made)
    return made


def _write_run(folder: Path, null: Null, run: RunId, experiment: Experiment) -> None:
    rng = np.random.default_rng([null.number, *run.path.encode()])
    own = _difficulty(null, run.benchmark) + rng.normal(0, 0.3, paper_truth.QUESTIONS[run.benchmark])
    shift = (rng.normal(0, null.run_sd) + dict(null.gain).get(run.method, 0.0)) / 18
    course = shift - 1.5 * np.exp(-np.arange(1, VALIDATIONS + 1) / 3)
    chance = expit(own + course[:, None])
    folder.mkdir(parents=True)
    method, last = experiment.methods[run.method], paper_truth.BUDGETS["10h"]
    steps = [paper_truth._step(SAME, run, method, number, 2 * VALIDATIONS) for number in range(1, 2 * VALIDATIONS + 1)]
    (folder / "steps.jsonl").write_text("".join(json.dumps(step) + "\n" for step in steps))
    found = rng.binomial(16, chance) / 16
    validations = [
        {"step": 2 * (i + 1), "clock": (i + 1) * last / VALIDATIONS, "avg_at_k": float(scores.mean()), "k": 16}
        | {"questions": len(scores), "response_length": 300.0, "truncated_fraction": 0.0}
        | {"question_scores": scores.tolist()}
        for i, scores in enumerate(found)
    ]
    (folder / "validations.jsonl").write_text("".join(json.dumps(v) + "\n" for v in validations))
    selected, again = {}, {}
    for name, seconds in paper_truth.BUDGETS.items():
        best = max((v for v in validations if v["clock"] <= seconds), key=lambda v: v["avg_at_k"])
        selected[name] = {key: best[key] for key in ("step", "clock", "avg_at_k")} | {"checkpoint": ""}
        again[name] = (rng.binomial(16, chance[best["step"] // 2 - 1]) / 16).tolist()
    write_json(
        folder / "summary.json",
        {"run": run.model_dump(), "steps": 24, "clock": last, "stopped_by": "budget", "budgets": selected},
    )
    paper_truth._evaluation(folder, again)


@cache
def _difficulty(null: Null, benchmark: str) -> np.ndarray:
    world = World(mean=0.7, questions=paper_truth.QUESTIONS[benchmark], hardness=2.0)
    rng = np.random.default_rng([null.number, *benchmark.encode()])
    return world.middle() + world.questions_drawn(rng)
