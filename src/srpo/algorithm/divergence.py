"""Distillation divergences between student and teacher (section 2.2)."""

import math

import torch
from torch import Tensor


def generalised_jsd(student: Tensor, teacher: Tensor, alpha: float) -> Tensor:
    """alpha KL(q || m) + (1 - alpha) KL(p || m) with m = (1 - alpha) p + alpha q.

    ``alpha = 0.5`` is the Jensen-Shannon divergence, 0 the forward KL(q || p), 1 the reverse KL(p || q).

    Args:
        student: [tokens, buckets] log p; gradients flow here.
        teacher: [tokens, buckets] log q, taken as a constant.
        alpha: in [0, 1].

    Returns:
        [tokens] nats.
    """
    teacher = teacher.detach()
    if alpha == 0:
        return _kl(teacher, student)
    if alpha == 1:
        return _kl(student, teacher)
    mixture = torch.logaddexp(student + math.log1p(-alpha), teacher + math.log(alpha))
    return alpha * _kl(teacher, mixture) + (1 - alpha) * _kl(student, mixture)


def _kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    return (log_p.exp() * (log_p - log_q)).sum(-1)
