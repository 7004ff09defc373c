"""Weights of distilled tokens: by the teacher's entropy (section 3.2), and by the spread of a group's rewards."""

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor


def group_spread(correct: Bool[Tensor, " rollouts"], groups: Int64[Tensor, " rollouts"]) -> Float[Tensor, " rollouts"]:
    """sqrt(p (1 - p)) with p the share of correct rollouts in the rollout's group (SC-SDPO, arXiv 2605.27765).

    Returns:
        float32 in [0, 0.5]; exactly 0 where all rollouts of a group are right, or all wrong.
    """
    _, member, size = groups.unique(return_inverse=True, return_counts=True)
    share = torch.zeros(len(size)).index_add_(0, member, correct.float()) / size
    return (share * (1 - share)).sqrt()[member]


def dynamic_weights(
    entropy: Float[Tensor, " S"], beta: float | int, of_group: Float[Tensor, " S"] | None = None
) -> Float[Tensor, " S"]:
    """exp(-beta H_t), times a weight of the token's group, normalised to mean 1 over the given tokens.

    Args:
        entropy: teacher entropy in nats at **every** valid routed token of one mini-batch, over the full
            vocabulary. Normalising over less (a micro-batch, one rank) would change the objective.
        beta: sensitivity; 0 gives weights of exactly 1.
        of_group: at least 0; None for 1. A token of weight 0 counts in the mean, so that the others' weights rise.

    Returns:
        float32 constants; empty for no token, 0 if all groups have the weight 0.
    """
    scores = -beta * entropy.detach().double()
    if of_group is not None:
        if not of_group.any():
            return torch.zeros_like(entropy, dtype=torch.float32)
        scores = scores + (of_group.double() / of_group.max()).log()  # + 0 if all are equal
    # a softmax: exp(-beta H) alone would underflow where every entropy is large
    return (len(entropy) * torch.softmax(scores, dim=0)).float()


def unscaled_weights(
    entropy: Float[Tensor, " S"], beta: float | int, of_group: Float[Tensor, " S"] | None = None
) -> Float64[Tensor, " S"]:
    """exp(-beta H_t) times a weight of the token's group, of a part of a mini-batch.

    With S and Z the number and the sum over the whole mini-batch, times S / Z they are :func:`dynamic_weights`.
    """
    weights = (-beta * entropy.detach().double()).exp()
    return weights if of_group is None else weights * of_group.double()


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
