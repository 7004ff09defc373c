"""Diagnostics of a step: why a method works or fails (docs/method.md). They are never part of the loss."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

PARTS = ("reasoning", "answer_start", "answer_rest", "format")
"""What a response token belongs to: ``answer_start`` is the first token of the answer, ``format`` tags and the end."""

REASONING, ANSWER_START, ANSWER_REST, FORMAT = range(len(PARTS))

REPEATED_TOKENS = 4
"""Length of the sequences of tokens whose repetition :func:`is_repetitive` counts."""


def weight_metrics(weights: Float[Tensor, " distilled"]) -> dict[str, float]:
    """Quantiles of the dynamic weights, and the effective sample size as a share of the tokens."""
    p10, median, p90 = _quantiles(weights, (0.1, 0.5, 0.9))
    # no weight at all: 0, not 0 / 0
    effective = weights.sum().square() / (len(weights) * weights.square().sum()) if weights.any() else weights.sum()
    return {
        "weights/p10": p10,
        "weights/median": median,
        "weights/p90": p90,
        "weights/max": weights.max().item(),
        "weights/effective_fraction": effective.item(),
    }


def _quantiles(values: Tensor, shares: Iterable[float]) -> list[float]:
    """Nearest-rank quantiles; torch.quantile refuses more than 16 million values."""
    ordered = values.sort().values
    return [ordered[round(share * (len(values) - 1))].item() for share in shares]


def copied_tokens(
    responses: Sequence[Tensor], parts: Mapping[int, Tensor], shown: Mapping[int, int]
) -> dict[int, Int64[Tensor, " response"]]:
    """By distilled rollout, at its first answer token: the first token of the shown sibling's answer. Else -1.

    It is -1 too where both answers begin with the same token. If the sibling's token becomes the student's most likely
    one after its own wrong reasoning, the student learns answers instead of reasoning.

    Args:
        responses: token ids of all rollouts.
        parts: [response] int64 index into :data:`PARTS` of each token, of the rollouts in ``shown``, keys and values.
        shown: by distilled rollout, the sibling that its teacher sees; negative if it sees none of the batch.
    """
    tokens = {row: torch.full((len(responses[row]),), -1) for row in shown}
    for row, sibling in ((row, sibling) for row, sibling in shown.items() if sibling >= 0):
        own, other = _answer_start(parts[row]), _answer_start(parts[sibling])
        if own is not None and other is not None and responses[row][own] != responses[sibling][other]:
            tokens[row][own] = responses[sibling][other]
    return tokens


def _answer_start(parts: Tensor) -> int | None:
    found = (parts == ANSWER_START).nonzero()
    return int(found[0]) if len(found) else None


def is_repetitive(tokens: Sequence[int]) -> bool:
    """Whether more than half of the 4-grams of a response have occurred in it before (Welleck et al. 2020: seq-rep-4).

    A template that follows itself at least three times is repetitive. Fewer than four tokens never are.
    """
    there = list(zip(*(tokens[i:] for i in range(REPEATED_TOKENS)), strict=False))
    return 2 * len(set(there)) < len(there)
