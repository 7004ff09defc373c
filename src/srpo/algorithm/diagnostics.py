"""What tells why a method works or fails (docs/method.md): numbers of a step, none of which enters its update."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

import torch
from torch import Tensor

PARTS = ("reasoning", "answer_start", "answer_rest", "format")
"""What a response token belongs to: ``answer_start`` is the first token of the answer, ``format`` tags and the end."""

QUARTERS = 4
"""Parts of equal length of a response, by position."""

_REASONING, _ANSWER_START, _ANSWER_REST, _FORMAT = range(len(PARTS))
_TAG = re.compile(r"</?(?:reasoning|think|answer)>|Thought:|Action(?: Input)?:")
_CALL = re.compile(r"Action:")


def token_parts(pieces: Sequence[str], special: Sequence[bool]) -> list[int]:
    """Index into :data:`PARTS` of each token of a response.

    The answer is what the rewards read: from the last ``<answer>`` to its closing tag or, in a response without
    that tag, from the first ``Action:`` to the end.

    Args:
        pieces: the tokens' texts, which make up the response.
        special: which of them are special tokens.
    """
    text = "".join(pieces)
    ends = list(accumulate(map(len, pieces)))
    parts = [_REASONING] * len(pieces)

    def mark(start: int, end: int, part: int) -> None:
        """Set the part of all tokens that reach into characters ``start`` to ``end``."""
        first, last = bisect_right(ends, start), bisect_left(ends, end)
        if start < end:
            parts[first : last + 1] = [part] * (last + 1 - first)

    start, end = _answer_span(text)
    mark(start, end, _ANSWER_REST)
    for tag in _TAG.finditer(text):
        mark(*tag.span(), _FORMAT)
    if answer := re.compile(r"\S").search(text, start, end):
        mark(*answer.span(), _ANSWER_START)
    return [_FORMAT if is_special else part for part, is_special in zip(parts, special, strict=True)]


def _answer_span(text: str) -> tuple[int, int]:
    opening = text.rfind("<answer>")
    if opening >= 0:
        start = opening + len("<answer>")
        closing = text.find("</answer>", start)
        return start, len(text) if closing < 0 else closing
    call = _CALL.search(text)
    return (call.end() if call else len(text)), len(text)


def response_parts(tokenizer, responses: dict[int, Tensor]) -> dict[int, Tensor]:
    """[response] int64 index into :data:`PARTS` of each token, by rollout."""
    if not responses:
        return {}
    ids = torch.cat(list(responses.values())).unique()
    texts = dict(zip(ids.tolist(), tokenizer.batch_decode(ids.unsqueeze(1)), strict=True))
    special = set(tokenizer.all_special_ids)
    return {
        row: torch.tensor(token_parts([texts[token] for token in tokens], [token in special for token in tokens]))
        for row, tokens in ((row, response.tolist()) for row, response in responses.items())
    }


def loss_cells(parts: Tensor) -> Tensor:
    """[response] int64 cell of each token in the flattened table [parts, quarters] of :func:`share_sums`."""
    quarter = torch.arange(len(parts)) * QUARTERS // len(parts)
    return parts * QUARTERS + quarter


def share_sums(cells: Tensor, values: Tensor) -> dict[str, float]:
    """Sum values of tokens by part and by quarter.

    Args:
        cells: [tokens] int64, as :func:`loss_cells` made them.
        values: [tokens].
    """
    table = values.new_zeros(len(PARTS) * QUARTERS).index_add(0, cells, values).cpu().view(len(PARTS), QUARTERS)
    by_part = zip(PARTS, table.sum(1).tolist(), strict=True)
    by_quarter = ((f"quarter_{i}", value) for i, value in enumerate(table.sum(0).tolist(), 1))
    return dict([*by_part, *by_quarter])


def weight_metrics(weights: Tensor) -> dict[str, float]:
    """Quantiles of the dynamic weights, and the effective sample size as a share of the tokens.

    Args:
        weights: [distilled tokens] w~_t of a step.
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


def copying_metrics(
    responses: Sequence[Tensor],
    parts: dict[int, Tensor],
    shown: dict[int, int],
    student_favourites: dict[int, Tensor],
    teacher_favourites: dict[int, Tensor],
) -> dict[str, float]:
    """How often student and teacher, after a rollout's own reasoning, would begin the answer of the shown sibling.

    Of the distilled rollouts whose own answer begins differently. A student that does so ever more often while its
    reasoning stays wrong learns answers, not how to come by them.

    Args:
        responses: token ids of all rollouts.
        parts: :func:`response_parts` of the rollouts in ``shown``, keys and values.
        shown: by distilled rollout, the sibling that its teacher sees.
        student_favourites, teacher_favourites: [response] int64 the most likely token at each position, by rollout.
    """
    copied = []
    for row, sibling in shown.items():
        own, other = _answer_start(parts[row]), _answer_start(parts[sibling])
        if own is None or other is None or responses[row][own] == responses[sibling][other]:
            continue
        favourites = (student_favourites[row][own], teacher_favourites[row][own])
        copied.append([favourite == responses[sibling][other] for favourite in favourites])
    if not copied:
        return {}
    student, teacher = torch.tensor(copied).float().mean(0).tolist()
    return {"copying/student": student, "copying/teacher": teacher}


def _answer_start(parts: Tensor) -> int | None:
    found = (parts == _ANSWER_START).nonzero()
    return int(found[0]) if len(found) else None
