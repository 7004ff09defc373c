"""Log-probs, top K, tail and entropy of next-token distributions, computed from logits in chunks of tokens.

There is never a float32 copy of all [tokens, vocabulary] logits: with a vocabulary of 151,936 tokens, one response of
8,192 tokens would take 5 GB.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor

from srpo.algorithm.settings import LOGITS_CHUNK


def token_log_probs(
    logits: Float[Tensor, "tokens vocabulary"], labels: Int64[Tensor, " tokens"]
) -> Float32[Tensor, " tokens"]:
    """log softmax(logits) at ``labels``.

    Differentiable.
    """
    return _over_chunks(_token_log_probs, logits, labels)


def top_k_ids(logits: Float[Tensor, "tokens vocabulary"], k: int) -> Int64[Tensor, "tokens K"]:
    """Ids of the most likely tokens, K = min(k, vocabulary - 1): one id is left for the tail."""
    return logits.detach().topk(min(k, logits.shape[-1] - 1), dim=-1).indices


def top_k_with_tail(
    logits: Float[Tensor, "tokens vocabulary"], ids: Int64[Tensor, "tokens K"]
) -> Float32[Tensor, "tokens K_and_tail"]:
    """Log-probabilities of the top-K tokens under softmax(logits), and of the tail: all other tokens together.

    The tail is the logsumexp of the tokens outside ``ids`` minus the normaliser: unlike
    log(1 - sum of the others) it keeps its precision where the distribution is sharp.

    Args:
        ids: K < vocabulary of them.

    Returns:
        The K + 1 probabilities of a token sum to one; differentiable.
    """
    return _over_chunks(_top_k_with_tail, logits, ids)


def entropy(logits: Float[Tensor, "tokens vocabulary"]) -> Float32[Tensor, " tokens"]:
    """Entropy of softmax(logits) over the full vocabulary, in nats."""
    return _over_chunks(_entropy, logits)


def _token_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    logits = logits.float()
    return logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)


def _top_k_with_tail(logits: Tensor, ids: Tensor) -> Tensor:
    logits = logits.float()
    normaliser = logits.logsumexp(-1, keepdim=True)
    tail = logits.scatter(-1, ids, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.cat([logits.gather(-1, ids), tail], -1) - normaliser


def _entropy(logits: Tensor) -> Tensor:
    log_probs = logits.float().log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1)


def _over_chunks(function: Callable[..., Tensor], logits: Tensor, *rows: Tensor) -> Tensor:
    """Apply ``function`` to chunks of tokens; backward recomputes a chunk instead of keeping it."""
    size = max(1, LOGITS_CHUNK // logits.shape[-1])
    return function(logits, *rows) if len(logits) <= size else _Chunked.apply(function, size, logits, *rows)


class _Chunked(torch.autograd.Function):
    """Backward writes the chunks' gradients into one tensor; with checkpointed chunks there would be two copies."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], size: int, logits: Tensor, *rows: Tensor) -> Tensor:
        ctx.function, ctx.size = function, size
        ctx.save_for_backward(logits, *rows)
        return torch.cat([function(*chunk) for chunk in _split(size, logits, *rows)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        logits, *rows = ctx.saved_tensors
        result = torch.empty_like(logits)
        for target, upstream, chunk, *others in _split(ctx.size, result, gradient, logits, *rows):
            chunk = chunk.detach().requires_grad_()
            with torch.enable_grad():
                value = ctx.function(chunk, *others)
            target.copy_(torch.autograd.grad(value, chunk, upstream)[0])
        return None, None, result, *[None] * len(rows)


def _split(size: int, *tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)
