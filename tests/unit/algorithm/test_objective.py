"""The objective: token losses by hand and against verl.

The whole of section 3.3, in value and gradient, is in test_functional.py and, through verl's worker, in test_policy.py.
"""

import math
import re
import types

import pytest
import torch
from helpers import load_method
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

from srpo.algorithm.branches import BRANCHES, Branch, index_of
from srpo.algorithm.objective import branch_losses, objective, policy_loss, truncated_ratio
from srpo.algorithm.targets import NOT_COMPUTED, WorkerTargets
from srpo.ground.errors import SrpoError
from srpo.policy.batches import jagged, pack_targets
from srpo.policy.worker import KEPT, srpo_loss

CLIP = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28, "clip_ratio_c": 3.0}


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "slope"),
    [
        (1.0, 0.75, -0.75, -0.75),  # on policy
        (1.2, 0.5, -0.6, -0.6),  # inside the clip, whose upper end is wider
        (1.5, 0.5, -0.64, 0.0),  # A > 0, above: clipped at 1.28
        (0.5, 0.5, -0.25, -0.25),  # A > 0, below: not clipped, the step back is wanted
        (0.9, -0.5, 0.45, 0.45),  # inside
        (0.5, -0.5, 0.40, 0.0),  # A < 0, below: clipped at 0.8
        (2.0, -0.5, 1.00, 1.0),  # A < 0, above: not clipped
        (5.0, -0.5, 1.50, 0.0),  # A < 0, far above: bounded by c = 3
        (5.0, 0.0, 0.0, 0.0),  # no advantage, no gradient
    ],
)
def test_each_clip_region(ratio, advantage, loss, slope):
    log_prob = torch.tensor([math.log(ratio) - 1.5], requires_grad=True)
    found, clipped = policy_loss(log_prob, torch.tensor([-1.5]), torch.tensor([advantage]), **CLIP)
    found.sum().backward()
    assert found.item() == pytest.approx(loss, abs=1e-6)
    assert log_prob.grad.item() == pytest.approx(slope, abs=1e-6)
    assert clipped.item() is (slope == 0 and advantage != 0)


@pytest.mark.parametrize("clip", [CLIP, {"clip_ratio_low": 0.1, "clip_ratio_high": 0.5, "clip_ratio_c": 1.7}])
@pytest.mark.parametrize("weighted", [False, True])
def test_policy_loss_equals_verl(clip, weighted):
    generator = torch.Generator().manual_seed(0)
    old, rollout, advantage = (torch.randn(500, generator=generator) for _ in range(3))
    mine, theirs = ((old + 0.9 * torch.randn(500, generator=generator.manual_seed(1))).requires_grad_() for _ in "ab")
    weight = truncated_ratio(old, rollout, 2.0) if weighted else torch.ones(500)
    config = types.SimpleNamespace(clip_ratio=9.0, **clip, global_batch_info={}, get=lambda key, default: clip[key])
    expected, metrics = compute_policy_loss_vanilla(
        old[None],
        theirs[None],
        advantage[None],
        torch.ones(1, 500),
        config=config,
        rollout_is_weights=weight[None] if weighted else None,
    )
    loss, clipped = policy_loss(mine, old, advantage, **clip)
    found = (loss * weight).mean()
    found.backward()
    expected.backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(mine.grad, theirs.grad)
    theirs_clipped = metrics["actor/pg_clipfrac"] + metrics["actor/pg_clipfrac_lower"]
    assert clipped.float().mean().item() == pytest.approx(theirs_clipped, abs=1e-6)


def test_truncated_ratio_is_a_constant_bounded_by_its_threshold():
    current = torch.tensor([-1.0, -1.0, -5.0, 0.0], requires_grad=True)
    ratio = truncated_ratio(current, torch.tensor([-1.0, -1.5, -1.0, -400.0]), 2.0)
    assert not ratio.requires_grad
    torch.testing.assert_close(ratio, torch.tensor([1.0, math.exp(0.5), math.exp(-4), 2.0]))


