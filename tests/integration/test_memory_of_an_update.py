"""``srpo plan``'s memory of an update held against its modules on fake tensors: 8 ranks, 20,480 distilled tokens."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import fake_update
import pytest

from srpo.experiment import memory
from srpo.experiment.compose import load_experiment
from srpo.ground.repository import CONFIGS

PAPER = load_experiment(CONFIGS / "experiments" / "paper.yaml")
TOKENS = memory.micro_batch_tokens(PAPER.execution, PAPER.training)
MODELS = {"qwen3-8b": (18.11, 19.41, 40.21, 54.6)}
"""GB at the peak of an update with 2 layers, with 4, with all, and what the plan says, without CUDA and server."""


@dataclass(frozen=True)
class Line:
    """Bytes as a line in the number of layers, from 2 and 4 of them: each adds the same."""

    two: int
    four: int

    def at(self, layers: int) -> float:
        return self.two + (self.four - self.two) / 2 * (layers - 2)


@pytest.fixture(scope="module")
def measured() -> dict[str, dict[str, Line]]:
    """By model, what :func:`fake_update.peak_of_an_update` finds; its process group must not meet another one's."""
    cases = [f"{model}:{layers}" for model in MODELS for layers in (2, 4)]
    command = [sys.executable, fake_update.__file__, str(TOKENS), *cases]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    rows = {row.pop("case"): row for row in map(json.loads, done.stdout.splitlines()[-len(cases) :])}
    return {
        model: {key: Line(rows[f"{model}:2"][key], rows[f"{model}:4"][key]) for key in rows[f"{model}:2"]}
        for model in MODELS
    }


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_what_stays_on_a_gpu_is_the_formulas(model, measured) -> None:
    shape = memory.shape_of(PAPER.models[model])
    expected = sum(memory.trainer_state(shape, PAPER.execution).values())
    assert measured[model]["held"].at(shape.num_hidden_layers) == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_peak_is_what_it_was(model, measured) -> None:
    """Other versions of torch may differ a little."""
    shape, peak = memory.shape_of(PAPER.models[model]), measured[model]["peak"]
    planned = sum(memory.update_memory(shape, PAPER.execution, PAPER.training).values()) - memory.DEVICE_RUNTIME
    found = [size / 1e9 for size in (peak.two, peak.four, peak.at(shape.num_hidden_layers), planned)]
    assert found == pytest.approx(MODELS[model], rel=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_the_planned_peak_is_not_below_the_modules(model, measured) -> None:
    """The plan adds what is large at different moments, so it lies above; far above would refuse GPUs that do."""
    shape = memory.shape_of(PAPER.models[model])
    planned = sum(memory.update_memory(shape, PAPER.execution, PAPER.training).values()) - memory.DEVICE_RUNTIME
    peak = measured[model]["peak"].at(shape.num_hidden_layers)
    assert 0.7 * planned < peak < planned
