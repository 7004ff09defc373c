"""Whole runs of ``tiny.py``, and whether two of them are the same."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tiny import prepare, tiny_experiment

from srpo.ground.files import read_events
from srpo.training.loop import train


def trained(folder: Path, method: str, changes: dict[str, Any] | None = None, steps: tuple[int, ...] = (4,)) -> Any:
    """The log of a run without measured seconds and memory, and last weights; ``steps``: where each part ends."""
    for last in steps:
        changed = {"learning_rate": 1e-3, "mini_batch_questions": 4} | (changes or {})
        experiment = tiny_experiment(method, changes=changed, max_steps=last, validate_every=2)
        spec, layout = prepare(experiment, folder)
        train(spec, layout)
    files = layout.run_files(spec.id)
    events = list(read_events(files.steps))
    for event in events:
        del event["wall_seconds"], event["host_memory_gb"]
    (weights,) = (files.checkpoints / f"step{steps[-1]}").rglob("*.safetensors")
    return events, load_file(weights)


def assert_same(one: Any, other: Any, but: Collection[str] = ()) -> None:
    """Logs, but for these metrics, and weights are the same."""
    found, expected = (
        [event | {"metrics": {k: v for k, v in event["metrics"].items() if k not in but}} for event in events]
        for events, _ in (one, other)
    )
    assert found == expected
    assert one[1].keys() == other[1].keys()
    assert all(torch.equal(tensor, other[1][name]) for name, tensor in one[1].items())