def some_targets(branches: list[str], **changes) -> WorkerTargets:
    """Tokens of these branches, each on its own distribution of two ids and a tail."""
    distilled, one = branches.count("sdpo") + branches.count("own"), torch.ones(len(branches))
    values = {
        "old_log_prob": -one,
        "rollout_log_prob": -one,
        "teacher_log_prob": NOT_COMPUTED * one,
        "advantage": one,
        "branch": torch.tensor([index_of(name) for name in branches]),
        "divergence_weight": torch.ones(distilled),
        "top_k_ids": torch.zeros(distilled, 2, dtype=torch.int64),
        "teacher_log_probs": torch.tensor([0.2, 0.5, 0.3]).log().repeat(distilled, 1),
    }
    return WorkerTargets(**{**values, **changes})


def test_an_empty_distillation_branch_adds_an_exact_zero_that_can_be_differentiated():
    log_prob = torch.tensor([-1.0, -2.0], requires_grad=True)
    old = log_prob.detach()
    tokens = some_targets(["grpo", "grpo"], old_log_prob=old, rollout_log_prob=old, advantage=torch.tensor([0.5, -0.5]))
    losses = branch_losses(load_method("srpo"), tokens, log_prob, None)
    assert losses.by_branch["sdpo"].item() == 0
    assert losses.by_branch["sdpo"].requires_grad
    objective(losses, 1).backward()
    assert log_prob.grad.tolist() == [-0.5, 0.5]


@pytest.mark.parametrize("name", ["grpo", "sdpo", "srpo", "advantage_mix"])
def test_fillers_alone_are_an_exact_zero_that_can_be_differentiated(name):
    log_prob = torch.tensor([-1.0], requires_grad=True)
    losses = branch_losses(load_method(name), some_targets(["dropped"]), log_prob, None)
    loss = objective(losses, 8)
    loss.backward()
    assert (loss.item(), log_prob.grad.tolist()) == (0, [0])


def test_distilled_tokens_have_no_policy_gradient():
    log_prob = torch.tensor([-1.0, -2.0, -3.0], requires_grad=True)
    student = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.1, 0.8]]).log().requires_grad_()
    old = torch.tensor([-1.0, -2.0 - math.log(5), -3.0 - math.log(1.5)])
    tokens = some_targets(
        ["grpo", "sdpo", "sdpo"],
        old_log_prob=old,
        rollout_log_prob=old - torch.tensor([1.0, 7.0, 0.5]).log(),  # 7 is truncated to 2
        advantage=torch.full((3,), 0.75),
        divergence_weight=torch.tensor([0.4, 1.6]),
    )
    method = load_method("srpo", distillation_alpha=0.0)
    losses = branch_losses(method, tokens, log_prob, student)
    q = (0.2, 0.5, 0.3)
    kl = [sum(b * math.log(b / a) for a, b in zip(p, q, strict=True)) for p in ((0.6, 0.3, 0.1), (0.1, 0.1, 0.8))]
    assert losses.rollout_is_weight.tolist() == pytest.approx([1, 2, 0.5])
    assert losses.divergence.tolist() == pytest.approx(kl)
    assert losses.by_branch["sdpo"].item() == pytest.approx(kl[0] * 2 * 2 * 0.4 + kl[1] * 1.5 * 0.5 * 1.6)
    objective(losses, 1).backward()
    assert log_prob.grad.tolist() == [-0.75, 0, 0]
    assert student.grad.tolist() == [pytest.approx([-b * 1.6 for b in q]), pytest.approx([-b * 1.2 for b in q])]


