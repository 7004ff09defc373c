"""Opens the tokenizer of a checkpoint."""

import json
from pathlib import Path

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from srpo.ground.errors import SrpoError

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
    try:
        if plain:
            opened = PreTrainedTokenizerFast.from_pretrained(folder)
        else:
            from transformers import AutoTokenizer

            opened = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # of the tokenizers package, which has no class for its errors
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise SrpoError(f"{folder}: its tokenizer cannot be read ({why:.200}); make this model again") from error
    if opened.chat_template is None:
        raise SrpoError(f"{folder}: its tokenizer has no chat template, which questions need")
    return opened
