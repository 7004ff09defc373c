"""What the losses need of a next-token distribution, computed from logits a chunk of tokens at a time.

A float32 copy of [tokens, vocabulary] never exists as a whole: at 151,936 tokens of vocabulary one
8,192-token response would take 5 GB.
"""

import torch
from torch import Tensor

CHUNK_ELEMENTS = 2**26


def token_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """log softmax(logits) at ``labels``.

    Args:
        logits: [tokens, vocabulary], any float dtype.
        labels: [tokens] int64.

    Returns:
        [tokens] float32, differentiable.
    """
    return _over_chunks(_token_log_probs, logits, labels)


def top_k_ids(logits: Tensor, k: int) -> Tensor:
    """[tokens, min(k, vocabulary - 1)] int64 ids of the most likely tokens; one id is left for the tail."""
    return logits.detach().topk(min(k, logits.shape[-1] - 1), dim=-1).indices


def restrict(logits: Tensor, ids: Tensor) -> Tensor:
    """The distribution softmax(logits) on ``ids`` plus one bucket that holds all other tokens.

    The last bucket is the logsumexp of the tokens outside ``ids`` minus the normaliser: unlike
    log(1 - sum of the others) it keeps its precision where the distribution is sharp.

    Args:
        logits: [tokens, vocabulary], any float dtype.
        ids: [tokens, K] int64, K < vocabulary.

    Returns:
        [tokens, K + 1] float32 log-probabilities that sum to one, differentiable.
    """
    return _over_chunks(_restrict, logits, ids)


def entropy(logits: Tensor) -> Tensor:
    """[tokens] float32 entropy of softmax(logits) over the full vocabulary, in nats."""
    return _over_chunks(_entropy, logits)


def _token_log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    logits = logits.float()
    return logits.gather(-1, labels.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)


def _restrict(logits: Tensor, ids: Tensor) -> Tensor:
    logits = logits.float()
    normaliser = logits.logsumexp(-1, keepdim=True)
    tail = logits.scatter(-1, ids, -torch.inf).logsumexp(-1, keepdim=True)
    return torch.cat([logits.gather(-1, ids), tail], -1) - normaliser


def _entropy(logits: Tensor) -> Tensor:
    log_probs = logits.float().log_softmax(-1)
    return -(log_probs.exp() * log_probs).sum(-1)


def _over_chunks(function, logits: Tensor, *rows: Tensor) -> Tensor:
    """Apply ``function`` to chunks of tokens; backward recomputes a chunk instead of keeping it."""
    size = max(1, CHUNK_ELEMENTS // logits.shape[-1])
    return function(logits, *rows) if len(logits) <= size else _Chunked.apply(function, size, logits, *rows)


class _Chunked(torch.autograd.Function):
    """Unlike checkpointed chunks, backward writes their gradients into the whole one, which exists only once."""

    @staticmethod
    def forward(ctx, function, size: int, logits: Tensor, *rows: Tensor) -> Tensor:
        ctx.function, ctx.size = function, size
        ctx.save_for_backward(logits, *rows)
        return torch.cat([function(*chunk) for chunk in _split(size, logits, *rows)])

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor | None, ...]:
        logits, *rows = ctx.saved_tensors
        result = torch.empty_like(logits)
        for target, upstream, chunk, *others in _split(ctx.size, result, gradient, logits, *rows):
            chunk = chunk.detach().requires_grad_()
            with torch.enable_grad():
                value = ctx.function(chunk, *others)
            target.copy_(torch.autograd.grad(value, chunk, upstream)[0])
        return None, None, result, *[None] * len(rows)


def _split(size: int, *tensors: Tensor):
    return zip(*(tensor.split(size) for tensor in tensors), strict=True)
