"""The plan of a method with two phases: every step counts as one of the slower phase."""

from __future__ import annotations

from typing import Any

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.plan import plan
from srpo.plan import text as plan_text
from srpo.plan.measurements import Measurements
from srpo.training.clock import seconds_of_step

PHASED = "sdpo_then_grpo"
BUDGETS = ("1h", "5h", "10h")


def experiment(steps: int, extends: str = "paper", **training: Any) -> Experiment:
    matrix = [{"models": ["qwen3-8b"], "benchmarks": ["sdpo/chemistry"], "methods": [*METHODS, PHASED]}]
    raw = {"name": "phases", "title": "Phases", "extends": extends, "matrix": matrix, "training": training}
    return load_experiment(raw | {"overrides": {PHASED: {"first_phase_steps": steps}}})


METHODS = ["grpo_at_srpo_settings", "sdpo_at_srpo_settings"]


def planned(found: Experiment, **options: Any) -> dict[str, plan.RunPlan]:
    return {run.run.method: run for run in plan.make_plan(found, **options).runs}


def test_all_steps_count_as_those_of_the_slower_phase() -> None:
    found = experiment(100)
    runs = planned(found, gpu="h100")
    assert runs[METHODS[1]].step_seconds > runs[METHODS[0]].step_seconds
    assert (runs[PHASED].steps, runs[PHASED].seconds) == (runs[METHODS[1]].steps, runs[METHODS[1]].seconds)
    said = "sdpo_then_grpo: all steps count as those of the slower phase"
    assert said in plan_text.render(plan.make_plan(found))


def test_a_calibrated_plan_has_no_fewer_steps_than_the_clock_counts() -> None:
    found = experiment(100, "paper-calibrated")
    training, clock, counts = found.training, 0.0, dict.fromkeys(BUDGETS, 0)
    for step in range(1, 700):
        clock += seconds_of_step(training.clock, found.methods[PHASED], step, {})
        for label, seconds in training.budget_seconds.items():
            counts[label] += clock <= seconds
    steps = planned(found)[PHASED].steps
    assert all(counts[label] <= steps[label] <= 1.25 * counts[label] for label in BUDGETS)


def test_a_measured_run_of_two_phases_says_nothing_of_others() -> None:
    found, phases = experiment(100), {"generate": 36.0, "reward": 1.0, "log_prob": 3.0, "teacher": 2.0, "update": 8.0}
    measured = Measurements(phases={("qwen3-8b", PHASED): phases})
    assert measured.of("qwen3-8b", PHASED, found.methods) == (PHASED, phases)
    assert measured.of("qwen3-8b", METHODS[1], found.methods) is None
    runs = planned(found, measured=measured)
    assert (runs[PHASED].source, runs[PHASED].step_seconds) == ("measured", 50)
    assert runs[METHODS[1]].source == "h100"
    other = Measurements(phases={("qwen3-8b", METHODS[1]): phases})
    assert planned(found, measured=other)[PHASED].source == f"measured, {METHODS[1]}"
