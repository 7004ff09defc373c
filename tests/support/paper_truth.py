"""Made-up logs of the paper's full matrix whose true numbers are known: the paper's own, or their reverse.

Every run is written so that its maximum within each budget is the number asked for, on average over three seeds to
the paper's decimal. Clock and seconds a step are made up apart from each other, so that a few steps suffice.
"""

import csv
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from paths import ROOT
from run_files import Event, base_identity, validation, write_evaluation, write_run
from synthetic import tiny_experiment

from srpo.algorithm.method import Method
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Block, Experiment, LocalModel
from srpo.ground.files import write_text
from srpo.ground.layout import RunId

REFERENCE = ROOT / "reports" / "reference"
MODELS = {"qwen3-8b": "Qwen3-8B", "qwen3-4b": "Qwen3-4B"}
QUESTIONS = {"chemistry": 210, "physics": 80, "biology": 50, "materials": 94, "tooluse": 68}
MAIN = ("grpo", "sdpo", "srpo")
ABLATIONS = {"srpo_without_weighting": "srpo_no_dynamic_weighting", "advantage_mix": "advantage_mix"}
BUDGETS = {"1h": 3600.0, "5h": 18000.0, "10h": 36000.0}
K, SEEDS = 16, (1, 2, 3)
STEPS = 48
"""Of a run, each with a validation."""
SELECTION_BIAS = 0.5
"""Points by which every resampled score is lower than the maximum that selected it."""

Score = Callable[[str, str, str, str], float]


def read(name: str) -> list[dict[str, str]]:
    with (REFERENCE / f"{name}.csv").open() as file:
        return list(csv.DictReader(file))


def published() -> Score:
    """Tables 1 and 2. The ablations' benchmarks, of which the paper gives the mean only, all have that mean."""
    known = {
        (r["model"], r["method"], r["benchmark"], r["budget_hours"]): float(r["avg_at_16"]) for r in read("table1_main")
    }
    ablated = {(r["model"], r["method"], r["budget_hours"]): float(r["avg_at_16"]) for r in read("table2_ablation")}

    def score(model: str, method: str, benchmark: str, budget: str) -> float:
        hours = budget.removesuffix("h") if budget != "base" else "0"
        if method in ABLATIONS:
            return ablated[MODELS[model], ABLATIONS[method], hours]
        return known[MODELS[model], method, benchmark, hours]

    return score


_REVERSED = {
    "base": {"base": 50.0},
    "grpo": {"1h": 66.0, "5h": 68.0, "10h": 70.0},
    "sdpo": {"1h": 62.0, "5h": 70.0, "10h": 76.0},
    "srpo": {"1h": 58.0, "5h": 62.0, "10h": 62.0},
    "srpo_without_weighting": {"1h": 58.0, "5h": 64.0, "10h": 66.0},
    "advantage_mix": {"1h": 56.0, "5h": 66.0, "10h": 70.0},
}


@dataclass(frozen=True)
class Truth:
    """What the logs say. Pairs are early and late in training."""

    score: Score = field(default_factory=published)
    seconds: dict[str, tuple[float, ...]] = field(
        default_factory=lambda: {
            m: tuple(float(r["seconds_per_step"]) for r in read("fig4b_step_seconds") if r["method"] == m) for m in MAIN
        }
    )
    routed: tuple[float, float] = (0.40, 0.15)
    correct: tuple[float, float] = (0.55, 0.82)
    available: float = 0.93
    entropy: tuple[float, float] = (0.30, 0.50)
    length: dict[str, float] = field(default_factory=lambda: {"grpo": 700.0, "srpo": 500.0, "sdpo": 350.0})
    late_drop: dict[str, float] = field(default_factory=lambda: {"sdpo": 12.0})
    worse_in_the_end: dict[str, float] = field(default_factory=dict)


PAPER = Truth()
REVERSED = Truth(
    score=lambda model, method, benchmark, budget: _REVERSED[method][budget],
    seconds={"grpo": (80.0, 80.0, 80.0), "sdpo": (80.0, 80.0, 80.0), "srpo": (70.0, 85.0, 95.0)},
    routed=(0.15, 0.40),
    correct=(0.70, 0.50),
    available=0.60,
    entropy=(0.50, 0.30),
    length={"grpo": 350.0, "srpo": 500.0, "sdpo": 700.0},
    late_drop={"srpo": 12.0},
    worse_in_the_end={"srpo": 2.0},
)


def experiment() -> Experiment:
    """The paper's matrix: all five methods at 8B, the main ones at 4B, three seeds."""
    tiny = load_experiment(
        tiny_experiment(
            matrix=[
                {
                    "models": ["miniature-tiny"],
                    "benchmarks": [f"miniature/{name}" for name in QUESTIONS],
                    "methods": [*MAIN, *ABLATIONS],
                }
            ],
            training={"clock": {"kind": "wall"}, "budget_seconds": BUDGETS},
        )
    )
    models = {n: LocalModel(kind="local", name=n, title=t, path=Path("/nowhere")) for n, t in MODELS.items()}
    methods = {"qwen3-8b": [*MAIN, *ABLATIONS], "qwen3-4b": [*MAIN]}
    blocks = [Block(models=[m], benchmarks=[*QUESTIONS], methods=methods[m], seeds=[*SEEDS]) for m in models]
    return tiny.model_copy(update={"name": "truth", "comparable_with_paper": True, "models": models, "matrix": blocks})


