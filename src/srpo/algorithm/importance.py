"""Truncated importance weights: the rollout correction (section 2.1) and SDPO's weight (2.2); what they cannot show."""

from jaxtyping import Float
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Bound of a log-ratio of probabilities before it is exponentiated."""


def truncated_ratio(
    log_prob: Float[Tensor, " tokens"], reference_log_prob: Float[Tensor, " tokens"], threshold: float | int
) -> Float[Tensor, " tokens"]:
    """min(exp(log_prob - reference), threshold), elementwise and without gradient.

    With (old, rollout) log-probs it is the rollout correction; with (current, old) SDPO's importance weight.
    """
    log_ratio = (log_prob - reference_log_prob).detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return log_ratio.exp().clamp(max=threshold)


def sampler_mismatch(
    old_log_prob: Float[Tensor, " tokens"], rollout_log_prob: Float[Tensor, " tokens"]
) -> dict[str, Tensor]:
    """Sums over tokens that tell whether sampler and trainer have the same policy; their means are logged.

    The mean of pi_old / pi_rollout is 1 for *any* policy that samples from its own distribution, so it hides a sampler
    with other weights. These do not: the absolute and the squared difference of log-probs, and verl's ``k3_kl``, an
    unbiased estimate of KL(pi_rollout, pi_old) in nats that is never negative (Schulman's k3).
    """
    log_ratio = (old_log_prob - rollout_log_prob).detach().double()
    k3 = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return {
        "log_prob_difference": log_ratio.abs().sum(),
        "log_prob_difference_squared": log_ratio.square().sum(),
        "k3_kl": (k3.expm1() - k3).sum(),
    }
