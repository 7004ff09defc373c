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
MODEL, PEAK = "qwen3-8b", (18.11, 19.41, 40.21, 54.6)
"""GB at the peak of an update with 2 layers, with 4, with all, and what the plan says, without CUDA and server."""
SHAPE = memory.shape_of(PAPER.models[MODEL])
pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Line:
    """Bytes as a line in the number of layers, from 2 and 4 of them: each adds the same."""

    two: int
    four: int

    def at(self, layers: int) -> float:
        return self.two + (self.four - self.two) / 2 * (layers - 2)


@pytest.fixture(scope="module")
def measured() -> dict[str, Line]:
    """What :func:`fake_update.peak_of_an_update` finds; its process group must not meet another one's."""
    command = [sys.executable, fake_update.__file__, str(TOKENS), f"{MODEL}:2", f"{MODEL}:4"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]
    two, four = map(json.loads, done.stdout.splitlines()[-2:])
    return {key: Line(two[key], four[key]) for key in two if key != "case"}


def test_what_stays_on_a_gpu_is_the_formulas(measured) -> None:
    expected = sum(memory.trainer_state(SHAPE, PAPER.execution).values())
    assert measured["held"].at(SHAPE.num_hidden_layers) == pytest.approx(expected, rel=0.01)


def test_the_peak_is_what_it_was_and_not_above_the_planned_one(measured) -> None:
    """The plan adds what is large at different moments, so it lies above; far above would refuse GPUs that do."""
    update, peak = memory.update_memory(SHAPE, PAPER.execution, PAPER.training), measured["peak"]
    whole, planned = peak.at(SHAPE.num_hidden_layers), sum(update.values()) - memory.DEVICE_RUNTIME
    assert [size / 1e9 for size in (peak.two, peak.four, whole, planned)] == pytest.approx(PEAK, rel=0.005)
    assert 0.7 * planned < whole < planned
