"""DemoPSD's target (arXiv 2607.02502, equations 7 to 12): a teacher that is drawn towards a student far from it."""

import torch
from torch import Tensor

from srpo.algorithm.branches import Branch, register
from srpo.algorithm.divergence import generalised_jsd
from srpo.algorithm.method import Method

LARGEST = 0.15
"""Largest share of the student in the target (theirs); 0 is the reverse KL divergence."""

SLOPE = 50.0
"""How fast that share rises with the divergence of student and teacher. Theirs is 25 to 100 by domain."""


def damped_reverse_kl(method: Method, student: Tensor, teacher: Tensor) -> Tensor:
    """KL(p || q*) in nats, [tokens], of log p and log q, [tokens, K + 1]; gradients flow through p, not through q*."""
    target = damped_teacher(student, teacher, LARGEST, SLOPE)
    return (student.exp() * (student - target)).sum(-1)


def damped_teacher(student: Tensor, teacher: Tensor, largest: float, slope: float) -> Tensor:
    """log q* with q* = q^(1 - a) p^a / Z, a constant.

    a = 2 ``largest`` (sigmoid(``slope`` D) - 1/2) at each token, with D the Jensen-Shannon divergence of p and q: 0
    where they agree, ``largest`` where they are far apart. p is the student; DemoPSD has the slow teacher without the
    demonstration in its place, which would be one more pass.
    """
    student, teacher = student.detach(), teacher.detach()
    distance = generalised_jsd(student, teacher, 0.5)
    share = 2 * largest * (torch.sigmoid(slope * distance) - 0.5)[:, None]
    return ((1 - share) * teacher + share * student).log_softmax(-1)


DAMPED = register(
    Branch("damped", "SDPO, damped teacher", loss="distillation", sibling="required", divergence=damped_reverse_kl)
)
