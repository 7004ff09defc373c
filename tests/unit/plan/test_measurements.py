"""A plan from what a rehearsal measured: numbers by hand, where they go, and what is refused."""

from pathlib import Path

import pytest
from test_plan import run_of

from srpo.experiment import memory
from srpo.experiment.compose import load_experiment, resolved_text
from srpo.experiment.config import Block, Experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import append_event, write_json, write_text
from srpo.ground.layout import Layout
from srpo.ground.repository import CONFIGS
from srpo.plan import plan
from srpo.plan import text as plan_text
from srpo.plan.measurements import Measurements, read_measurements
from srpo.plan.rehearse import rehearsal
from srpo.training.clock import PHASES

PAPER = load_experiment(CONFIGS / "experiments" / "paper.yaml")
ARMS = load_experiment(CONFIGS / "experiments" / "paper-arms.yaml")


def rehearsed(model: str, methods: list[str]) -> Experiment:
    """The rehearsal of a part of the paper's experiment."""
    block = Block(models=[model], benchmarks=["sdpo/physics"], methods=methods)
    return rehearsal(PAPER.model_copy(update={"matrix": [block]}))


REHEARSAL = rehearsed("qwen3-4b", ["grpo", "sdpo", "srpo"])
GRPO, SRPO = (36.0, 1.0, 2.0, 0.0, 11.0), (36.0, 1.0, 3.0, 2.0, 8.0)
"""Seconds of the phases of the second and third step: generate, reward, log_prob, teacher, update."""


def rehearse(folder: Path, experiment: Experiment = REHEARSAL, without: str = "") -> Path:
    """Results of a rehearsal whose first steps took long; the runs of the method ``without`` have not finished."""
    layout = Layout(folder)
    write_text(layout.experiment, resolved_text(experiment))
    for run in experiment.runs():
        files, second = layout.run_files(run), GRPO if run.method == "grpo" else SRPO
        files.folder.mkdir(parents=True)
        for step, seconds in enumerate([(500.0,) * 5, second, second], 1):
            append_event(files.steps, {"step": step, "phase_seconds": dict(zip(PHASES, seconds, strict=True))})
        if run.method != without:
            write_json(files.summary, {"validation_seconds": 40.0, "checkpoint_seconds": 50.0, "budgets": {}})
    return folder


@pytest.fixture
def measured(tmp_path: Path) -> Measurements:
    return read_measurements([rehearse(tmp_path)], PAPER)


def test_what_is_read(measured: Measurements) -> None:
    assert measured.phases["qwen3-4b", "grpo"] == dict(zip(PHASES, GRPO, strict=True))
    assert {method for _, method in measured.phases} == {"grpo", "sdpo", "srpo"}
    questions = PAPER.benchmarks["physics"].questions("test")
    assert measured.validations == {"qwen3-4b": (40.0, 2 * questions)}
    slowest = memory.checkpoint_bytes(memory.shape_of(PAPER.models["qwen3-4b"]), PAPER.execution, teacher=False).total
    assert measured.write_bytes_per_second == slowest / 50


def test_measured_seconds_take_the_place_of_the_papers(measured: Measurements) -> None:
    planned = plan.make_plan(PAPER, measured=measured)
    grpo = run_of(planned, model="qwen3-4b", benchmark="physics", method="grpo")
    assert grpo.source == "measured"
    assert grpo.steps == {"1h": 72, "5h": 360, "10h": 720}  # 50 s each
    assert grpo.seconds["generation"] == pytest.approx(36000 * 36 / 50)
    assert grpo.validations == 144
    # eight times the rollouts of the measured validation, in larger batches: between one and eight times its seconds
    assert 144 * 40 < grpo.seconds["validation"] < 144 * 8 * 40
    size = memory.checkpoint_bytes(planned.shapes["qwen3-4b"], PAPER.execution, teacher=False)
    speed = measured.write_bytes_per_second
    complete = size.total / speed + 0.05 * (36000 + grpo.seconds["validation"])
    assert grpo.seconds["checkpoints"] == pytest.approx(complete + 0.25 * 144 * size.weights / speed)


def test_a_method_is_counted_like_the_measured_one_with_its_passes(tmp_path: Path) -> None:
    measured = read_measurements([rehearse(tmp_path, rehearsed("qwen3-4b", ["srpo"]))], PAPER)
    assert measured.of("qwen3-4b", "srpo_without_weighting", PAPER.methods)[0] == "srpo"
    assert measured.of("qwen3-4b", "advantage_mix", PAPER.methods) is None
    assert measured.of("qwen3-4b", None, PAPER.methods) is None
    assert measured.of("qwen3-8b", "srpo", PAPER.methods) is None


def test_a_calibrated_budget_costs_what_its_steps_take_here(measured: Measurements) -> None:
    raw = PAPER.model_dump(mode="json")
    raw["training"]["clock"] = {"kind": "calibrated"}
    calibrated = load_experiment(raw)
    run = run_of(plan.make_plan(calibrated, measured=measured), model="qwen3-4b", benchmark="physics", method="grpo")
    assert run.steps == {"1h": 50, "5h": 218, "10h": 393}
    training = run.seconds["generation"] + run.seconds["log-probs, teacher, update"]
    assert training == pytest.approx(36000 / 91.5 * 50)
    assert "a budget is a number of steps" in plan_text.render(plan.make_plan(calibrated))


def test_runs_of_another_model_or_method_of_the_same_name_do_not_count(tmp_path: Path) -> None:
    raw = REHEARSAL.model_dump(mode="json")
    raw["methods"]["srpo"]["distillation_topk"] = 7
    measured = read_measurements([rehearse(tmp_path, load_experiment(raw))], PAPER)
    assert {method for _, method in measured.phases} == {"grpo", "sdpo"}


def test_unfinished_runs_do_not_count(tmp_path: Path) -> None:
    measured = read_measurements([rehearse(tmp_path, without="sdpo")], PAPER)
    assert {method for _, method in measured.phases} == {"grpo", "srpo"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clock": {"kind": "modelled"}}, r"training.clock.kind = modelled: it measured no seconds"),
        ({"questions_per_batch": 64}, r"training.questions_per_batch = 64, but 32 in paper: other steps take other"),
    ],
)
def test_other_settings_are_refused(changes: dict, message: str, tmp_path: Path) -> None:
    raw = REHEARSAL.model_dump(mode="json")
    raw["training"] |= changes
    with pytest.raises(SrpoError, match=message):
        read_measurements([rehearse(tmp_path, load_experiment(raw))], PAPER)
