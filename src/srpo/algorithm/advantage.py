"""Group-relative advantages (section 2.1, with Dr. GRPO's unbiased normalisation), and what branches make of them.

A branch's function has, for each token, the rollout's group advantage, the student's log p(y_t) at the start of the
update and the teacher's log q(y_t). It returns constants.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from srpo.algorithm.method import Method

Tokens = Float[Tensor, " tokens"]
"""A number for each token."""


def group_advantages(
    rewards: Float[Tensor, " rollouts"], groups: Int64[Tensor, " rollouts"]
) -> Float[Tensor, " rollouts"]:
    """Reward minus the mean reward of the rollout's group; no division by the group's std.

    Returns:
        Advantages in the dtype of ``rewards``; exactly 0 where a group's rewards are all equal.

    Raises:
        ValueError: if a group has a single rollout, for which no baseline exists.
    """
    _, member, size = groups.unique(return_inverse=True, return_counts=True)
    if (size < 2).any():
        raise ValueError("a group of one rollout has no baseline: sample at least 2 rollouts per question")
    total = torch.zeros(len(size), dtype=rewards.dtype).index_add_(0, member, rewards)
    return rewards - (total / size)[member]


def mixed_advantages(method: Method, advantage: Tokens, student: Tokens, teacher: Tokens) -> Tokens:
    """Token-level mix of the two advantages (section 4.3): lam A^GRPO + (1 - lam) A^SDPO, lam = ``mix_lambda``.

    A^SDPO = log q(y_t) - log p(y_t), SDPO's advantage of the sampled token, 0 without a correct sibling; the paper
    leaves its exact form open (docs/paper.md).
    """
    lam = method.mix_lambda
    return (lam * advantage + (1 - lam) * (teacher - student)).detach()


def anchored_advantages(method: Method, advantage: Tokens, student: Tokens, teacher: Tokens) -> Tokens:
    """Group advantage minus a penalty per token for leaving the teacher: A - c (log p(y_t) - log q(y_t)).

    c is ``kl_coef``. The penalty is the k1 estimate of KL(p || q) at the token, as verl's ``use_kl_in_reward`` has
    it, without the sum over later tokens. The teacher is the EMA of the student under the same prompt. A control; not
    in the paper.
    """
    return (advantage - method.kl_coef * (student - teacher)).detach()


def reweighted_advantages(method: Method, advantage: Tokens, student: Tokens, teacher: Tokens) -> Tokens:
    """RLSD (arXiv 2604.03128, equation 15): the reward decides the sign, the teacher only the size of a step.

    A_t = A ((1 - lam) + lam clip(w_t, 1 - e, 1 + e)) with w_t = exp(sign(A) (log q(y_t) - log p(y_t))), lam =
    ``rlsd_lambda`` and e = ``rlsd_clip``. Without a correct sibling the advantage stays as it is.
    """
    weight = (advantage.sign() * (teacher - student)).exp().clamp(1 - method.rlsd_clip, 1 + method.rlsd_clip)
    # 1 + lam (w - 1), not (1 - lam) + lam w: exactly 1 where w is, so that the limits are GRPO bit for bit
    return (advantage * (1 + method.rlsd_lambda * (weight - 1))).detach()
