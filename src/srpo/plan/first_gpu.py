"""What ``bench/first_gpu.py`` measured on a card, and what of it a plan takes: the pace of training, by shape."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from srpo.experiment.config import Execution, TransformerShape
from srpo.files import read_json
from srpo.inputs.errors import SrpoError
from srpo.plan.gpus import GPUS, Gpu


@dataclass(frozen=True)
class Update:
    """Passes of a model of random weights.

    Attributes:
        model: whose shape it has.
        shape: the shape, with the number of layers that fitted.
        execution: attention, and whether prompts are shared.
        flops: FLOP/s of all passes except generation, recomputation counted.
        peak, planned: GB that torch allocated at most, and what the plan computes for the same passes.
    """

    model: str
    shape: TransformerShape
    execution: tuple[str, bool]
    flops: float
    peak: float
    planned: float

    def is_of(self, shape: TransformerShape) -> bool:
        """Whether the measured model has the layers of a shape, whatever their number."""
        return shape == self.shape.model_copy(update={"num_hidden_layers": shape.num_hidden_layers})


@dataclass(frozen=True)
class FirstGpu:
    """A file of ``bench/first_gpu.py``.

    Attributes:
        path: the file.
        device: the card as torch names it.
        card: its name in :data:`~srpo.plan.gpus.GPUS`; None if it is none of them.
        updates: what was measured.
    """

    path: Path
    device: str
    card: str | None
    updates: tuple[Update, ...]

    def update_of(self, gpu: Gpu, shape: TransformerShape, execution: Execution) -> Update | None:
        """The measured passes of a shape on a card: with the same attention, or else with shared prompts."""
        if gpu.name != self.card:
            return None
        found = {update.execution: update for update in self.updates if update.is_of(shape)}
        wanted = execution.attention, execution.shares_prompts
        return found.get(wanted) or found.get(("sdpa", True))

    def card_for(self, gpu: Gpu, shape: TransformerShape, execution: Execution) -> Gpu:
        """The card at the measured pace, or as it is if the shape was not measured on it."""
        update = self.update_of(gpu, shape, execution)
        return replace(gpu, flops_share=update.flops / gpu.flops) if update else gpu


def read_first_gpu(path: Path) -> FirstGpu:
    """Read the file; parts that failed are left out.

    Raises:
        SrpoError: if it is no such file, or was measured on a CPU.
    """
    found = read_json(path)
    if not isinstance(found, dict) or not {"card", "parts"} <= found.keys():
        raise SrpoError(f"--from {path}: not written by bench/first_gpu.py; give its file, or a folder of results")
    if found["card"] is None:
        raise SrpoError(f"--from {path}: measured on a CPU; a plan takes the pace of a GPU")
    results = (
        part["result"] for name, part in found["parts"].items() if name.startswith("update") and "result" in part
    )
    return FirstGpu(path, found["card"], card_name(found["card"]), tuple(map(_update, results)))


def _update(result: Mapping[str, Any]) -> Update:
    shape = TransformerShape(**result["shape"])
    execution = result["attention"], result["shared_prompts"]
    return Update(result["model"], shape, execution, 1e12 * result["tflops"], result["peak_gb"], result["planned_gb"])


def card_name(device: str) -> str | None:
    """``h100`` of ``NVIDIA H100 80GB HBM3``; None if no card of the list is named."""
    words = re.findall(r"[a-z0-9]+", device.lower())
    names = {*words, *("".join(pair) for pair in pairwise(words))}  # RTX 4090
    return next((name for name in GPUS if name in names), None)
