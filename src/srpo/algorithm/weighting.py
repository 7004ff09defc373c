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
