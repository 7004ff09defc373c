"""The method's formulas against hand-worked numbers and independent float64 computations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from srpo.algorithm import distribution
from srpo.algorithm.advantage import group_advantages, mixed_advantages
from srpo.algorithm.distribution import entropy, restrict, token_log_probs, top_k_ids
from srpo.algorithm.divergence import generalised_jsd
from srpo.algorithm.objective import Tokens, branch_losses, policy_loss, truncated_ratio
from srpo.algorithm.routing import NO_TEACHER, route
from srpo.algorithm.weighting import dynamic_weights
from srpo.config import CONFIG_ROOT, Routing, _read_yaml

METHODS = sorted(path.stem for path in (CONFIG_ROOT / "methods").glob("*.yaml"))


def table(method):
    return Routing(**_read_yaml(CONFIG_ROOT / "methods" / f"{method}.yaml")["routing"])


def routed(method, *rewards):
    """Branch letters and teachers of one group: g, s, m or - for none."""
    routes = route(
        torch.tensor(rewards, dtype=torch.float32), torch.zeros(len(rewards), dtype=torch.int64), table(method)
    )
    letters = []
    for row in zip(routes.grpo, routes.sdpo, routes.mix, routes.dropped, strict=True):
        assert sum(map(int, row)) == 1, "branches partition the batch"
        letters.append("gsm-"[[bool(x) for x in row].index(True)])
    return "".join(letters), routes.teacher.tolist()


# ---------------------------------------------------------------- advantage


def test_advantage_is_reward_minus_group_mean_without_std():
    rewards = torch.tensor([1.0, 0, 0, 0, 1, 1, 1, 1])
    groups = torch.tensor([0, 0, 0, 0, 7, 7, 7, 7])
    assert group_advantages(rewards, groups).tolist() == [0.75, -0.25, -0.25, -0.25, 0, 0, 0, 0]


def test_advantage_equals_verls():
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

    generator = torch.Generator().manual_seed(0)
    rewards = (torch.rand(24, generator=generator) < 0.4).float()
    groups = torch.arange(6).repeat_interleave(4)
    token_rewards = torch.zeros(24, 3).index_fill(1, torch.tensor([2]), 1) * rewards.unsqueeze(1)
    theirs, _ = compute_grpo_outcome_advantage(
        token_rewards, torch.ones(24, 3), groups.numpy(), norm_adv_by_std_in_grpo=False
    )
    torch.testing.assert_close(group_advantages(rewards, groups), theirs[:, 0])


def test_a_group_of_one_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        group_advantages(torch.tensor([1.0, 0, 1]), torch.tensor([0, 0, 1]))


def test_mixed_advantage_by_hand():
    mixed = mixed_advantages(torch.tensor([0.5]), torch.tensor([-1.0]), torch.tensor([-3.0]), 0.9)
    assert mixed.item() == pytest.approx(0.9 * 0.5 + 0.1 * 2.0)


# ---------------------------------------------------------------- routing (tables 6 and 7)


@pytest.mark.parametrize(
    ("method", "rewards", "branches", "teachers"),
    [
        ("srpo", (0, 1, 1, 0), "sggs", [1, 2, 1, 1]),  # table 6
        ("srpo", (1, 0, 0), "gss", [NO_TEACHER, 0, 0]),  # a single success has no sibling to learn from
        ("srpo", (0, 0, 0), "ggg", [NO_TEACHER] * 3),  # all wrong: fall back to GRPO
        ("srpo", (1, 1, 1), "ggg", [1, 0, 0]),  # all right: the distillation branch is empty
        ("sdpo", (0, 1, 1, 0), "ssss", [1, 2, 1, 1]),
        ("sdpo", (1, 0, 0), "-ss", [NO_TEACHER, 0, 0]),
        ("sdpo", (0, 0), "--", [NO_TEACHER] * 2),
        ("grpo", (0, 1, 1, 0), "gggg", [1, 2, 1, 1]),
        ("advantage_mix", (1, 0, 0), "mmm", [NO_TEACHER, 0, 0]),
        ("sdpo_failed_only", (0, 1, 1), "s--", [1, 2, 1]),
        ("sdpo_correct_only", (0, 1, 1), "-ss", [1, 2, 1]),
        ("srpo_without_weighting", (0, 1, 1, 0), "sggs", [1, 2, 1, 1]),
    ],
)
def test_routing_tables(method, rewards, branches, teachers):
    assert routed(method, *rewards) == (branches, teachers)


@given(st.lists(st.booleans(), min_size=2, max_size=8), st.randoms(use_true_random=False), st.sampled_from(METHODS))
def test_permuting_a_group_permutes_its_branches(rewards, random, method):
    order = list(range(len(rewards)))
    random.shuffle(order)
    branches, teachers = routed(method, *rewards)
    permuted, _ = routed(method, *[rewards[i] for i in order])
    assert permuted == "".join(branches[i] for i in order)
    assert all(t == NO_TEACHER or (rewards[t] and t != i) for i, t in enumerate(teachers))


def test_teachers_come_from_the_own_group():
    routes = route(torch.tensor([0.0, 0, 1, 0]), torch.tensor([0, 0, 1, 1]), table("srpo"))
    assert routes.teacher.tolist() == [NO_TEACHER, NO_TEACHER, NO_TEACHER, 2]
    assert routes.taught.tolist() == [False, False, False, True]


# ---------------------------------------------------------------- distributions


def exact(logits):
    logits = logits.double().numpy()
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 40.0])
def test_restriction_and_entropy_match_float64(scale):
    logits = torch.randn(50, 200, generator=torch.Generator().manual_seed(1)) * scale
    ids, p = top_k_ids(logits, 10), exact(logits)
    kept = np.take_along_axis(p, ids.numpy(), -1)
    rest = p.copy()
    np.put_along_axis(rest, ids.numpy(), 0.0, -1)
    want = np.log(np.concatenate([kept, rest.sum(-1, keepdims=True)], -1))
    np.testing.assert_allclose(restrict(logits, ids).numpy(), want, rtol=1e-5, atol=2e-4)
    np.testing.assert_allclose(
        entropy(logits).numpy(), -(p * np.log(np.maximum(p, 1e-300))).sum(-1), rtol=1e-4, atol=1e-5
    )
    assert set(ids[0].tolist()) == set(np.argsort(-p[0])[:10].tolist())
    labels = torch.arange(50)
    np.testing.assert_allclose(token_log_probs(logits, labels), np.log(p[np.arange(50), labels]), rtol=1e-4, atol=1e-4)


def test_top_k_leaves_a_token_for_the_tail():
    assert top_k_ids(torch.randn(2, 5), 100).shape == (2, 4)


@pytest.mark.parametrize("function", [lambda x: entropy(x), lambda x: restrict(x, torch.arange(24).view(8, 3) % 11)])
def test_chunks_change_neither_value_nor_gradient(function, monkeypatch):
    logits = torch.randn(8, 11, requires_grad=True)
    whole = function(logits)
    (expected,) = torch.autograd.grad(whole.square().sum(), logits)
    monkeypatch.setattr(distribution, "CHUNK_ELEMENTS", 33)
    chunked = function(logits)
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(torch.autograd.grad(chunked.square().sum(), logits)[0], expected)


# ---------------------------------------------------------------- divergence


def divergence64(p, q, alpha):
    def kl(a, b):
        return sum(x * math.log(x / y) for x, y in zip(a, b, strict=True))

    if alpha == 0:
        return kl(q, p)
    if alpha == 1:
        return kl(p, q)
    m = [(1 - alpha) * x + alpha * y for x, y in zip(p, q, strict=True)]
    return alpha * kl(q, m) + (1 - alpha) * kl(p, m)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
def test_divergence_matches_float64_and_its_gradient(alpha):
    generator = torch.Generator().manual_seed(2)
    student, teacher = (torch.randn(6, 5, dtype=torch.float64, generator=generator).log_softmax(-1) for _ in range(2))
    got = generalised_jsd(student, teacher, alpha)
    want = [divergence64(p, q, alpha) for p, q in zip(student.exp().tolist(), teacher.exp().tolist(), strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-10)
    logits = student.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: generalised_jsd(x.log_softmax(-1), teacher, alpha), logits)


def test_divergence_has_no_gradient_into_the_teacher_and_is_bounded():
    student = torch.tensor([[50.0, 0.0]]).log_softmax(-1).requires_grad_()
    teacher = torch.tensor([[0.0, 50.0]]).log_softmax(-1).requires_grad_()
    value = generalised_jsd(student, teacher, 0.5).sum()
    assert value.item() == pytest.approx(math.log(2), rel=1e-5)
    assert torch.autograd.grad(value, teacher, allow_unused=True)[0] is None


# ---------------------------------------------------------------- weighting


def test_weights_by_hand():
    weights = dynamic_weights(torch.tensor([0.0, math.log(2), math.log(4)]), 1.0)
    np.testing.assert_allclose(weights, np.array([1, 0.5, 0.25]) / (1.75 / 3), rtol=1e-6)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 12), min_size=1, max_size=200), st.floats(0, 3))
def test_weights_have_mean_one_and_fall_with_entropy(entropies, beta):
    weights = dynamic_weights(torch.tensor(entropies, dtype=torch.float64), beta)
    assert weights.mean().item() == pytest.approx(1, rel=1e-5)
    order = np.argsort(entropies)
    assert (np.diff(weights.numpy()[order]) <= 1e-6).all()


def test_beta_zero_is_no_weighting_and_no_token_is_no_weight():
    assert dynamic_weights(torch.rand(7) * 5, 0.0).tolist() == [1.0] * 7
    assert len(dynamic_weights(torch.zeros(0), 1.0)) == 0


# ---------------------------------------------------------------- objective


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "clipped"),
    [
        (1.0, 0.5, -0.5, False),
        (1.5, 0.5, -0.64, True),  # above 1 + 0.28
        (0.5, 0.5, -0.25, False),  # the pessimistic bound keeps the smaller ratio
        (0.5, -0.5, 0.4, True),  # below 1 - 0.2
        (2.0, -0.5, 1.0, False),
        (5.0, -0.5, 1.5, True),  # dual clip at c = 3
    ],
)
def test_clip_regions_by_hand(ratio, advantage, loss, clipped):
    got, was_clipped = policy_loss(
        torch.tensor([ratio]).log(), torch.zeros(1), torch.tensor([advantage]), 0.2, 0.28, 3.0
    )
    assert got.item() == pytest.approx(loss)
    assert was_clipped.item() == clipped


def test_policy_loss_equals_verls():
    from omegaconf import OmegaConf
    from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

    generator = torch.Generator().manual_seed(3)
    log_prob, old, advantage = (torch.randn(4, 30, generator=generator) for _ in range(3))
    weight = torch.rand(4, 30, generator=generator) * 2
    config = OmegaConf.create(
        {
            "clip_ratio": 0.2,
            "clip_ratio_low": 0.2,
            "clip_ratio_high": 0.28,
            "clip_ratio_c": 3.0,
            "global_batch_info": {
                "dp_size": 1,
                "batch_num_tokens": 120,
                "global_batch_size": 4,
                "loss_scale_factor": None,
            },
        }
    )
    theirs, _ = compute_policy_loss_vanilla(
        old, log_prob, advantage, torch.ones(4, 30), "token-mean", config, rollout_is_weights=weight
    )
    ours, _ = policy_loss(log_prob, old, advantage, 0.2, 0.28, 3.0)
    assert (ours * weight).mean().item() == pytest.approx(theirs.item(), rel=1e-5)


def test_truncated_ratio_is_a_constant():
    log_prob = torch.tensor([0.0, 2.0, -1.0], requires_grad=True)
    ratio = truncated_ratio(log_prob, torch.zeros(3), 2.0)
    assert not ratio.requires_grad
    np.testing.assert_allclose(ratio, [1.0, 2.0, math.exp(-1)], rtol=1e-6)


def test_objective_gradient_matches_an_independent_float64_implementation():
    """Section 3.3 spelled out in float64 loops over free logits, differentiated by finite differences."""
    rng = np.random.default_rng(4)
    tokens, vocabulary, k = 6, 9, 3
    logits, teacher = rng.normal(size=(tokens, vocabulary)), rng.normal(size=(tokens, vocabulary))
    labels = rng.integers(0, vocabulary, tokens)
    old = np.log(exact(torch.tensor(logits + 0.3 * rng.normal(size=logits.shape))))[np.arange(tokens), labels]
    rollout_weight = rng.uniform(0.5, 2, tokens)
    advantage = rng.choice([-0.4, 0.6], tokens)
    distilled = np.array([False, True, False, True, True, False])
    weight = np.array([0.7, 1.1, 1.2])
    ids = np.argsort(-logits, -1)[:, :k]
    importance = np.minimum(np.exp(np.log(exact(torch.tensor(logits)))[np.arange(tokens), labels] - old), 2)

    def objective(z):
        p, q, total, s = exact(torch.tensor(z)), exact(torch.tensor(teacher)), 0.0, 0
        for t in range(tokens):
            if distilled[t]:
                rest = [v for v in range(vocabulary) if v not in ids[t]]
                buckets = [[d[t, i] for i in ids[t]] + [sum(d[t, v] for v in rest)] for d in (p, q)]
                total += weight[s] * importance[t] * rollout_weight[t] * divergence64(*buckets, 0.5)
                s += 1
            else:
                rho = p[t, labels[t]] / math.exp(old[t])
                loss = max(-rho * advantage[t], -min(max(rho, 0.8), 1.28) * advantage[t])
                loss = min(loss, -3 * advantage[t]) if advantage[t] < 0 else loss
                total += loss * rollout_weight[t]
        return total / tokens

    z = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    f32 = z.float()
    mask = torch.tensor(distilled)
    losses = branch_losses(
        Tokens(
            log_prob=token_log_probs(f32, torch.tensor(labels)),
            old_log_prob=torch.tensor(old).float(),
            rollout_is_weight=torch.tensor(rollout_weight).float(),
            advantage=torch.tensor(advantage).float(),
            in_policy_branch=~mask,
            in_distillation_branch=mask,
            divergence=generalised_jsd(
                restrict(f32[mask], torch.tensor(ids)[mask]),
                restrict(torch.tensor(teacher).float()[mask], torch.tensor(ids)[mask]),
                0.5,
            ),
            divergence_weight=torch.tensor(weight).float(),
        ),
        clip_ratio_low=0.2,
        clip_ratio_high=0.28,
        clip_ratio_c=3.0,
        distillation_is_threshold=2.0,
    )
    value = (losses.policy + losses.distillation) / tokens
    assert value.item() == pytest.approx(objective(logits), rel=1e-5)
    (gradient,) = torch.autograd.grad(value, z)
    numeric = np.zeros_like(logits)
    for index in np.ndindex(*logits.shape):
        step = np.zeros_like(logits)
        step[index] = 1e-6
        numeric[index] = (objective(logits + step) - objective(logits - step)) / 2e-6
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-6)