def test_an_only_update_is_on_policy_and_corrects_the_rollout_engine():
    """Without log-probs of a pass before the update, pi_old is the policy of the update, as a constant."""
    log_prob = torch.tensor([-1.0, -2.0], requires_grad=True)
    rollout = torch.tensor([-1.5, -4.0])
    found = {}
    for case, old in (("known", log_prob.detach().clone()), ("unknown", torch.full((2,), NOT_COMPUTED))):
        targets = some_targets(["grpo", "grpo"], old_log_prob=old, rollout_log_prob=rollout)
        losses = branch_losses(load_method("grpo"), targets, log_prob, None)
        (gradient,) = torch.autograd.grad(losses.by_branch["grpo"], log_prob)
        found[case] = losses.rollout_is_weight.tolist(), losses.by_branch["grpo"].item(), gradient.tolist()
    assert found["unknown"] == found["known"]
    assert found["known"][0] == pytest.approx([math.exp(0.5), 2])
    assert found["known"][2] == pytest.approx([-math.exp(0.5), -2])


@pytest.mark.parametrize("field", ["old_log_prob", "teacher_log_prob"])
def test_a_log_prob_that_is_not_a_number_is_not_taken_for_one_that_is_missing(field):
    targets = some_targets(["mix"], **{field: torch.tensor([math.nan])})
    losses = branch_losses(load_method("advantage_mix"), targets, torch.tensor([-1.0], requires_grad=True), None)
    assert losses.by_branch["mix"].isnan()


def test_a_micro_batch_without_distilled_tokens_has_the_same_sums():
    """verl averages each sum over ranks and micro-batches, so that none may be missing."""
    nothing = {"batch_num_tokens": 5, "dp_size": 1}
    for name in ("top_k_ids", "teacher_log_probs"):
        nothing[name] = jagged([torch.zeros(0, dtype=KEPT[name])])
    names = []
    for branch in ("grpo", "dropped"):
        entry = {"targets": jagged([pack_targets({0: some_targets([branch])})["targets"][0][0]])}
        _, metrics = srpo_loss(load_method("srpo"), {"log_probs": torch.tensor([-1.0])}, nothing | entry)
        names.append(set(metrics))
        assert metrics["sum/trained_tokens"].aggregate() == (branch == "grpo")
    assert names[0] == names[1] >= {"sum/divergence", "loss/sdpo", "loss/grpo"}


@pytest.mark.parametrize("branch_beside", ["dropped", "sdpo"])
@pytest.mark.parametrize(
    ("loss", "function", "says"),
    [
        ("policy_gradient", lambda method, a, s, t: a[:1], "advantage is of shape [1]; return a tensor of shape [2]"),
        ("policy_gradient", lambda method, a, s, t: a.mean(), "advantage is of shape []; return a tensor of shape [2]"),
        ("policy_gradient", lambda method, a, s, t: 1.0, "advantage is a float; return a tensor of shape [2]"),
        ("distillation", lambda method, s, t: (s - t).sum(), "divergence is of shape []; return a tensor of shape [2]"),
        ("distillation", lambda method, s, t: s - t, "divergence is of shape [2, 3]; return a tensor of shape [2]"),
        ("distillation", lambda method, s, t: (s - t)[:, 0].detach(), "divergence has no gradient of the student"),
    ],
)
def test_what_a_branch_of_ones_own_returns_is_checked(monkeypatch, loss, function, says, branch_beside):
    key = "advantage" if loss == "policy_gradient" else "divergence"
    own = Branch("own", "Own", loss, "required" if loss == "distillation" else "never", **{key: function})
    monkeypatch.setitem(BRANCHES, "own", own)
    routing = dict.fromkeys(load_method("grpo").routing.model_dump(), "dropped")
    routing |= {"wrong_with_sibling": "own", "correct_with_sibling": branch_beside}
    student = torch.tensor([[0.6, 0.3, 0.1]] * 2).log().requires_grad_() if loss == "distillation" else None
    log_prob = torch.tensor([-1.0, -2.0], requires_grad=True)
    targets = some_targets(["own", "own"])
    with pytest.raises(SrpoError, match=f"^branch own: its {re.escape(says)}"):
        branch_losses(load_method("grpo", routing=routing), targets, log_prob, student)
