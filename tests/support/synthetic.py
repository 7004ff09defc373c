"""A fabricated results directory: random logs that follow docs/architecture.md to the letter.

The curves are invented (each method saturates, SDPO falls after its peak); they only have to look like
training so that tables, figures and the report have something to show.
"""

import math
import random
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml
from run_files import Event, base_identity, validation, write_evaluation, write_log, write_run

from srpo.algorithm.method import Method
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment, LocalModel
from srpo.ground.files import write_json, write_text
from srpo.ground.layout import RunId

# final score, share of the gain reached after one time constant (in steps), points lost a step after step 20
CURVES = {
    "grpo": (0.90, 24.0, 0.0),
    "sdpo": (0.80, 9.0, 0.006),
    "srpo": (0.94, 16.0, 0.0),
    "srpo_without_weighting": (0.92, 16.0, 0.0),
    "advantage_mix": (0.91, 18.0, 0.001),
}
BASE_SCORE = 0.35
QUESTIONS = 32
GROUP = (2, 5)
PAPER_BENCHMARKS = ("chemistry", "physics", "biology", "materials", "tooluse")


def tiny_experiment(**changes: Any) -> dict[str, Any]:
    """The mapping of a small experiment: one model, two benchmarks, three methods."""
    return {
        "name": "tiny",
        "title": "Tiny",
        "scale": "embedded",
        "matrix": [
            {
                "models": ["miniature-tiny"],
                "benchmarks": ["miniature/chemistry", "miniature/physics"],
                "methods": ["grpo", "sdpo", "srpo"],
            }
        ],
        "training": {
            "max_response_length": 256,  # of the 512 positions that a toy has
            "clock": {"kind": "modelled"},
            "budget_seconds": {"1h": 3, "5h": 10, "10h": 20},
        },
        **changes,
    }


def tiny_of(**block: Any) -> Experiment:
    """The small experiment with other ``models``, ``benchmarks``, ``methods`` or ``seeds``."""
    return load_experiment(tiny_experiment(matrix=[tiny_experiment()["matrix"][0] | block]))


