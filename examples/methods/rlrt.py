"""RLRT (arXiv 2605.10781), RLSD's mirror: on correct rollouts, tokens that the teacher did not expect count more."""

from torch import Tensor

from srpo.algorithm.advantage import reweighted_advantages
from srpo.algorithm.branches import Branch, register
from srpo.algorithm.method import Method


def reversed_advantages(method: Method, advantage: Tensor, student: Tensor, teacher: Tensor) -> Tensor:
    """RLSD's advantages with student and teacher exchanged: w_t = exp(sign(A) (log p(y_t) - log q(y_t)))."""
    return reweighted_advantages(method, advantage, teacher, student)


RLRT = register(
    Branch(
        "rlrt",
        "RLRT",
        loss="policy_gradient",
        sibling="if_correct",
        advantage=reversed_advantages,
        settings=("rlsd_lambda", "rlsd_clip"),
    )
)
