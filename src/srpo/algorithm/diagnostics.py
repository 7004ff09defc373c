"""Diagnostics of a step: why a method works or fails (docs/method.md). They are never part of the loss."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Int64
from torch import Tensor

PARTS = ("reasoning", "answer_start", "answer_rest", "format")
"""What a response token belongs to: ``answer_start`` is the first token of the answer, ``format`` tags and the end."""

QUARTERS = 4
"""Parts of equal length of a response, by position."""

REASONING, ANSWER_START, ANSWER_REST, FORMAT = range(len(PARTS))


def loss_cells(parts: Int64[Tensor, " response"]) -> Int64[Tensor, " response"]:
    """Cell of each token in the flattened table [parts, quarters] of :func:`share_sums`."""
    quarter = torch.arange(len(parts)) * QUARTERS // len(parts)
    return parts * QUARTERS + quarter


def share_sums(cells: Int64[Tensor, " tokens"], values: Float[Tensor, " tokens"]) -> dict[str, float]:
    """Sum values of tokens by part and by quarter.

    Args:
        cells: as :func:`loss_cells` made them.
    """
    table = values.new_zeros(len(PARTS) * QUARTERS).index_add(0, cells, values).cpu().view(len(PARTS), QUARTERS)
    by_part = zip(PARTS, table.sum(1).tolist(), strict=True)
    by_quarter = ((f"quarter_{i}", value) for i, value in enumerate(table.sum(0).tolist(), 1))
    return dict([*by_part, *by_quarter])


def weight_metrics(weights: Float[Tensor, " distilled"]) -> dict[str, float]:
    """Quantiles of the dynamic weights, and the effective sample size as a share of the tokens.

    Args:
        weights: w~_t of a step.
    """
    p10, median, p90 = _quantiles(weights, (0.1, 0.5, 0.9))
    effective = weights.sum().square() / (len(weights) * weights.square().sum())
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


def copying_cases(
    responses: Sequence[Tensor], parts: dict[int, Tensor], shown: dict[int, int]
) -> dict[int, tuple[int, int]]:
    """The position of a rollout's first answer token, and the first answer token of the sibling that its teacher sees.

    By distilled rollout; rollouts with the same first answer token as the sibling are left out.

    Args:
        responses: token ids of all rollouts.
        parts: [response] int64 index into :data:`PARTS` of each token, of the rollouts in ``shown``, keys and values.
        shown: by distilled rollout, the sibling that its teacher sees.
    """
    cases = {}
    for row, sibling in shown.items():
        own, other = _answer_start(parts[row]), _answer_start(parts[sibling])
        if own is not None and other is not None and responses[row][own] != responses[sibling][other]:
            cases[row] = own, int(responses[sibling][other])
    return cases


def copying_metrics(
    cases: dict[int, tuple[int, int]], student_argmax: dict[int, Tensor], teacher_argmax: dict[int, Tensor]
) -> dict[str, float]:
    """How often the shown sibling's first answer token is the most likely one, after the rollout's own reasoning.

    If this share rises for the student while its reasoning stays wrong, it learns answers instead of reasoning.

    Args:
        cases: :func:`copying_cases`.
        student_argmax, teacher_argmax: [response] int64 the most likely token at each position, by rollout; if one
            is empty, its metric is left out.
    """
    metrics = {}
    for name, argmax in (("student", student_argmax), ("teacher", teacher_argmax)):
        copied = [bool(argmax[row][position] == token) for row, (position, token) in cases.items() if argmax]
        if copied:
            metrics[f"copying/{name}"] = sum(copied) / len(copied)
    return metrics


def copied_tokens(cases: dict[int, tuple[int, int]], lengths: dict[int, int]) -> dict[int, Tensor]:
    """[response] int64, by distilled rollout: the sibling's token at the first answer token, -1 elsewhere.

    Args:
        lengths: tokens of each distilled rollout's response.
    """
    tokens = {row: torch.full((length,), -1) for row, length in lengths.items()}
    for row, (position, token) in cases.items():
        tokens[row][position] = token
    return tokens


def _answer_start(parts: Tensor) -> int | None:
    found = (parts == ANSWER_START).nonzero()
    return int(found[0]) if len(found) else None
