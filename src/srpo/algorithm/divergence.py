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


def clip_divergence(method: Method, divergence: Float[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
    """Each token's divergence, at most the method's ``divergence_clip``; a token above it has no gradient.

    It bounds the sum over a token's outcomes. OPSD's authors bound each outcome of the sum instead (arXiv 2601.18734,
    later versions), which is another loss.
    """
    return divergence if method.divergence_clip is None else divergence.clamp(max=method.divergence_clip)


def damped_reverse_kl(
    method: Method, student: Float[Tensor, "tokens outcomes"], teacher: Float[Tensor, "tokens outcomes"]
) -> Float[Tensor, " tokens"]:
    """KL(p || q*) to a teacher that is drawn towards the student where the two are far apart: :func:`damped_teacher`.

    Args:
        student: log p of the top-K tokens and the tail; gradients flow through p, not through q*.
        teacher: log q of the same.

    Returns:
        Nats.
    """
    return _kl(student, damped_teacher(student, teacher, method.damping_max, method.damping_slope))


def damped_teacher(
    student: Float[Tensor, "tokens outcomes"],
    teacher: Float[Tensor, "tokens outcomes"],
    largest: float | int,
    slope: float | int,
) -> Float[Tensor, "tokens outcomes"]:
    """log q* with q* = q^(1 - a) p^a / Z, a constant (DemoPSD, arXiv 2607.02502, equations 7 to 12).

    a = 2 ``largest`` (sigmoid(``slope`` D) - 1/2) at each token, with D the Jensen-Shannon divergence of p and q: 0
    where they agree, ``largest`` where they are far apart. p is the student; DemoPSD has the slow teacher without the
    demonstration in its place, which would be one more pass.
    """
    student, teacher = student.detach(), teacher.detach()
    distance = generalised_jsd(student, teacher, 0.5)
    share = 2 * largest * (torch.sigmoid(slope * distance) - 0.5)[:, None]
    return ((1 - share) * teacher + share * student).log_softmax(-1)


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
