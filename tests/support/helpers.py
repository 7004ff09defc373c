"""The method once more, slowly: section 3.3 in float64, a token at a time, with nothing of ``srpo.algorithm``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from srpo.algorithm.method import Method
from srpo.hosts.functional import load_method as load_method

METHODS = (
    "grpo",
    "sdpo",
    "srpo",
    "srpo_without_weighting",
    "srpo_equal_loss_scale",
    "advantage_mix",
    "grpo_with_anchor",
    "sdpo_failed_only",
    "sdpo_correct_only",
    "rlsd",
    "sc_sdpo",
)

TEACHERS = ("srpo_frozen_teacher", "srpo_live_teacher")
"""Methods whose teacher is not the paper's."""

CONTEXTS = ("i_sdpo",)
"""Methods whose teacher is shown something else than a sibling."""

ROUTES = {
    # (correct, sibling available): (True, True), (True, False), (False, True), (False, False)
    "grpo": ("grpo", "grpo", "grpo", "grpo"),
    "sdpo": ("sdpo", "dropped", "sdpo", "dropped"),
    "srpo": ("grpo", "grpo", "sdpo", "grpo"),
    "srpo_without_weighting": ("grpo", "grpo", "sdpo", "grpo"),
    "srpo_equal_loss_scale": ("grpo", "grpo", "sdpo", "grpo"),
    "advantage_mix": ("mix", "mix", "mix", "mix"),
    "grpo_with_anchor": ("anchored", "anchored", "anchored", "anchored"),
    "sdpo_failed_only": ("dropped", "dropped", "sdpo", "dropped"),
    "sdpo_correct_only": ("sdpo", "dropped", "dropped", "dropped"),
    "rlsd": ("rlsd", "rlsd", "rlsd", "rlsd"),
    "sc_sdpo": ("sdpo", "dropped", "sdpo", "dropped"),
    "i_sdpo": ("grpo", "grpo", "grpo", "sdpo"),
    **dict.fromkeys(TEACHERS, ("grpo", "grpo", "sdpo", "grpo")),
}
CASES = ((True, True), (True, False), (False, True), (False, False))
ALPHA: dict[str, float | None] = {"sdpo": None}
"""Branches that distil, and the alpha of their divergence; None: the method's."""


@dataclass(frozen=True)
class Sample:
    """One rollout for the slow objective; log-distributions are [response, vocabulary] float64."""

    group: int
    reward: float
    tokens: list[int]
    rollout_log_probs: list[float]
    old: Tensor
    teacher: Tensor | None = None  # under the prompt that shows the first correct sibling, or the student's own

    def teacher_at(self, t: int) -> Tensor:
        assert self.teacher is not None
        return self.teacher[t]


def first_correct_sibling(samples: Sequence[Sample], i: int) -> int | None:
    for j, other in enumerate(samples):
        if j != i and other.group == samples[i].group and other.reward == 1:
            return j
    return None


def branch_of(name: str, samples: Sequence[Sample], i: int) -> str:
    case = (samples[i].reward == 1, first_correct_sibling(samples, i) is not None)
    return ROUTES[name][CASES.index(case)]


def slow_divergence(p: Tensor, q: Tensor, ids: Sequence[int], alpha: float) -> Tensor:
    """alpha KL(q || m) + (1 - alpha) KL(p || m) over ``ids`` and the rest; p and q are log-distributions."""
    rest = [v for v in range(len(p)) if v not in set(ids)]
    total = torch.zeros((), dtype=torch.float64)
    for outcome in [[v] for v in ids] + [rest]:
        p_b, q_b = p[outcome].exp().sum(), q[outcome].exp().sum()
        if alpha == 0:
            total = total + q_b * (q_b / p_b).log()
        elif alpha == 1:
            total = total + p_b * (p_b / q_b).log()
        else:
            m_b = (1 - alpha) * p_b + alpha * q_b
            total = total + alpha * q_b * (q_b / m_b).log() + (1 - alpha) * p_b * (p_b / m_b).log()
    return total


def slow_weights(method: Method, samples: Sequence[Sample], distilled: Sequence[int]) -> dict[tuple[int, int], float]:
    """w~ of every distilled token of one mini-batch."""
    beta = method.entropy_beta
    raw = {}
    for i in distilled:
        rewards = [other.reward for other in samples if other.group == samples[i].group]
        share = sum(rewards) / len(rewards)
        of_group = math.sqrt(share * (1 - share)) if method.group_weight == "spread" else 1.0
        for t in range(len(samples[i].tokens)):
            entropy = -math.fsum(math.exp(v) * v for v in samples[i].teacher_at(t).tolist())
            raw[i, t] = of_group * math.exp(-beta * entropy)
    total = math.fsum(raw.values())
    weights = {key: value * len(raw) / total if total else 0.0 for key, value in raw.items()}
    if not method.preserve_loss_scale or not weights:
        return weights
    before = {}
    for i, t in weights:
        old = samples[i].old[t]
        before[i, t] = slow_divergence(
            old, samples[i].teacher_at(t), slow_top_k(old, method), method.distillation_alpha
        )
    scale = sum(before.values()) / sum(weights[key] * before[key] for key in weights)
    return {key: value * scale.item() for key, value in weights.items()}