def write_results(
    root: Path,
    experiment: Experiment,
    *,
    keep: Callable[[RunId], bool] = lambda run: True,
    evaluate: bool = True,
    stop_at: float | None = None,
    response: str | None = None,
) -> None:
    """Fabricate the results of ``experiment`` below ``root``.

    Args:
        keep: which runs exist.
        evaluate: whether the selected checkpoints and the bases were evaluated.
        stop_at: the training clock at which runs stop without a summary, as if still in progress.
        response: what every sampled response says instead of an invented one.
    """
    write_text(root / "experiment.yaml", yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    for name in experiment.benchmarks:
        write_json(root / "data" / name / "statistics.json", _statistics(name, experiment.benchmarks[name].kind))
    for name in experiment.models:
        write_json(root / "models" / name / "base.json", _base_model(name, experiment.models[name].kind, experiment))
    if evaluate:
        for model, benchmark in experiment.bases():
            base = {"base": {"step": 0, "avg_at_k": _score("base", 0, benchmark)}}
            _evaluate(root / "base" / model / benchmark, experiment, base_identity(model, benchmark), base, response)
    for run in filter(keep, experiment.runs()):
        _write_run(root / "runs" / run.path, experiment, run, evaluate, stop_at, response)


# ---------------------------------------------------------------- runs


def _write_run(
    folder: Path, experiment: Experiment, run: RunId, evaluate: bool, stop_at: float | None, response: str | None
) -> None:
    rng = random.Random(f"{experiment.name}/{run.path}")
    training, method = experiment.training, experiment.methods[run.method]
    end = stop_at if stop_at is not None else max(training.budget_seconds.values())
    spec = experiment.run(run).model_dump(mode="json")
    write_text(folder / "run.yaml", yaml.safe_dump({"spec": spec, "provenance": _provenance()}, sort_keys=False))
    clock = 0.0
    steps: list[Event] = []
    validations: list[Event] = []
    groups: list[Event] = []
    k = training.validation.rollouts
    while clock < end:  # the step that reaches the last budget is the last one
        event = _step(rng, method, len(steps) + 1, clock, run)
        if stop_at is not None and event["clock"] > end:
            break
        steps.append(event)
        step, clock = event["step"], event["clock"]
        if step % training.validate_every == 0:
            scores = _questions(rng, _score(run.method, step, run.benchmark), k)
            validations.append(validation(step, clock, scores, k, 30 + rng.random()))
            groups.append(_group(method, step, run, response))
    write_log(folder / "groups.jsonl", groups)
    if stop_at is not None:
        write_run(folder, run, steps, validations, None)
        return
    measured = {"wall_seconds": sum(e["wall_seconds"] for e in steps), "peak_memory_gb": 0.8 + rng.random() / 5}
    selected = write_run(folder, run, steps, validations, training.budget_seconds, **measured)
    if evaluate:
        _evaluate(folder, experiment, run.model_dump(), selected, response)


def _score(method: str, step: int, benchmark: str) -> float:
    final, constant, loss = CURVES.get(method, (0.85, 20.0, 0.0))
    ease = 0.04 * (len(benchmark) % 4)
    score = BASE_SCORE + ease + (final - BASE_SCORE - ease) * (1 - math.exp(-step / constant))
    return min(0.99, max(0.02, score - loss * max(0, step - 20)))


def _step(rng: random.Random, method: Method, step: int, clock: float, run: RunId) -> dict[str, Any]:
    correct = min(1.0, max(0.0, _score(method.name, step, run.benchmark) + rng.gauss(0, 0.03)))
    available = 1 - (1 - correct) ** 7 * 0.5
    shares = dict.fromkeys(("grpo", "sdpo", "mix", "rlsd", "dropped"), 0.0)
    routing = method.routing
    shares[routing.correct_with_sibling] += correct * available
    shares[routing.correct_without_sibling] += correct * (1 - available)
    shares[routing.wrong_with_sibling] += (1 - correct) * available
    shares[routing.wrong_without_sibling] += (1 - correct) * (1 - available)
    length = {"grpo": 38.0, "sdpo": 26.0}.get(method.name, 32.0) + rng.gauss(0, 0.6) + 0.03 * step
    teacher_share = shares["sdpo"] + shares["mix"]
    phases = {
        "generate": 0.007 * length,
        "reward": 0.001,
        "log_prob": 0.003 * length,
        "teacher": 0.3 * teacher_share,
        "update": 0.011 * length,
    }
    seconds = sum(phases.values())
    metrics = {
        "reward/mean": correct,
        "response_length/mean": length,
        "response_length/truncated_fraction": 0.01,
        "routing/sdpo_fraction": shares["sdpo"],
        "routing/grpo_fraction": shares["grpo"],
        "routing/mix_fraction": shares["mix"],
        "routing/dropped_fraction": shares["dropped"],
        "routing/anchored_fraction": 0.0,
        "routing/correct_fraction": correct,
        "routing/sibling_available_fraction": available,
        # a wrong rollout has no correct sibling if its whole group is wrong
        "routing/all_wrong_groups": (1 - correct) * (1 - available),
        "routing/all_correct_groups": correct**8,
        "loss/total": rng.random(),
    }
    if teacher_share:
        metrics["teacher/entropy"] = 0.4 - 0.003 * step + rng.gauss(0, 0.02)
    return {
        "step": step,
        "clock": clock + seconds,
        "step_seconds": seconds,
        "wall_seconds": seconds * (1 + rng.random() / 10),
        "phase_seconds": phases,
        "phase_tokens": {phase: round(256 * length) for phase in phases},
        "metrics": metrics,
    }


def _group(method: Method, step: int, run: RunId, response: str | None) -> dict[str, Any]:
    """Eight rollouts of one question, those at GROUP right; all wrong at the first validation."""
    right = GROUP if step > 5 else ()
    cell = "{}_{}_sibling".format
    rollouts = []
    for i in range(8):
        others = [j for j in right if j != i]
        case = cell("correct" if i in right else "wrong", "with" if others else "without")
        branch = getattr(method.routing, case)
        invented = f"Rollout {i} of {run.benchmark}.\n<answer>{'larger' if i in right else 'smaller'}</answer>"
        rollouts.append(
            {
                "reward": float(i in right),
                "truncated": i == 7,
                "branch": branch,
                "sibling": others[0] if others and branch in ("sdpo", "mix") else None,
                "advantage": (i in right) - len(right) / 8,
                "response_length": 20 + i,
                "response": invented if response is None else response,
            }
        )
    question = f"Is quantity {step} of {run.benchmark} larger or smaller?" if response is None else response
    return {"step": step, "question": step, "prompt": question, "ground_truth": "larger", "rollouts": rollouts}


def _questions(rng: random.Random, score: float, k: int) -> list[float]:
    return [sum(rng.random() < score for _ in range(k)) / k for _ in range(QUESTIONS)]


# ---------------------------------------------------------------- evaluations, models, data


def _evaluate(
    folder: Path, experiment: Experiment, run: dict[str, Any], selected: Mapping[str, Event], response: str | None
) -> None:
    rng = random.Random(f"{experiment.name}/{run}/evaluation")
    k = experiment.evaluation.rollouts
    chance = {budget: min(1.0, max(0.0, place["avg_at_k"] - 0.01)) for budget, place in selected.items()}
    scores = {budget: (place["step"], _questions(rng, chance[budget], k)) for budget, place in selected.items()}
    write_evaluation(folder, run, k, scores)
    samples = [
        _sample(run, budget, q, sample, response) for budget in selected for q in range(4) for sample in range(2)
    ]
    write_log(folder / "samples.jsonl", samples)


def _sample(run: dict[str, Any], budget: str, question: int, sample: int, response: str | None) -> dict[str, Any]:
    right = run["method"] in ("grpo", "srpo")
    invented = (
        f"On the planet the mass is larger than the charge.\nSo {question} + {sample} is compared."
        f"\n<answer>{'larger' if right else 'smaller'}</answer>"
    )
    return {
        "budget": budget,
        "question": question,
        "sample": sample,
        "prompt": f"user: Is quantity {question} of {run['benchmark']} larger or smaller?\nassistant:",
        "response": invented if response is None else response,
        "ground_truth": "larger",
        "reward": float(right),
    }


def _base_model(name: str, kind: str, experiment: Experiment) -> dict[str, Any]:
    accuracy = dict.fromkeys(experiment.benchmarks, BASE_SCORE)
    return {
        "model": name,
        "kind": kind,
        "parameters": 170_000 if "large" in name else 100_000,
        "sha256": "ab" * 32,
        "warm_start": {"steps": 1500, "loss": 0.71, "wall_seconds": 201.5, "accuracy": accuracy},
    }


def _statistics(name: str, kind: str) -> dict[str, Any]:
    return {
        "benchmark": name,
        "kind": kind,
        "rows": {"train": 512, "test": QUESTIONS},
        "prompt_characters": {"mean": 120.4, "max": 171},
        "example": {"prompt": f"A question of {name}: <b>larger</b> or smaller?", "answer": "larger"},
        "source": {"family": name, "seed": 0},
    }


def _provenance() -> dict[str, Any]:
    return {
        "commit": "13707f0" + "0" * 33,
        "srpo": "0.3.0",
        "source": "ab" * 32,
        "packages": {"torch": "2.8.0", "verl": "0.6.0"},
        "python": "3.11.9",
        "processor": "a synthetic CPU, AVX512",
        "data": {"train": "cd" * 32, "test": "ef" * 32},
        "base_model": "ab" * 32,
    }


# ---------------------------------------------------------------- other experiments


def paper_experiment(benchmarks: Iterable[str] = PAPER_BENCHMARKS) -> Experiment:
    """The tiny experiment as if it were run on the paper's model, and so comparable with it."""
    chosen = {**tiny_experiment()["matrix"][0], "benchmarks": [f"miniature/{name}" for name in benchmarks]}
    experiment = load_experiment(tiny_experiment(matrix=[chosen]))
    model = LocalModel(kind="local", name="qwen3-8b", title="Qwen3-8B", path=Path("/nowhere"))
    block = experiment.matrix[0].model_copy(update={"models": ["qwen3-8b"], "benchmarks": list(experiment.benchmarks)})
    changes = {"comparable_with_paper": True, "models": {"qwen3-8b": model}, "matrix": [block]}
    return experiment.model_copy(update=changes)
