"""Which part of a response each token belongs to: reasoning, answer or format (``algorithm/diagnostics.py``)."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, compress
from typing import Any

import torch
from torch import Tensor

from srpo.algorithm.diagnostics import ANSWER_REST, ANSWER_START, FORMAT, REASONING

_TAG = re.compile(r"</?(?:reasoning|think|answer)>|Thought:|Action(?: Input)?:")
_CALL = re.compile(r"Action:")


def token_parts(pieces: Sequence[str], special: Sequence[bool]) -> list[int]:
    """Index into ``diagnostics.PARTS`` of each token of a response.

    The answer is what the rewards read: from the last ``<answer>`` to its closing tag or, in a response without
    that tag, from the first ``Action:`` to the end.
    """
    text = "".join(pieces)
    ends = list(accumulate(map(len, pieces)))
    parts = [REASONING] * len(pieces)

    def mark(start: int, end: int, part: int) -> None:
        """Set the part of all tokens that overlap with the characters ``start`` to ``end``."""
        first, last = bisect_right(ends, start), bisect_left(ends, end)
        if start < end:
            parts[first : last + 1] = [part] * (last + 1 - first)

    start, end = _answer_span(text)
    mark(start, end, ANSWER_REST)
    for tag in _TAG.finditer(text):
        mark(*tag.span(), FORMAT)
    if answer := re.compile(r"\S").search(text, start, end):
        mark(*answer.span(), ANSWER_START)
    for place in compress(range(len(parts)), special):
        parts[place] = FORMAT
    return parts


def _answer_span(text: str) -> tuple[int, int]:
    opening = text.rfind("<answer>")
    if opening >= 0:
        start = opening + len("<answer>")
        closing = text.find("</answer>", start)
        return start, len(text) if closing < 0 else closing
    call = _CALL.search(text)
    return (call.end() if call else len(text)), len(text)


def response_parts(tokenizer: Any, responses: dict[int, Tensor]) -> dict[int, Tensor]:
    """By rollout, [response] int64 index into ``diagnostics.PARTS`` of each token; no Python loop over tokens."""
    if not responses:
        return {}
    ids = torch.cat(list(responses.values())).unique()
    texts = dict(zip(ids.tolist(), tokenizer.batch_decode(ids.unsqueeze(1)), strict=True))
    special = set(tokenizer.all_special_ids)
    result = {}
    for row, response in responses.items():
        tokens = response.tolist()
        pieces, is_special = [*map(texts.__getitem__, tokens)], [*map(special.__contains__, tokens)]
        result[row] = torch.tensor(token_parts(pieces, is_special))
    return result


def shown_answer(text: str) -> str:
    """The answer of a response, as :func:`token_parts` finds it; empty without one."""
    return text[slice(*_answer_span(text))].strip()


def with_masked_answer(text: str) -> str:
    """The response with ``...`` in the place of its answer; without an answer as it is."""
    start, end = _answer_span(text)
    return f"{text[:start]}...{text[end:]}" if start < end else text
