"""What a method costs that drops groups and generates others: at most, and said so."""

from __future__ import annotations

from typing import Any

import pytest

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.ground.errors import SrpoError
from srpo.plan import plan
from srpo.plan.measurements import Measurements

PLAIN, FILTERED = "grpo_at_srpo_settings", "grpo_filter_groups"


def experiment(extends: str, model: str, benchmark: str, bound: int = 3) -> Experiment:
    matrix = [{"models": [model], "benchmarks": [benchmark], "methods": [PLAIN, FILTERED]}]
    overrides: dict[str, Any] = {FILTERED: {"filter_groups": {"drop": "one_reward", "max_num_gen_batches": bound}}}
    if extends == "embedded":
        overrides = {name: overrides.get(name, {}) | {"mini_batch_questions": 8} for name in (PLAIN, FILTERED)}
    raw = {"name": "filtered", "title": "Filtered", "extends": extends, "matrix": matrix}
    return load_experiment(raw | {"overrides": overrides})


def paper(bound: int = 3) -> Experiment:
    return experiment("paper", "qwen3-8b", "sdpo/chemistry", bound)


def toy(bound: int = 3) -> Experiment:
    return experiment("embedded", "miniature-large", "miniature/physics", bound)


@pytest.mark.parametrize(("planned", "gpu"), [(paper, "h100"), (toy, None)], ids=["card", "flops"])
def test_generation_counts_as_often_as_it_may_be(planned: Any, gpu: str | None) -> None:
    for bound in (1, 3):
        runs = {run.run.method: run for run in plan.make_plan(planned(bound), gpu=gpu).runs}
        plain, filtered = runs[PLAIN], runs[FILTERED]
        once = (
            plain.step_seconds * plain.seconds["generation"] / (plain.seconds["generation"] + plain.seconds[plan.REST])
        )
        assert filtered.step_seconds == pytest.approx(plain.step_seconds + (bound - 1) * once)
        validation = [run.seconds["validation"] / run.validations for run in (plain, filtered)]
        assert validation[1] == pytest.approx(validation[0])  # not of the batches of a step together


def test_measured_seconds_of_a_plain_method_are_taken_as_often_and_never_the_other_way_round() -> None:
    phases = {"generate": 36.0, "reward": 1.0, "log_prob": 3.0, "teacher": 0.0, "update": 8.0}
    methods = paper(2).methods
    measured = Measurements(phases={("qwen3-8b", PLAIN): phases})
    assert measured.of("qwen3-8b", FILTERED, methods) == (PLAIN, phases | {"generate": 72.0})
    own = Measurements(phases={("qwen3-8b", FILTERED): phases})
    assert own.of("qwen3-8b", FILTERED, methods) == (FILTERED, phases)
    assert own.of("qwen3-8b", PLAIN, methods) is None


def test_the_papers_clock_has_no_second_generation() -> None:
    with pytest.raises(SrpoError, match=r"methods\.grpo_filter_groups\.filter_groups: .*; use wall or modelled"):
        experiment("paper-calibrated", "qwen3-8b", "sdpo/chemistry")
    experiment("paper-calibrated", "qwen3-8b", "sdpo/chemistry", bound=1)
