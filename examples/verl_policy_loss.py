"""SRPO's routing in verl 0.9.1's own worker, through verl's registry of policy losses.

python examples/verl_policy_loss.py

verl gives a registered loss the log-probs of the sampled tokens, not the logits. So here a wrong rollout with a correct
sibling is corrected at its sampled tokens, by SDPO's advantage log q - log p (paper, section 4.3, with lambda 0),
not by the divergence of the top K, and without dynamic weights. For SRPO itself use ``SRPOWorker`` (docs/verl.md).

In your trainer: import this module on the workers (``VERL_USE_EXTERNAL_MODULES``), set
``actor_rollout_ref.actor.policy_loss.loss_mode: srpo_sampled_token`` and ``loss_agg_mode: token-mean``, let the
self-teacher compute the log-probs of the responses, and call :func:`routed_advantages` in the place of verl's.
"""

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, register_policy_loss
from verl.workers.config import ActorConfig, FSDPActorConfig, PolicyLossConfig
from verl.workers.utils.losses import ppo_loss

import srpo
from srpo.algorithm.advantage import group_advantages, mixed_advantages
from srpo.algorithm.objective import policy_loss

TABLE = {
    "correct_with_sibling": "grpo",
    "correct_without_sibling": "grpo",
    "wrong_with_sibling": "mix",
    "wrong_without_sibling": "grpo",
}
METHOD = srpo.load_method("advantage_mix", title="SRPO at the sampled tokens", routing=TABLE, mix_lambda=0.0)


def routed_advantages(rewards: Tensor, groups: Tensor, old_log_probs: Tensor, teacher_log_probs: Tensor) -> Tensor:
    """[rollouts, tokens] what verl calls ``advantages``.

    Args:
        rewards, groups: [rollouts], as in ``srpo.route``; groups number verl's ``uid``.
        old_log_probs: [rollouts, tokens] of the sampled tokens, from the trainer before the update.
        teacher_log_probs: likewise from the self-teacher, whose prompt shows the sibling that ``srpo.route`` chooses.
    """
    distilled = srpo.route(rewards, groups, METHOD).uses_teacher
    advantages = group_advantages(rewards, groups)[:, None].expand_as(old_log_probs)
    tokens = (x[distilled].flatten() for x in (advantages, old_log_probs, teacher_log_probs))
    return advantages.masked_scatter(distilled[:, None], mixed_advantages(METHOD, *tokens))


@register_policy_loss("srpo_sampled_token")
def srpo_sampled_token(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: ActorConfig | None = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The clipped token losses, [rollouts, tokens], over verl's count of the mini-batch's tokens on all ranks."""
    clips = METHOD.clip_ratio_low, METHOD.clip_ratio_high, METHOD.clip_ratio_c
    tokens = (x[response_mask] for x in (log_prob, old_log_prob, advantages))
    losses, clipped = policy_loss(*tokens, *clips)
    if rollout_is_weights is not None:
        losses = losses * rollout_is_weights[response_mask]
    padded = torch.zeros_like(log_prob).masked_scatter(response_mask, losses)
    loss = agg_loss(padded, response_mask, loss_agg_mode, **config.global_batch_info)
    return loss, {"actor/pg_clipfrac": clipped.float().mean().item()}


def main(steps: int = 20) -> list[float]:
    """Train a table of logits with verl's ``ppo_loss`` on one batch of made-up rollouts; returns the losses."""
    torch.manual_seed(0)
    rollouts, tokens, vocabulary = 8, 5, 11
    prompts = torch.zeros(rollouts, 1, dtype=torch.int64)
    responses = torch.randint(vocabulary, (rollouts, tokens))
    rewards, groups = torch.tensor([1.0, 0, 0, 1, 0, 0, 0, 0]), torch.arange(rollouts) // 4
    table = torch.zeros(rollouts, 1 + tokens, vocabulary, requires_grad=True)
    teacher = torch.randn(rollouts, tokens, vocabulary).log_softmax(-1).gather(-1, responses[..., None])[..., 0]
    optimizer = torch.optim.Adam([table], 0.02)
    registered = PolicyLossConfig(loss_mode="srpo_sampled_token")
    config = FSDPActorConfig(ppo_micro_batch_size_per_gpu=rollouts, rollout_n=4, policy_loss=registered)

    def log_probs() -> Tensor:
        """[rollouts, 1 + tokens] verl's layout: each position has the log-prob of the next token."""
        following = torch.cat([responses, prompts], 1)
        return table.log_softmax(-1).gather(-1, following[..., None])[..., 0]

    old = log_probs().detach()[:, :-1]
    batch = {
        "prompts": prompts,
        "responses": responses,
        "attention_mask": torch.ones(rollouts, 1 + tokens, dtype=torch.int64),
        "response_mask": torch.ones(rollouts, tokens, dtype=torch.int64),
        "old_log_probs": old,
        "advantages": routed_advantages(rewards, groups, old, teacher),
    }
    data = TensorDict(batch, batch_size=rollouts)
    data.set_non_tensor("dp_size", 1)
    data.set_non_tensor("batch_num_tokens", rollouts * tokens)
    data.set_non_tensor("global_batch_size", rollouts)
    losses = []
    for step in range(steps):
        loss, metrics = ppo_loss(config, {"log_probs": log_probs().flatten()}, data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 5 == 4:
            print(f"step {step + 1}: loss {losses[-1]:.3f}, clipped {metrics['actor/pg_clipfrac'].aggregate():.2f}")
    return losses


if __name__ == "__main__":
    main()
