"""Truncated importance weights: the rollout correction (section 2.1) and SDPO's weight (2.2)."""

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
