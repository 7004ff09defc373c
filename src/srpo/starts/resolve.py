"""Base models that exist already: pinned hub revisions and local checkpoints, laid out like built ones."""

import hashlib
import math
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from srpo.experiment.config import GgufModel, HubModel, LocalModel, TransformerShape
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_json
from srpo.rollout.checkpoint import INDEX, WEIGHTS_FILE, weight_files

FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer*",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template*",
    INDEX,
    "*.safetensors",
)
"""Files that a checkpoint may have: data only, never code."""


def resolve_hub(model: HubModel) -> Path:
    """Download a pinned revision, or find it in the cache.

    Returns:
        Its folder in the hub's cache.
    """
    where = f"model {model.name}: {model.repository} at {model.revision[:12]}"
    checked = _checked(_snapshot(model), where)
    check_shape(model.shape, read_json(checked / "config.json"), where)
    return checked


def _snapshot(model: HubModel) -> Path:
    import httpx
    from huggingface_hub import errors, snapshot_download

    wanted = {"repo_id": model.repository, "revision": model.revision, "allow_patterns": FILES}
    try:
        return Path(snapshot_download(**wanted))
    except (httpx.TransportError, errors.OfflineModeIsEnabled):
        return Path(snapshot_download(**wanted, local_files_only=True))


def resolve_local(model: LocalModel) -> Path:
    """Check a local checkpoint.

    Returns:
        Its folder.
    """
    return _checked(model.path.expanduser().resolve(), f"model {model.name}: path = {model.path}")


def resolve_gguf(model: GgufModel) -> Path:
    """Find a GGUF file, in its package if it has one, and check its bytes.

    Returns:
        The file.
    """
    if model.package:
        path = Path(str(distribution(model.package.partition("==")[0]).locate_file(model.path)))
    else:
        path = model.path.expanduser().resolve()
    _check_hash(path, model.sha256, f"model {model.name}")
    return path


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_hash(path: Path, sha256: str, where: str) -> None:
    if (found := sha256_of(path)) != sha256:
        raise SrpoError(f"{where}: sha256 = {sha256}: {path} has {found}; not the pinned file")


def check_shape(shape: TransformerShape | None, config: Mapping[str, Any], where: str) -> None:
    """Compare the shape in a model's file, which the plan uses, with the checkpoint's configuration."""
    for key, value in shape or ():
        if config.get(key) != value:
            raise SrpoError(f"{where}: shape.{key} = {value}: config.json has {config.get(key)}")


def checkpoint_files(folder: Path) -> list[Path]:
    """The files of a checkpoint that belong to the model, sorted by name: of weights, those that are read."""
    read = weight_files(folder)
    found = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    unread = {*folder.glob("*.safetensors"), folder / INDEX} - {*read}
    if read != [folder / WEIGHTS_FILE]:
        unread.remove(folder / INDEX)
    return sorted(found - unread)


def digest(folder: Path) -> str:
    """Hash what determines the model's output: names and bytes of weights, tokenizer and configuration."""
    found = hashlib.sha256()
    for path in checkpoint_files(folder):
        found.update(f"{path.name} {sha256_of(path)}\n".encode())
    return found.hexdigest()


def count_parameters(folder: Path) -> int:
    """Count the numbers in a checkpoint's safetensors; tied weights are stored, and counted, once."""
    from safetensors import safe_open  # reports do without

    files = [safe_open(path, "numpy") for path in weight_files(folder)]
    return sum(math.prod(file.get_slice(name).get_shape()) for file in files for name in file.keys())  # noqa: SIM118


def _checked(folder: Path, where: str) -> Path:
    if "auto_map" in read_json(folder / "config.json"):
        raise SrpoError(f"{where}: config.json has auto_map, the model needs its own code, which is never run")
    return folder
