"""How every engine and every stage reads a model's folder in Hugging Face format: its weights, and its ends."""

from pathlib import Path
from typing import Any

from srpo.ground.files import read_json
from srpo.questions.prompts import turn_marks

WEIGHTS_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The files of the weights, as transformers finds them: one, or the index's. Others beside them are not read."""
    if (folder / WEIGHTS_FILE).exists() or not (folder / INDEX).exists():
        return [folder / WEIGHTS_FILE]
    return [folder / name for name in sorted({*read_json(folder / INDEX)["weight_map"].values()})]


def stop_token_ids(folder: Path) -> frozenset[int]:
    """The token ids that end a response by ``config.json`` and ``generation_config.json``; SGLang obeys them."""
    stops: set[int] = set()
    for path in (folder / "config.json", folder / "generation_config.json"):
        found = read_json(path).get("eos_token_id") if path.exists() else None
        stops.update([found] if isinstance(found, int) else found or [])
    return frozenset(stops)


def end_tokens(folder: Path, tokenizer: Any) -> frozenset[int]:
    """The one set of ends of a base model, for training, evaluation and gap: its files may name different ones."""
    ends, _ = turn_marks(tokenizer)
    return stop_token_ids(folder) | ends
