"""The loss in verl's registry equals an independent program in float64, on two ranks with two micro-batches each."""

from __future__ import annotations

import math
import types

import numpy as np
import pytest
import torch
from helpers import slow_surrogate
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import ActorConfig

from srpo.hosts.registered_loss import CLIPS, METHOD, routed_advantages

REWARDS, GROUPS = [1.0, 0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1]
LENGTHS = [5, 3, 1, 4, 2, 5, 5, 1]
WHOLE = {"batch_num_tokens": 2, "dp_size": 1}


def expected(logits, old, teacher, rollout, ids) -> tuple[torch.Tensor, int]:
    """The objective, and how many tokens are clipped."""
    total, count, clipped = torch.zeros((), dtype=torch.float64), 0, 0
    for i, length in enumerate(LENGTHS):
        group = [r for r, g in zip(REWARDS, GROUPS, strict=True) if g == GROUPS[i]]
        for t in range(length):
            before, token = old[i, t].item(), ids[i, t]
            advantage = REWARDS[i] - sum(group) / len(group)
            if REWARDS[i] == 0 and sum(group):  # wrong, with a correct sibling
                advantage = teacher[i, t].item() - before
            ratio = (logits[i, t].log_softmax(-1)[token] - before).exp()
            loss, is_clipped = slow_surrogate(ratio, advantage, METHOD)
            total = total + min(math.exp(before - rollout[i, t].item()), 2.0) * loss
            count, clipped = count + 1, clipped + is_clipped
    return total / count, clipped


def test_the_loss_in_verls_registry_equals_a_program_in_float64() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(11, (8, 5), generator=generator)
    logits, *others = (torch.randn(8, 5, 11, generator=generator, dtype=torch.float64) for _ in range(3))
    old, teacher = (x.log_softmax(-1).gather(-1, ids[..., None])[..., 0] for x in others)
    rollout = old + torch.randn(8, 5, generator=generator, dtype=torch.float64)
    mask = torch.arange(5) < torch.tensor(LENGTHS)[:, None]
    slow, fast = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    wanted, clipped = expected(slow, old, teacher, rollout, ids)
    wanted.backward()
    assert clipped

    found = 0.0
    advantages = routed_advantages(torch.tensor(REWARDS), torch.tensor(GROUPS), old, teacher)
    everywhere = {"batch_num_tokens": sum(LENGTHS), "dp_size": 2}
    for part in range(4):  # two micro-batches of two ranks; FSDP averages over ranks
        rows = slice(2 * part, 2 * part + 2)
        loss, _ = get_policy_loss_fn("srpo_sampled_token")(
            old_log_prob=old[rows],
            log_prob=fast[rows].log_softmax(-1).gather(-1, ids[rows, :, None])[..., 0],
            advantages=advantages[rows],
            response_mask=mask[rows],
            config=types.SimpleNamespace(global_batch_info=everywhere),
            rollout_is_weights=(old - rollout).exp().clamp(max=METHOD.rollout_is_threshold)[rows],
        )
        (loss / 2).backward()
        found += loss.item() / 2
    assert found == pytest.approx(wanted.item(), abs=1e-6)
    torch.testing.assert_close(fast.grad, slow.grad, atol=1e-6, rtol=0)


def test_advantages_take_what_verl_has() -> None:
    """Its ``uid`` are strings; other rewards say which are correct; padding may hold anything."""
    old, teacher = torch.full((8, 5), -1.0, dtype=torch.bfloat16), torch.full((8, 5), -3.0)
    teacher[2, 1] = math.nan
    uid = np.array([f"question {group}" for group in GROUPS])
    found = routed_advantages(np.array(REWARDS) * 2 - 1, uid, old, teacher, correct=1)
    assert found.dtype == torch.bfloat16
    assert found[[0, 1]].tolist() == [[1.0] * 5, [-2.0] * 5]  # 1 - 0, the mean; the teacher's -3 + 1
    assert found[2].isnan().tolist() == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"loss_agg_mode": "seq-mean-token-mean"}, r"loss_agg_mode = seq-mean-token-mean: .* use token-mean"),
        (
            {"config": types.SimpleNamespace(global_batch_info=WHOLE, clip_ratio_high=0.5)},
            r"actor.clip_ratio_high = 0.5: srpo_sampled_token takes 0.28 from the method; leave it at 0.2",
        ),
        ({"config": None}, "global_batch_info has no batch_num_tokens"),
        (
            {"config": types.SimpleNamespace(global_batch_info={"batch_num_tokens": 1, "dp_size": 1})},
            "batch_num_tokens = 1: this micro-batch alone has 2",
        ),
    ],
)
def test_what_would_be_another_loss_is_refused(changes: dict, says: str) -> None:
    mask = torch.tensor([[0, 0, 0], [0, 1, 1]])
    values = dict.fromkeys(("old_log_prob", "log_prob", "advantages"), torch.zeros(2, 3)) | {"response_mask": mask}
    config = types.SimpleNamespace(global_batch_info=WHOLE)
    with pytest.raises(ValueError, match=says):
        get_policy_loss_fn("srpo_sampled_token")(**values | {"config": config} | changes)


def test_the_clips_that_are_not_refused_are_verls_defaults() -> None:
    """So that a user who sets none gets the method's."""
    assert {name: getattr(ActorConfig, name) for name in CLIPS} == CLIPS
