"""Base models that the repository carries: weights made once, so that every machine starts from the same bytes.

A file holds the weights and, as metadata, the recipe and who made it: ``recipe`` (architecture and warm start),
``tokenizer`` (the hash of ``tokenizer.json``, which is made again from the recipe), ``warm_start`` (what it has learnt)
and ``made`` (commit, machine, torch). ``srpo model --store`` writes it (``make base-models``).
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from srpo.experiment.config import MiniatureModel
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_bytes
from srpo.ground.repository import CONFIGS

STORED = CONFIGS / "models" / "stored"


def stored_file(model: MiniatureModel) -> Path | None:
    """The file of a base model that the repository has; None if the model is built."""
    seed = model.warm_start.seed
    return STORED / f"{model.name}.safetensors" if seed in model.stored else None


def recipe_of(model: MiniatureModel) -> str:
    """What determines the weights, as text: architecture and warm start."""
    parts = {"architecture": model.architecture, "warm_start": model.warm_start}
    return json.dumps({name: part.model_dump(exclude_defaults=True) for name, part in parts.items()}, sort_keys=True)


def read_metadata(model: MiniatureModel, path: Path) -> dict[str, Any]:
    """The metadata of a stored base model, whose bytes and recipe are checked."""
    from safetensors import safe_open

    pinned = model.stored[model.warm_start.seed]
    where = f"model {model.name}: stored.{model.warm_start.seed}"
    found = hashlib.sha256(read_bytes(path)).hexdigest()
    if found != pinned:
        raise SrpoError(f"{where} = {pinned}: {path} has {found}; not the pinned file")
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    if metadata["recipe"] != recipe_of(model):
        raise SrpoError(f"{where}: {path} has another architecture or warm start; without the key it is built")
    parsed = {key: json.loads(metadata[key]) for key in ("warm_start", "made")}
    return {"tokenizer": metadata["tokenizer"], **parsed}


def write_stored(model: MiniatureModel, built: Path, description: dict[str, Any], made: dict[str, Any]) -> Path:
    """Store a base model that was just built.

    Returns:
        The file.
    """
    from safetensors.torch import load_file, save_file

    metadata = {
        "format": "pt",
        "recipe": recipe_of(model),
        "tokenizer": tokenizer_hash(built),
        "warm_start": json.dumps(description["warm_start"]),
        "made": json.dumps(made),
    }
    path = STORED / f"{model.name}.safetensors"
    path.parent.mkdir(exist_ok=True)
    # lossless: the warm start ends with weights in this precision
    weights = {name: tensor.bfloat16() for name, tensor in load_file(built / "model.safetensors").items()}
    save_file(weights, path, metadata)
    path.chmod(0o644)  # safetensors makes it private
    return path


def tokenizer_hash(folder: Path) -> str:
    """The sha256 of a checkpoint's ``tokenizer.json``."""
    return hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
