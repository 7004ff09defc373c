"""What the kinds of teacher cost: a trust region's second pass, and the weights that a live teacher does not have."""

from __future__ import annotations

import pytest

from srpo.cost import memory
from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
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
    [(PAPER, None, "paper, srpo, scaled"), (PAPER, "h100", "h100"), (TOY, None, "FLOPs")],
    ids=["figure-4b", "data-sheet", "flops"],
)
def test_only_a_trust_region_takes_longer(planned: Experiment, gpu: str | None, source: str) -> None:
    steps = {run.run.method: run.step for run in plan.make_plan(planned, gpu=gpu).runs}
    last = "10h"
    for method in METHODS[1:4]:
        assert steps[method].seconds == steps["srpo"].seconds
        assert steps[method].generation == steps["srpo"].generation
    region, usual = steps["srpo_trust_region"], steps["srpo"]
    assert usual.source.split(", ")[0] == source.split(", ")[0]
    assert region.source == source
    assert 1.01 * usual.seconds[last] < region.seconds[last] < 1.5 * usual.seconds[last]
    generation = region.generation * region.seconds[last]
    assert generation == pytest.approx(usual.generation * usual.seconds[last], rel=0.02)


def test_only_a_live_teacher_has_no_weights() -> None:
    parameters = memory.parameters(memory.shape_of(PAPER.models["qwen3-8b"]))
    ends = {run.run.method: run.disk_end for run in plan.make_plan(PAPER).runs}
    assert {method: ends["srpo"] - end for method, end in ends.items()} == {
        method: 4 * parameters * (method == "srpo_live_teacher") for method in METHODS
    }
    live = experiment("paper", "qwen3-8b", "sdpo/chemistry", ["grpo", "srpo_live_teacher"])
    item = "teacher, float32"
    assert item in plan_text.render(plan.make_plan(PAPER))
    assert item not in plan_text.render(plan.make_plan(live))


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
