"""SRPO's routing in verl's own trainer, through verl's registry of policy losses: ``loss_mode: srpo_sampled_token``.

verl gives a registered loss the log-probs of the sampled tokens, not the logits. So a wrong rollout with a correct
sibling is corrected at its sampled tokens, by SDPO's advantage log q - log p (paper, section 4.3, lambda 0), not by
the divergence of the top K, and without dynamic weights. For SRPO itself use ``SRPOWorker`` (docs/verl.md).

docs/verl.md has what your trainer does.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss

from srpo.algorithm.advantage import group_advantages, mixed_advantages
from srpo.algorithm.objective import policy_loss
from srpo.hosts.functional import as_tensors, load_method, route

TABLE = {
    "correct_with_sibling": "grpo",
    "correct_without_sibling": "grpo",
    "wrong_with_sibling": "mix",
    "wrong_without_sibling": "grpo",
}
METHOD = load_method("advantage_mix", title="SRPO at the sampled tokens", routing=TABLE, mix_lambda=0.0)
CLIPS = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.2, "clip_ratio_c": 3.0}
"""verl's defaults; the loss takes these settings from the method instead."""


def routed_advantages(
    rewards: Tensor | Sequence[float],
    groups: Tensor | Sequence[Hashable],
    old_log_probs: Tensor,
    teacher_log_probs: Tensor,
    correct: Tensor | Sequence[bool] | float | None = None,
) -> Tensor:
    """[rollouts, tokens] what verl calls ``advantages``.

    Args:
        rewards, groups, correct: as in :func:`srpo.route`; verl's ``uid`` are groups.
        old_log_probs: [rollouts, tokens] of the sampled tokens, from the trainer before the update.
        teacher_log_probs: likewise from the self-teacher, whose prompt shows the sibling that ``srpo.route`` chooses.
    """
    distilled = route(rewards, groups, METHOD, correct=correct).uses_teacher
    distilled = distilled.to(old_log_probs.device)
    advantages = group_advantages(*as_tensors(rewards, groups)).to(old_log_probs)[:, None].expand_as(old_log_probs)
    tokens = (x[distilled].flatten() for x in (advantages, old_log_probs, teacher_log_probs))
    return advantages.masked_scatter(distilled[:, None], mixed_advantages(METHOD, *tokens).to(advantages))


@register_policy_loss("srpo_sampled_token")
def srpo_sampled_token(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The clipped token losses, [rollouts, tokens], over verl's count of the mini-batch's tokens on all ranks.

    Raises:
        ValueError: if ``loss_agg_mode`` is not token-mean, the one denominator of section 3.3; the actor does not give
            the mini-batch's count of tokens; or it has another clip than the method's.
    """
    if loss_agg_mode != "token-mean":
        raise ValueError(f"loss_agg_mode = {loss_agg_mode}: srpo_sampled_token has one denominator; use token-mean")
    whole = getattr(config, "global_batch_info", None) or {}
    if not whole.get("batch_num_tokens"):
        why = "a micro-batch would be divided by its own tokens"
        raise ValueError(f"config.global_batch_info has no batch_num_tokens: {why}")
    for name, default in CLIPS.items():
        given, own = getattr(config, name, default), getattr(METHOD, name)
        if given not in {default, own}:
            what = f"actor.{name} = {given}: srpo_sampled_token takes {own} from the method"
            raise ValueError(f"{what}; leave it at {default}")
    response_mask = response_mask.bool()
    if whole["batch_num_tokens"] < (own := int(response_mask.sum())):
        what = f"config.global_batch_info.batch_num_tokens = {whole['batch_num_tokens']}"
        raise ValueError(f"{what}: this micro-batch alone has {own}")
    clips = (getattr(METHOD, name) for name in CLIPS)
    new, old, advantage = (x[response_mask] for x in (log_prob, old_log_prob, advantages))
    losses, clipped = policy_loss(new, old, advantage, *clips)
    if rollout_is_weights is not None:
        losses = losses * rollout_is_weights[response_mask]
    padded = torch.zeros_like(log_prob).masked_scatter(response_mask, losses)
    loss = agg_loss(padded, response_mask, loss_agg_mode, **whole)
    return loss, {"actor/pg_clipfrac": clipped.float().mean().item()}
