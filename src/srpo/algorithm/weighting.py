"""Entropy-aware dynamic weighting of the distillation loss (section 3.2)."""

import torch
from torch import Tensor


def dynamic_weights(entropy: Tensor, beta: float) -> Tensor:
    """exp(-beta H_t), normalised to mean 1 over the given tokens.

    Args:
        entropy: [S] teacher entropy in nats at **every** valid routed token of one mini-batch, over the full
            vocabulary. Normalising over less (a micro-batch, one rank) would change the objective.
        beta: sensitivity; 0 gives weights of exactly 1.

    Returns:
        [S] float32 constants; empty for no token.
    """
    # a softmax: exp(-beta H) alone would underflow where every entropy is large
    return (len(entropy) * torch.softmax(-beta * entropy.detach().double(), dim=0)).float()


def keep_loss(weights: Tensor, divergence: Tensor) -> Tensor:
    """Scale weights so that they change which tokens the distillation loss attends to, but not the loss's size.

    Weights of mean 1 shrink the loss, because the divergence is large where the teacher's entropy is. This control
    divides by sum(w D) / sum(D); the paper has none. The corrections for off-policy tokens, near 1, are left aside.

    Args:
        weights: [S] w~_t of one mini-batch.
        divergence: [S] D_t in nats, at the start of the batch.

    Returns:
        [S] float32; ``weights`` as they are if there is no divergence.
    """
    total = (weights.double() * divergence.double()).sum()
    return (weights * (divergence.double().sum() / total)).float() if total > 0 else weights
