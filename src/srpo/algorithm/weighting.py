"""Entropy-aware dynamic weighting of the distillation loss (section 3.2)."""

import torch
from jaxtyping import Float
from torch import Tensor


def dynamic_weights(entropy: Float[Tensor, " S"], beta: float | int) -> Float[Tensor, " S"]:
    """exp(-beta H_t), normalised to mean 1 over the given tokens.

    Args:
        entropy: teacher entropy in nats at **every** valid routed token of one mini-batch, over the full
            vocabulary. Normalising over less (a micro-batch, one rank) would change the objective.
        beta: sensitivity; 0 gives weights of exactly 1.

    Returns:
        float32 constants; empty for no token.
    """
    # a softmax: exp(-beta H) alone would underflow where every entropy is large
    return (len(entropy) * torch.softmax(-beta * entropy.detach().double(), dim=0)).float()


def preserve_loss_scale(weights: Float[Tensor, " S"], divergence: Float[Tensor, " S"]) -> Float[Tensor, " S"]:
    """Scale weights so that they change which tokens the distillation loss attends to, but not the loss's size.

    Weights of mean 1 shrink the loss, because the divergence is large where the teacher's entropy is. This control
    divides by sum(w D) / sum(D); it is not in the paper. The corrections for off-policy tokens are near 1 and ignored.

    Args:
        weights: w~_t of one mini-batch.
        divergence: D_t in nats, at the start of the batch.

    Returns:
        float32; ``weights`` as they are if there is no divergence.
    """
    total = (weights.double() * divergence.double()).sum()
    return (weights * (divergence.double().sum() / total)).float() if total > 0 else weights
