"""What ``srpo plan`` takes from the first minutes on a GPU: the pace of training on that card, by shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from srpo import cli
from srpo.cost.memory import shape_of
from srpo.experiment.compose import load_experiment
from srpo.files import write_json
from srpo.inputs.errors import SrpoError
from srpo.plan import plan
from srpo.plan.first_gpu import card_name
from srpo.plan.gpus import GPUS, OTHER_SECONDS, card_seconds
from srpo.plan.measurements import Measurements, read_measurements
from srpo.plan.text import render
from srpo.repository import CONFIGS

CONTROLS = load_experiment(CONFIGS / "experiments" / "paper-controls.yaml")
ARMS = load_experiment(CONFIGS / "experiments" / "paper-arms.yaml")
SHARE = 0.2
SHARED_PROMPTS = ("sdpa", True)


def report(
    folder: Path, card: str | None = "NVIDIA H100 80GB HBM3", execution: tuple[str, bool] = SHARED_PROMPTS
) -> Path:
    """Eight layers of Qwen3-8B at a fifth of an H100's FLOP/s, and a part that failed."""
    shape = shape_of(CONTROLS.models["qwen3-8b"]).model_copy(update={"num_hidden_layers": 8})
    result = {
        **{"model": "qwen3-8b", "shape": shape.model_dump(), "attention": execution[0], "shared_prompts": execution[1]},
        **{"tflops": SHARE * GPUS["h100"].flops / 1e12, "peak_gb": 61.5, "planned_gb": 70.0},
    }
    parts = {"versions": {"result": {}}, "update": {"result": result}, "update qwen3-1.7b": {"error": "killed"}}
    write_json(folder / "first-gpu.json", {"card": card, "parts": parts})
    return folder / "first-gpu.json"


def read(path: Path) -> Measurements:
    return read_measurements([path], CONTROLS)


@pytest.mark.parametrize("execution", [SHARED_PROMPTS, ("flash_attention_2", False)])
def test_a_shape_is_planned_at_its_measured_pace_whatever_its_layers(tmp_path: Path, execution) -> None:
    measured = read(report(tmp_path, execution=execution))
    for run in plan.make_plan(CONTROLS, measured=measured).runs:
        method, shape = CONTROLS.methods[run.run.method], shape_of(CONTROLS.models["qwen3-8b"])
        generation, rest = card_seconds(GPUS["h100"], shape, CONTROLS.training, CONTROLS.execution, method)
        slower = (rest - OTHER_SECONDS) * GPUS["h100"].flops_share / SHARE + OTHER_SECONDS
        assert run.step_seconds == pytest.approx(generation + slower)
        assert run.source == "h100"


def test_a_dense_mask_says_nothing_of_flash_attention(tmp_path: Path) -> None:
    measured = read(report(tmp_path, execution=("sdpa", False)))
    plain = plan.make_plan(CONTROLS, gpu="h100")
    assert plan.make_plan(CONTROLS, measured=measured, gpu="h100").runs == plain.runs


def test_another_shape_or_card_keeps_the_assumed_pace_and_the_plan_says_so(tmp_path: Path) -> None:
    measured = read(report(tmp_path))
    for experiment, card, why in (
        (ARMS, "h100", "qwen3-4b on h100 (another shape)"),
        (CONTROLS, "h20", "(another card)"),
    ):
        planned = plan.make_plan(experiment, measured=measured, gpu=card)
        assert planned.runs == plan.make_plan(experiment, gpu=card).runs
        assert why in render(planned)


def test_the_text_has_what_was_measured(tmp_path: Path) -> None:
    text = render(plan.make_plan(CONTROLS, measured=read(report(tmp_path))))
    assert "qwen3-8b, 8 layers, shared prompts: 198 TFLOP/s, 20% of peak; memory 61.5 GB, computed 70 GB." in text
    assert "all else 20% of the FLOP/s" in text
    assert "training as measured" in text
    assert "Measured: no step. srpo rehearse paper-controls" in text
    assert "training at" not in text


@pytest.mark.parametrize(
    ("device", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", None),
        ("NVIDIA H200", "h200"),
    ],
)
def test_a_card_by_the_name_that_torch_gives_it(device: str, name: str | None) -> None:
    assert card_name(device) == name


def test_what_is_no_such_file_is_named(tmp_path: Path) -> None:
    write_json(tmp_path / "other.json", {"loss": 1})
    with pytest.raises(SrpoError, match=r"other\.json: not written by bench/first_gpu\.py"):
        read(tmp_path / "other.json")
    with pytest.raises(SrpoError, match="measured on a CPU"):
        read(report(tmp_path, card=None))
    path = report(tmp_path)
    with pytest.raises(SrpoError, match="a second file"):
        read_measurements([path, path], CONTROLS)


def test_the_command_takes_the_file(tmp_path: Path, capsys) -> None:
    assert cli.main(["plan", "paper-controls", "--from", str(report(tmp_path))]) == 0
    assert "Measured in" in capsys.readouterr().out
