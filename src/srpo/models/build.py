"""Makes one folder per base model of any kind: Hugging Face format and ``base.json``."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from srpo.config import HubModel, LocalModel, MiniatureModel, Model
from srpo.files import write_json
from srpo.imports import gc_paused
from srpo.layout import model_description
from srpo.models.resolve import checkpoint_files, count_parameters, resolve_hub, resolve_local
from srpo.seeds import derive_seed

TOKENIZER_EXAMPLES = 4000


def build_model(model: Model, output_dir: Path, train_splits: dict[str, Path]) -> None:
    """Make a base model's folder; it appears complete or not at all and replaces an older one.

    Args:
        model: what to build or fetch.
        output_dir: the folder.
        train_splits: splits by benchmark, for a model that is warm-started on them.

    Raises:
        SrpoError: if the configuration cannot be built or the checkpoint cannot be fetched.
    """
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{output_dir.name}.", suffix=".partial", dir=output_dir.parent))
    try:
        if isinstance(model, MiniatureModel):
            details = _build_miniature(model, partial, train_splits)
        else:
            details = _link_checkpoint(model, partial)
        base = {"model": model.name, "kind": model.kind, "parameters": count_parameters(partial)}
        write_json(model_description(partial), {**base, "sha256": _digest(partial), **details})
        # mkdtemp makes a private folder; results get the usual permissions
        partial.chmod(output_dir.parent.stat().st_mode & 0o777)
        if output_dir.exists():
            shutil.rmtree(output_dir)
        os.replace(partial, output_dir)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _build_miniature(model: MiniatureModel, folder: Path, train_splits: dict[str, Path]) -> dict[str, Any]:
    # slow to import and not needed for a checkpoint that is only linked
    with gc_paused():
        from transformers import GenerationConfig
        from transformers.utils.logging import disable_progress_bar

        from srpo.models import corpus as corpora
        from srpo.models import tokenizer as tokenizers
        from srpo.models import warm_start as training

    settings = model.warm_start
    corpus = corpora.open_corpus(settings, train_splits)
    texts = corpora.corpus_texts(corpus, random.Random(derive_seed("tokenizer", settings.seed)), TOKENIZER_EXAMPLES)
    make_tokenizer = tokenizers.symbol_tokenizer if settings.corpus == "families" else tokenizers.text_tokenizer
    tokenizer = make_tokenizer(texts, model.architecture.vocab_size)

    network = training.new_model(model.architecture, tokenizer, settings.seed)
    start = time.perf_counter()
    loss = training.warm_start(network, tokenizer, corpus, settings)
    seconds = time.perf_counter() - start
    accuracy = training.probe_accuracy(network, tokenizer, corpus, settings.seed)

    network.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    disable_progress_bar()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    report = {
        "steps": settings.steps,
        "loss": round(loss, 4),
        "wall_seconds": round(seconds, 1),
        "accuracy": accuracy,
    }
    return {"warm_start": report}


def _link_checkpoint(model: HubModel | LocalModel, folder: Path) -> dict[str, Any]:
    """Copy a checkpoint's small files and link its weights."""
    source = resolve_hub(model) if isinstance(model, HubModel) else resolve_local(model)
    for path in checkpoint_files(source):
        if path.suffix == ".safetensors":
            (folder / path.name).symlink_to(path.resolve())
        else:
            shutil.copyfile(path, folder / path.name)
    if isinstance(model, HubModel):
        return {"source": {"repository": model.repository, "revision": model.revision}}
    return {"source": {"path": str(source)}}


def _digest(folder: Path) -> str:
    """Hash what determines the model's output: names and bytes of weights, tokenizer and configuration."""
    digest = hashlib.sha256()
    for path in checkpoint_files(folder):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.name} {content}\n".encode())
    return digest.hexdigest()
