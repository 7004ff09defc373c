"""Diagnostics of a step: why a method works or fails (docs/method.md). They are never part of the loss."""

from collections.abc import Iterable, Sequence

from jaxtyping import Float
from torch import Tensor

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


def is_repetitive(tokens: Sequence[int]) -> bool:
    """Whether more than half of the 4-grams of a response have occurred in it before (Welleck et al. 2020: seq-rep-4).

    A template that follows itself at least three times is repetitive. Fewer than four tokens never are.
    """
    there = list(zip(*(tokens[i:] for i in range(REPEATED_TOKENS)), strict=False))
    return 2 * len(set(there)) < len(there)
