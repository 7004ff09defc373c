"""Distillation divergences between student and teacher (section 2.2)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from srpo.algorithm.method import Method


def jensen_shannon(
    method: Method, student: Float[Tensor, "tokens outcomes"], teacher: Float[Tensor, "tokens outcomes"]
) -> Float[Tensor, " tokens"]:
    """:func:`generalised_jsd` at the method's ``distillation_alpha``."""
    return generalised_jsd(student, teacher, method.distillation_alpha)


def generalised_jsd(
    student: Float[Tensor, "tokens outcomes"], teacher: Float[Tensor, "tokens outcomes"], alpha: float | int
) -> Float[Tensor, " tokens"]:
    """alpha KL(q || m) + (1 - alpha) KL(p || m) with m = (1 - alpha) p + alpha q.

    ``alpha = 0.5`` is the Jensen-Shannon divergence, 0 the forward KL(q || p), 1 the reverse KL(p || q).

    Args:
        student: log p of the top-K tokens and the tail; gradients flow here.
        teacher: log q of the same, taken as a constant.
        alpha: in [0, 1].

    Returns:
        Nats.
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
