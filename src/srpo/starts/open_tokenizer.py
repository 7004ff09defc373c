"""Opens the tokenizer of a checkpoint."""

import json
from pathlib import Path

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

_PLAIN = ("TokenizersBackend", "PreTrainedTokenizerFast")
"""Class names in transformers 5 and 4 of a tokenizer that consists of its ``tokenizer.json`` only."""


def open_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Load a checkpoint's tokenizer.

    transformers' ``AutoTokenizer`` imports what every model needs, 6 s of a core, to find a class; the tokenizers
    that are made here name theirs.
    """
    try:
        plain = json.loads((folder / "tokenizer_config.json").read_text())["tokenizer_class"] in _PLAIN
    except (OSError, ValueError, KeyError):
        plain = False
    if plain:
        return PreTrainedTokenizerFast.from_pretrained(folder)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)
