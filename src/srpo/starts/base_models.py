"""Makes one folder per base model of any kind: Hugging Face format and ``base.json``."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srpo.experiment.config import GgufModel, HubModel, LocalModel, MiniatureModel, Model, WarmStart
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_json, write_json
from srpo.ground.imports import gc_paused, import_transformers_without_scipy
from srpo.ground.layout import model_description
from srpo.ground.seeds import derive_seed
from srpo.starts.resolve import (
    check_shape,
    checkpoint_files,
    count_parameters,
    digest,
    resolve_gguf,
    resolve_hub,
    resolve_local,
    sha256_of,
)
from srpo.starts.stored import read_metadata, stored_file, tokenizer_hash, write_stored

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

    from srpo.starts.corpus import Corpus

TOKENIZER_EXAMPLES = 4000

PROBES = {"built": 48, "pretrained": 16}
"""Questions of each kind that a warm start is measured with. Of a pretrained model each takes long; with 4 of them
a model that was right in 32 % of its test questions was measured with 6 %."""


def build_model(model: Model, output_dir: Path, train_splits: dict[str, Path]) -> None:
    """Make a base model's folder; it appears complete or not at all and replaces an older one.

    Args:
        train_splits: splits by benchmark, for a model that is warm-started on them.
    """
    output_dir.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{output_dir.name}.", suffix=".partial", dir=output_dir.parent))
    try:
        if isinstance(model, MiniatureModel):
            details = _build_miniature(model, partial, train_splits)
        elif isinstance(model, GgufModel):
            details = _convert_gguf(model, partial, train_splits)
        else:
            details = _link_checkpoint(model, partial)
        base = {"model": model.name, "kind": model.kind, "parameters": count_parameters(partial)}
        write_json(model_description(partial), {**base, "sha256": digest(partial), **details})
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
        import_transformers_without_scipy()
        from srpo.starts import corpus as corpora
        from srpo.starts import make_tokenizer as tokenizers
        from srpo.starts.warm_start import new_model

    settings = model.warm_start
    corpus = corpora.open_corpus(settings, train_splits)
    texts = corpora.corpus_texts(corpus, random.Random(derive_seed("tokenizer", settings.seed)), TOKENIZER_EXAMPLES)
    make_tokenizer = tokenizers.symbol_tokenizer if settings.corpus == "families" else tokenizers.text_tokenizer
    tokenizer = make_tokenizer(texts, model.architecture.vocab_size)
    architecture = model.architecture.model_copy(update={"vocab_size": len(tokenizer)})
    network = new_model(architecture, tokenizer, settings.seed)
    if stored := stored_file(model):
        from safetensors.torch import load_model

        metadata = read_metadata(model, stored)
        load_model(network, stored)
        _save(network, tokenizer, folder)
        if tokenizer_hash(folder) != metadata["tokenizer"]:
            raise SrpoError(f"model {model.name}: {stored} has another tokenizer; make it again: make base-models")
        return {"warm_start": metadata["warm_start"], "stored": metadata["made"]}
    details = _warm_start(network, tokenizer, corpus, settings, pretrained=False)
    _save(network, tokenizer, folder)
    return details


def store_model(model: Model, made: dict[str, Any]) -> str:
    """Build a base model and store it in the repository (``srpo.starts.stored``), whether it is stored or not.

    Returns:
        The hash of the file, for ``stored`` in the model's YAML.
    """
    if not isinstance(model, MiniatureModel) or model.warm_start.corpus != "families":
        raise SrpoError(f"model {model.name}: only a toy with warm_start.corpus = families can be stored")
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / model.name
        build_model(model.model_copy(update={"stored": {}}), built, {})
        return sha256_of(write_stored(model, built, read_json(model_description(built)), made))


def _convert_gguf(model: GgufModel, folder: Path, train_splits: dict[str, Path]) -> dict[str, Any]:
    """Write a GGUF file's model as safetensors in float32, after a warm start if there is one."""
    file = resolve_gguf(model)
    with gc_paused():
        import_transformers_without_scipy()
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    network = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    # transformers reads them right for the model, but takes the token that begins a text for the one that ends it
    tokenizer.eos_token, tokenizer.pad_token = (
        tokenizer.convert_ids_to_tokens(network.config.eos_token_id if token is None else token)
        for token in (network.config.eos_token_id, network.config.pad_token_id)
    )
    tokenizer.clean_up_tokenization_spaces = False
    check_shape(model.shape, network.config.to_dict(), f"model {model.name}")
    details: dict[str, Any] = {"source": {"package": model.package, "path": str(model.path), "sha256": model.sha256}}
    if model.warm_start is not None:
        from srpo.starts.corpus import open_corpus

        corpus = open_corpus(model.warm_start, train_splits)
        details |= _warm_start(network, tokenizer, corpus, model.warm_start, pretrained=True)
    _save(network, tokenizer, folder)
    return details


def _warm_start(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    corpus: Corpus,
    settings: WarmStart,
    pretrained: bool,
) -> dict[str, Any]:
    from srpo.starts import warm_start as training

    start = time.perf_counter()
    loss = training.warm_start(network, tokenizer, corpus, settings, pretrained)
    seconds = time.perf_counter() - start
    questions = PROBES["pretrained" if pretrained else "built"]
    accuracy = training.probe_accuracy(network, tokenizer, corpus, settings.seed, questions)
    report = {
        "steps": settings.steps,
        "loss": round(loss, 4),
        "wall_seconds": round(seconds, 1),
        "accuracy": accuracy,
    }
    return {"warm_start": report}


def _save(network: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    from transformers import GenerationConfig
    from transformers.utils.logging import disable_progress_bar

    network.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, do_sample=True
    )
    disable_progress_bar()
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _link_checkpoint(model: HubModel | LocalModel, folder: Path) -> dict[str, Any]:
    source = resolve_hub(model) if isinstance(model, HubModel) else resolve_local(model)
    for path in checkpoint_files(source):
        if path.suffix == ".safetensors":
            (folder / path.name).symlink_to(path.resolve())
        else:
            shutil.copyfile(path, folder / path.name)
    if isinstance(model, HubModel):
        return {"source": {"repository": model.repository, "revision": model.revision}}
    return {"source": {"path": str(source)}}
