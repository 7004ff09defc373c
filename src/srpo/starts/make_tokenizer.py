"""Byte-level tokenizers for the models that are built here.

They have the interface of Qwen's tokenizer: the same special tokens, ChatML, and exact round-trips of any text.
"""

from collections import Counter
from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from srpo.ground.errors import SrpoError

PAD = "<|endoftext|>"
START = "<|im_start|>"
END = "<|im_end|>"

_SPECIAL = (PAD, START, END)
# sorted: alphabet() is a set, in another order in every process
_BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""Qwen's ChatML for system, user and assistant. ``enable_thinking`` is accepted and changes nothing."""

_SYMBOLS = r"</?[a-z]+>|[ \"]?\p{Ll}[\p{Ll}_]*|[ \"]?\p{Lu}\p{Ll}+| ?\p{N}+|\"[:,}]|[\s\S]"
"""A tag, a word or a number with its blank, or one character (the letters of a peptide, say)."""

_TEXT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""Qwen's pieces."""


def symbol_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Make a tokenizer whose tokens are complete words and numbers, so that a tiny model copies a value as one token.

    The most frequent pieces of ``texts`` get a token, the rest is spelt in bytes.
    """
    splitter = _splitter(_SYMBOLS)
    counts = Counter(piece for text in texts for piece, _ in splitter.pre_tokenize_str(text))
    room = _room(vocab_size)
    words = sorted((piece for piece in counts if len(piece) > 1), key=lambda piece: (-counts[piece], piece))[:room]
    vocab = {token: i for i, token in enumerate([*_SPECIAL, *_BYTES, *words])}
    # there are no merges, so only complete pieces and single bytes are found; complete pieces are looked up first
    return _wrap(Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True)), splitter)


def text_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train byte-pair merges on ``texts``, cut as Qwen's tokenizer cuts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = splitter = _splitter(_TEXT)
    _room(vocab_size)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=list(_SPECIAL),
        initial_alphabet=_BYTES,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _wrap(tokenizer, splitter)


def _room(vocab_size: int) -> int:
    fixed = len(_SPECIAL) + len(_BYTES)
    if vocab_size <= fixed:
        raise SrpoError(f"architecture.vocab_size = {vocab_size}: bytes and special tokens take {fixed}; allow more")
    return vocab_size - fixed


def _splitter(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _wrap(tokenizer: Tokenizer, splitter: pre_tokenizers.PreTokenizer) -> PreTrainedTokenizerFast:
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(_SPECIAL))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
