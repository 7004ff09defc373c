"""What a run leaves behind, so that two runs can be held against each other."""

import json
import re
from pathlib import Path
from typing import Any

import torch
import yaml


def content(folder: Path) -> dict[str, object]:
    """All that a run leaves behind, without measured seconds and memory."""
    result: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".pt":
            value = torch.load(path, weights_only=False)
            if path.name.startswith("extra"):
                value.pop("rng")  # no draw depends on a global generator
            result[name] = tensors(value)
        elif path.name == "state.json":
            state = json.loads(path.read_text())
            result[name] = {k: v for k, v in state.items() if k not in ("wall_seconds", "seconds_of")}
        elif name in ("steps.jsonl", "summary.json", "finished"):
            result[name] = [without_measurements(line) for line in path.read_text().splitlines()]
        elif path.name == "sizes.json":
            result[name] = sorted(json.loads(path.read_text()))  # a resumed run's pickles are a few bytes longer
        elif name == "run.yaml":
            result[name] = yaml.safe_load(path.read_text())["spec"]  # the commit may be another
        elif path.is_file():
            result[name] = path.read_bytes()
        else:
            result[name] = "folder"
    return result


def without_measurements(line: str) -> str:
    names = "wall_seconds|validation_seconds|checkpoint_seconds|peak_memory_gb|host_memory_gb"
    return re.sub(rf'"({names})": [0-9.e+-]+', r'"\1": 0', line)


def tensors(value: Any) -> list[bytes | str]:
    """The leaves of a checkpoint file in order, tensors as bytes."""
    if isinstance(value, dict):
        return [leaf for key, inner in value.items() for leaf in [str(key), *tensors(inner)]]
    if isinstance(value, list | tuple):
        return [leaf for inner in value for leaf in tensors(inner)]
    if isinstance(value, torch.Tensor):
        value = value.to_local() if hasattr(value, "to_local") else value
        return [value.detach().numpy().tobytes()]
    return [repr(value)]


def assert_same(found: dict[str, object], expected: dict[str, object]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name in expected if found[name] != expected[name]] == []