def slow_top_k(old: Tensor, method: Method) -> list[int]:
    return sorted(range(len(old)), key=lambda v: -old[v].item())[: min(method.distillation_topk, len(old) - 1)]


@dataclass(frozen=True)
class SlowLoss:
    """The objective's two parts; which policy tokens were clipped.

    Attributes:
        log_ratios: log pi_old - log pi_rollout of each token.
    """

    policy: Tensor
    distillation: Tensor
    divergences: list[float]
    clipped: list[bool]
    log_ratios: list[float]

    @property
    def total(self) -> Tensor:
        return self.policy + self.distillation


def slow_objective(
    method: Method, samples: Sequence[Sample], student: dict[int, Tensor], mini_batch: Sequence[int]
) -> SlowLoss | None:
    """Section 3.3 on one mini-batch.

    Args:
        samples: the rollouts of the whole batch.
        student: current [response, vocabulary] log-distributions of the mini-batch's rollouts, with gradients.
        mini_batch: indices of its rollouts.

    Returns:
        None where no rollout has a branch.
    """
    branches = {i: branch_of(method.name, samples, i) for i in mini_batch}
    kept = [i for i in mini_batch if branches[i] != "dropped"]
    if not kept:
        return None
    weights = slow_weights(method, samples, [i for i in kept if branches[i] in ALPHA])
    policy = distillation = torch.zeros((), dtype=torch.float64)
    count, divergences, clipped, log_ratios = 0, [], [], []
    for i in kept:
        sample = samples[i]
        rewards = [other.reward for other in samples if other.group == sample.group]
        group_advantage = sample.reward - sum(rewards) / len(rewards)
        for t, token in enumerate(sample.tokens):
            count += 1
            log_p, old = student[i][t], sample.old[t].tolist()
            log_ratios.append(old[token] - float(sample.rollout_log_probs[t]))
            correction = min(math.exp(log_ratios[-1]), method.rollout_is_threshold)
            if branches[i] in ALPHA:
                ids, alpha = slow_top_k(sample.old[t], method), ALPHA[branches[i]]
                alpha = method.distillation_alpha if alpha is None else alpha
                divergence = slow_divergence(log_p, sample.teacher_at(t), ids, alpha)
                divergences.append(divergence.item())
                ratio = min(math.exp(log_p[token].item() - old[token]), method.distillation_is_clip)
                loss = weights[i, t] * ratio * correction * divergence
                distillation = distillation + loss
                continue
            advantage = group_advantage
            if branches[i] == "anchored":
                advantage = group_advantage - method.kl_coef * (old[token] - sample.teacher_at(t)[token].item())
            if branches[i] == "mix":
                gap = 0.0 if sample.teacher is None else sample.teacher_at(t)[token].item() - old[token]
                advantage = method.mix_lambda * group_advantage + (1 - method.mix_lambda) * gap
            if branches[i] == "rlsd" and sample.teacher is not None:
                q_over_p = math.exp(sample.teacher_at(t)[token].item() - old[token])
                advantage = slow_reweighted(group_advantage, q_over_p, method)
            ratio = (log_p[token] - old[token]).exp()
            loss, is_clipped = slow_surrogate(ratio, advantage, method)
            clipped.append(is_clipped)
            policy = policy + correction * loss
    return SlowLoss(policy / count, distillation / count, divergences, clipped, log_ratios)


def slow_reweighted(advantage: float, likelihood_ratio: float, method: Method) -> float:
    """RLSD's equation 15, as a case distinction."""
    if advantage == 0:
        return 0.0
    weight = likelihood_ratio if advantage > 0 else 1 / likelihood_ratio
    weight = min(max(weight, 1 - method.rlsd_clip), 1 + method.rlsd_clip)
    return (1 - method.rlsd_lambda) * advantage + method.rlsd_lambda * weight * advantage


def slow_surrogate(ratio: Tensor, advantage: float, method: Method) -> tuple[Tensor, bool]:
    """The clipped token loss as a case distinction, and whether a clip decided it."""
    low, high, c = 1 - method.clip_ratio_low, 1 + method.clip_ratio_high, method.clip_ratio_c
    if advantage > 0 and ratio > high:
        return torch.tensor(-high * advantage, dtype=torch.float64), True
    if advantage < 0 and ratio < low:
        return torch.tensor(-low * advantage, dtype=torch.float64), True
    if advantage < 0 and ratio > c:
        return torch.tensor(-c * advantage, dtype=torch.float64), True
    return -ratio * advantage, False
