"""Log-probs, top K, tail and entropy of next-token distributions, computed from logits in chunks of tokens.

There is never a float32 copy of all [tokens, vocabulary] logits: with a vocabulary of 151,936 tokens, one response of
8,192 tokens would take 5 GB.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, Float32, Int64
from torch import Tensor
from torch.autograd.function import once_differentiable

from srpo.algorithm import LOGITS_CHUNK

CPU_LOGITS_CHUNK = 2**21
"""The most on a CPU: 8 MB in float32, which stay in a core's cache."""

LOWEST = -1e4
"""Log-prob of a token whose logit is -inf, as of a masked vocabulary: its probability is 0, and 0 times -inf is NaN."""


def token_log_probs(
    logits: Float[Tensor, "tokens vocabulary"], labels: Int64[Tensor, " tokens"]
) -> Float32[Tensor, " tokens"]:
    """log softmax(logits) at ``labels``.

    Differentiable.
    """
    none = torch.zeros_like(labels, dtype=torch.bool)
    return token_and_top_k_log_probs(logits, labels, none, labels.new_zeros(0, 1))[0]


def top_k_ids(
    logits: Float[Tensor, "tokens vocabulary"], k: int, rows: Bool[Tensor, " tokens"] | None = None
) -> Int64[Tensor, "rows K"]:
    """Ids of the most likely tokens, the most likely one first; K = min(k, vocabulary - 1), so that the tail has one.

    Args:
        rows: where they are wanted; None: everywhere.
    """
    logits = logits.detach()
    k = min(k, logits.shape[-1] - 1)
    if rows is None:
        return logits.topk(k, dim=-1).indices
    size = _chunk_size(logits)
    chunks = zip(logits.split(size), rows.split(size), strict=True)
    return torch.cat([chunk[own].topk(k, dim=-1).indices for chunk, own in chunks])


def top_k_with_tail(
    logits: Float[Tensor, "tokens vocabulary"], ids: Int64[Tensor, "tokens K"]
) -> Float32[Tensor, "tokens K_and_tail"]:
    """Log-probabilities of the top-K tokens under softmax(logits), and of the tail: all other tokens together.

    The tail is the logsumexp of the tokens outside ``ids``: unlike log(1 - sum of the others) it keeps its precision
    where the distribution is sharp.

    Args:
        ids: K < vocabulary of them, all different.

    Returns:
        At least :data:`LOWEST`. The K + 1 probabilities of a token sum to one; differentiable.
    """
    everywhere = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
    return token_and_top_k_log_probs(logits, ids.new_zeros(len(ids)), everywhere, ids)[1]


def token_and_top_k_log_probs(
    logits: Float[Tensor, "tokens vocabulary"],
    labels: Int64[Tensor, " tokens"],
    rows: Bool[Tensor, " tokens"],
    ids: Int64[Tensor, "rows K"],
) -> tuple[Float32[Tensor, " tokens"], Float32[Tensor, "rows K_and_tail"]]:
    """:func:`token_log_probs` of all tokens and :func:`top_k_with_tail` of those in ``rows``, with one softmax.

    Differentiable. The backward pass makes one gradient of the size of ``logits`` and nothing else of that size.
    """
    return _LogProbs.apply(logits, labels, rows, ids)


def entropy(logits: Tensor) -> Float32[Tensor, " tokens"]:
    """Entropy of softmax(logits) over the full vocabulary, in nats.

    Raises:
        ValueError: if they have another form.
    """
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        raise ValueError(f"logits: give a tensor [tokens, vocabulary], not {getattr(logits, 'shape', type(logits))}")
    return torch.cat([_entropy(chunk) for chunk in logits.split(_chunk_size(logits))])


def _entropy(logits: Tensor) -> Tensor:
    log_probs = logits.log_softmax(-1, dtype=torch.float32)
    return -(log_probs.exp() * log_probs.clamp(min=LOWEST)).sum(-1)


class _LogProbs(torch.autograd.Function):
    """Forward and backward go through chunks; backward computes the softmax again instead of keeping it."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, rows: Tensor, ids: Tensor) -> tuple[Tensor, Tensor]:
        log_probs, restricted = [], []
        for tokens, own, places in _chunks(logits, rows, len(ids)):
            every = logits[tokens].log_softmax(-1, dtype=torch.float32)
            log_probs.append(every.gather(-1, labels[tokens, None])[:, 0])
            every = every[own]
            tail = every.scatter(-1, ids[places], -torch.inf).logsumexp(-1, keepdim=True)
            restricted.append(torch.cat([every.gather(-1, ids[places]), tail], -1).clamp_(min=LOWEST))
        result = torch.cat(log_probs), torch.cat(restricted)
        ctx.save_for_backward(logits, labels, rows, ids, result[1])  # not a view of it, which would keep itself alive
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_labels: Tensor, of_restricted: Tensor) -> tuple[Tensor, None, None, None]:
        """With p the softmax: each output's gradient has -p, and the tail's has p / p(tail) outside the top K."""
        logits, labels, rows, ids, log_probs = ctx.saved_tensors
        result = torch.empty_like(logits)
        for tokens, own, places in _chunks(logits, rows, len(ids)):
            upstream, restricted = of_labels[tokens, None], of_restricted[places]
            every = logits[tokens].log_softmax(-1, dtype=torch.float32)
            factor = -upstream
            factor[own] -= restricted.sum(-1, keepdim=True)
            outside = (every[own] - log_probs[places, -1:]).exp_().mul_(restricted[:, -1:])
            gradient = every.exp_().mul_(factor).scatter_add_(-1, labels[tokens, None], upstream)
            gradient[own] += outside.scatter_(-1, ids[places], restricted[:, :-1])
            result[tokens] = gradient
            del every, gradient, outside  # before the next chunk's
        return result, None, None, None


def _chunks(logits: Tensor, rows: Tensor, total: int) -> Iterator[tuple[slice, Tensor | slice, slice]]:
    """Chunks: their tokens, which of these are in ``rows``, and their places among all ``total`` of these."""
    size, first = _chunk_size(logits), 0
    parts = rows.split(size)
    counts = [min(total, len(own)) for own in parts]
    if 0 < total < len(rows):  # a look at the mask makes a GPU wait
        counts = torch.stack([own.sum() for own in parts]).tolist()
    for i, (own, count) in enumerate(zip(parts, counts, strict=True)):
        mask = slice(0) if count == 0 else slice(None) if count == len(own) else own
        yield slice(i * size, (i + 1) * size), mask, slice(first, first + count)
        first += count


def _chunk_size(logits: Tensor) -> int:
    numbers = min(LOGITS_CHUNK, CPU_LOGITS_CHUNK) if logits.device.type == "cpu" else LOGITS_CHUNK
    return max(1, numbers // logits.shape[-1])
