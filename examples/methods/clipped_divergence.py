"""SDPO's divergence, bounded at each token: a token above the bound has no gradient.

It bounds the sum over a token's outcomes, as many ports of OPSD do. OPSD's authors bound each outcome of the sum
instead (arXiv 2601.18734, later versions), which is another loss.
"""

from torch import Tensor

from srpo.algorithm.branches import Branch, register
from srpo.algorithm.divergence import jensen_shannon
from srpo.algorithm.method import Method

BOUND = 0.05
"""Nats."""


def clipped_jensen_shannon(method: Method, student: Tensor, teacher: Tensor) -> Tensor:
    """Each token's divergence, at most ``BOUND``: nats, [tokens], of log p and log q, [tokens, K + 1]."""
    return jensen_shannon(method, student, teacher).clamp(max=BOUND)


CLIPPED = register(
    Branch(
        "clipped_sdpo",
        "SDPO, clipped divergence",
        loss="distillation",
        sibling="required",
        divergence=clipped_jensen_shannon,
        settings=("distillation_alpha",),
    )
)
