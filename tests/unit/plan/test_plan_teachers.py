"""What the kinds of teacher cost: a trust region's second pass, and the weights that a live teacher does not have."""

from __future__ import annotations

import re

import pytest

from srpo.experiment import memory
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.ground.errors import SrpoError
from srpo.plan import plan
from srpo.plan import text as plan_text
from srpo.plan.measurements import Measurements

METHODS = ["srpo", "srpo_frozen_teacher", "srpo_snapshot_teacher", "srpo_live_teacher", "srpo_trust_region"]


def experiment(extends: str, model: str, benchmark: str, methods: list[str]) -> Experiment:
    matrix = [{"models": [model], "benchmarks": [benchmark], "methods": methods}]
    sizes = {method: {"mini_batch_questions": 8} for method in methods} if extends == "embedded" else {}
    return load_experiment(
        {"name": "teachers", "title": "Teachers", "extends": extends, "matrix": matrix, "overrides": sizes}
    )


PAPER = experiment("paper", "qwen3-8b", "sdpo/chemistry", METHODS)
TOY = experiment("embedded", "miniature-large", "miniature/physics", METHODS)


@pytest.mark.parametrize(
    ("planned", "gpu", "source"),
    [(PAPER, "h100", "h100"), (TOY, None, "FLOPs")],
    ids=["card", "flops"],
)
def test_only_a_trust_region_takes_longer(planned: Experiment, gpu: str | None, source: str) -> None:
    runs = {run.run.method: run for run in plan.make_plan(planned, gpu=gpu).runs}
    for method in METHODS[1:4]:
        assert (runs[method].step_seconds, runs[method].steps) == (runs["srpo"].step_seconds, runs["srpo"].steps)
    region, usual = runs["srpo_trust_region"], runs["srpo"]
    assert usual.source == region.source == source
    assert 1.01 * usual.step_seconds < region.step_seconds < 1.5 * usual.step_seconds
    seconds = [run.seconds["validation"] / run.validations for run in (region, usual)]
    assert seconds[0] == pytest.approx(seconds[1])  # generation is the same


def test_only_a_live_teacher_has_no_weights() -> None:
    parameters = memory.parameters(memory.shape_of(PAPER.models["qwen3-8b"]))
    ends = {run.run.method: run.disk_end for run in plan.make_plan(PAPER).runs}
    assert {method: ends["srpo"] - end for method, end in ends.items()} == {
        method: 4 * parameters * (method == "srpo_live_teacher") for method in METHODS
    }
    live = experiment("paper", "qwen3-8b", "sdpo/chemistry", ["grpo", "srpo_live_teacher"])
    text = plan_text.render(plan.make_plan(live))
    needed = dict(re.findall(r"^qwen3-8b +(\w+) .* (\S+), \S+$", text, re.MULTILINE))
    assert needed["grpo"] == needed["srpo_live_teacher"] == "56.5"
    assert " 60.6, " in plan_text.render(plan.make_plan(PAPER))


def test_measured_seconds_of_the_teacher_are_doubled_for_its_second_pass() -> None:
    phases = {"generate": 36.0, "reward": 1.0, "log_prob": 3.0, "teacher": 2.0, "update": 8.0}
    measured = Measurements(phases={("qwen3-8b", "srpo"): phases})
    for method in METHODS[:4]:
        assert measured.of("qwen3-8b", method, PAPER.methods) == ("srpo", phases)
    assert measured.of("qwen3-8b", "srpo_trust_region", PAPER.methods) == ("srpo", phases | {"teacher": 4.0})


def test_the_papers_clock_has_no_second_pass() -> None:
    experiment("paper-calibrated", "qwen3-8b", "sdpo/chemistry", METHODS[:4])
    with pytest.raises(SrpoError, match=r"methods\.srpo_trust_region\.teacher\.kind = trust_region: .*; use wall"):
        experiment("paper-calibrated", "qwen3-8b", "sdpo/chemistry", METHODS)
