"""The plan of a method with two phases: its limits are those of its phases, steps in between are counted by hand."""

from typing import Any

import pytest

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.plan import plan
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


@pytest.mark.parametrize("extends", ["paper", "paper-calibrated"])
def test_without_a_switch_the_plan_is_that_of_the_phase(extends: str) -> None:
    for steps, alone in ((0, METHODS[0]), (10**6, METHODS[1])):
        runs = planned(experiment(steps, extends))
        assert runs[PHASED].steps == runs[alone].steps
        assert runs[PHASED].step_seconds == pytest.approx(runs[alone].step_seconds)
        assert runs[PHASED].seconds == pytest.approx(runs[alone].seconds)


def test_steps_of_both_phases_by_hand() -> None:
    runs = planned(experiment(100), gpu="h100")
    first, later = (runs[name].step_seconds for name in (METHODS[1], METHODS[0]))
    assert first > later
    assert runs[PHASED].steps["5h"] == int(100 + (18000 - 100 * first) / later)
    assert 100 + runs[METHODS[1]].steps["5h"] > runs[PHASED].steps["5h"] > runs[METHODS[1]].steps["5h"]
    limited = planned(experiment(100, max_steps=150), gpu="h100")[PHASED]
    assert [limited.steps[budget] for budget in ("5h", "10h")] == [150, 150]
    assert limited.step_seconds == pytest.approx((100 * first + 50 * later) / 150)


def test_a_calibrated_plan_has_the_steps_that_the_clock_counts() -> None:
    found = experiment(100, "paper-calibrated")
    training, clock, counts = found.training, 0.0, dict.fromkeys(BUDGETS, 0)
    for step in range(1, 700):
        clock += seconds_of_step(training.clock, found.methods[PHASED], step, {})
        for label, seconds in training.budget_seconds.items():
            counts[label] += clock <= seconds
    assert planned(found)[PHASED].steps == counts