def write(root: Path, truth: Truth, experiment: Experiment) -> None:
    """Write the logs of every run."""
    write_text(root / "experiment.yaml", yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    for model, benchmark in experiment.bases():
        scores = _questions(truth.score(model, "base", benchmark, "base"), benchmark)
        identity = base_identity(model, benchmark)
        write_evaluation(root / "base" / model / benchmark, identity, K, {"base": (0, scores)})
    for run in experiment.runs():
        _write_run(root / "runs" / run.path, truth, run, experiment.methods[run.method])


def _write_run(folder: Path, truth: Truth, run: RunId, method: Method) -> None:
    logged = [step(truth, run, method, number, STEPS) for number in range(1, STEPS + 1)]
    validations = [
        validation(i, i * BUDGETS["10h"] / STEPS, scores, K) for i, scores in enumerate(_curve(truth, run, STEPS), 1)
    ]
    selected = write_run(folder, run, logged, validations, BUDGETS)
    dropped = {}
    for name, best in selected.items():
        loss = SELECTION_BIAS + (truth.worse_in_the_end.get(run.method, 0.0) if name == "10h" else 0.0)
        correct = round(sum(best["question_scores"]) * K) - round(loss / 100 * K * QUESTIONS[run.benchmark])
        dropped[name] = (best["step"], _spread(correct, QUESTIONS[run.benchmark]))
    write_evaluation(folder, run.model_dump(), K, dropped)


def _curve(truth: Truth, run: RunId, count: int) -> list[list[float]]:
    """Scores of each validation: up to the number of each budget and never above it before; then the late drop."""
    targets = [_seed_count(truth.score(run.model, run.method, run.benchmark, b), run, b) for b in BUDGETS]
    reached = [int(seconds * count / BUDGETS["10h"]) - 1 for seconds in BUDGETS.values()]  # last within each budget
    counts: list[int] = []
    before, place = int(0.7 * targets[0]), 0
    for target, last in zip(targets, reached, strict=True):
        target = max(target, before) if counts else target
        span = last - place + 1
        counts += [before + (target - before) * (i + 1) // span for i in range(span)]
        before, place = target, last + 1
    if points := truth.late_drop.get(run.method):
        drop = round(points / 100 * K * QUESTIONS[run.benchmark])
        top, peak = counts[-1], count * 14 // 24
        if targets[2] > targets[1]:  # the maximum of 10 h is reached before the drop, as it must be
            counts[peak] = top
        for i in range(peak + 1, count):
            counts[i] = max(0, top - drop * (i - peak) * 4 // count)
    return [_spread(count, QUESTIONS[run.benchmark]) for count in counts]


def _seed_count(score: float, run: RunId, budget: str) -> int:
    """Correct samples of one seed: three seeds have half a point of spread and the mean asked for."""
    samples = K * QUESTIONS[run.benchmark]
    total = round(score / 100 * samples * len(SEEDS))
    shift = round(0.005 * samples)
    shifts = [-shift, 0, shift]
    # which seed is lucky differs from cell to cell, but not with the budget where the method does not move on
    random.Random(f"{run.model}/{run.benchmark}/{run.method}/{score}").shuffle(shifts)
    share, rest = divmod(total, len(SEEDS))
    place = SEEDS.index(run.seed)
    return share + (place < rest) + shifts[place]


def _questions(score: float, benchmark: str) -> list[float]:
    return _spread(round(score / 100 * K * QUESTIONS[benchmark]), QUESTIONS[benchmark])


def _spread(correct: int, questions: int) -> list[float]:
    """Scores of questions with ``correct`` right samples in all, the first ones easy, the last ones hard."""
    full, rest = divmod(correct, K)
    return [1.0] * full + [rest / K] * (full < questions) + [0.0] * (questions - full - 1)


def step(truth: Truth, run: RunId, method: Method, number: int, steps: int) -> Event:
    """A line of the step log."""
    noise = random.Random(f"{run.path}/{number}")
    done = (number - 1) / (steps - 1)
    clock = number * BUDGETS["10h"] / steps

    def between(pair: tuple[float, float]) -> float:
        return pair[0] + (pair[1] - pair[0]) * done + noise.gauss(0, 0.004)

    seconds = truth.seconds.get(run.method, truth.seconds["srpo"])
    counts = [sum(i * BUDGETS["10h"] / steps <= s for i in range(1, steps + 1)) for s in BUDGETS.values()]
    # so that the mean up to each budget is the number asked for
    parts = [
        seconds[0],
        *((s * n - t * m) / (n - m) for t, s, m, n in zip(seconds, seconds[1:], counts, counts[1:], strict=False)),
    ]
    now = parts[sum(clock > s for s in list(BUDGETS.values())[:2])]
    # seeds differ a little, their mean does not
    now *= 1 + 0.004 * (run.seed - 2)
    routed, correct = between(truth.routed), between(truth.correct)
    length = truth.length.get(run.method, truth.length["srpo"]) * (1 + 0.05 * (run.seed - 2)) + noise.gauss(0, 5)
    metrics: dict[str, Any] = {
        "reward/mean": correct,
        "response_length/mean": length,
        "response_length/truncated_fraction": 0.01,
        "routing/sdpo_fraction": routed,
        "routing/grpo_fraction": 1 - routed,
        "routing/correct_fraction": correct,
        "routing/sibling_available_fraction": truth.available + noise.gauss(0, 0.004),
    }
    if method.routing.needs_teacher:
        metrics["teacher/entropy"] = between(truth.entropy)
    phases = {"generate": 0.5, "reward": 0.01, "log_prob": 0.1, "teacher": 0.09, "update": 0.3}
    return {
        "step": number,
        "clock": clock,
        "step_seconds": now,
        "wall_seconds": now,
        "phase_seconds": {phase: share * now for phase, share in phases.items()},
        "phase_tokens": dict.fromkeys(phases, 10**6),
        "metrics": metrics,
    }
