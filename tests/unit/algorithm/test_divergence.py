"""Distributions on top-K and tail, entropy and divergences against float64 enumeration; gradients included."""

import math
import weakref

import numpy as np
import pytest
import torch
from helpers import slow_divergence
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from srpo.algorithm import distribution
from srpo.algorithm.distribution import (
    entropy,
    token_and_top_k_log_probs,
    token_log_probs,
    top_k_ids,
    top_k_with_tail,
)
from srpo.algorithm.divergence import generalised_jsd

VOCABULARY, TOKENS, K = 41, 13, 6


def random_logits(scale: float, seed: int = 0, tokens: int = TOKENS, vocabulary: int = VOCABULARY) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(tokens, vocabulary, generator=generator)


def sharp_logits(gap: float, vocabulary: int = VOCABULARY) -> Tensor:
    """One token ``gap`` above all others, which differ a little."""
    logits = random_logits(0.5, seed=1, vocabulary=vocabulary)
    logits[torch.arange(TOKENS), torch.arange(TOKENS) * 3] += gap
    return logits


def enumerate_log_probs(logits: Tensor) -> np.ndarray:
    """log softmax of each row in float64, summed exactly."""
    rows = logits.double().numpy()
    result = np.empty_like(rows)
    for t, row in enumerate(rows):
        top = row.max()
        result[t] = row - top - math.log(math.fsum(math.exp(x - top) for x in row))
    return result


def enumerate_top_k_with_tail(logits: Tensor, ids: Tensor) -> np.ndarray:
    log_probs = enumerate_log_probs(logits)
    result = []
    for row, chosen in zip(log_probs, ids.tolist(), strict=True):
        rest = [row[v] for v in range(len(row)) if v not in chosen]
        top = max(rest)
        tail = top + math.log(math.fsum(math.exp(x - top) for x in rest))
        result.append([*(row[v] for v in chosen), tail])
    return np.array(result)


LOGITS = {
    "flat": torch.zeros(TOKENS, VOCABULARY),
    "usual": random_logits(2.0),
    "far from zero": random_logits(2.0) + 300,
    "sharp": sharp_logits(30.0),
    "very sharp": sharp_logits(60.0),
}
SHARPER = {**LOGITS, "tail below float32": sharp_logits(120.0)}


@pytest.mark.parametrize("kind", LOGITS)
def test_restriction_equals_enumeration(kind):
    logits = LOGITS[kind]
    ids = top_k_ids(logits, K)
    found = top_k_with_tail(logits, ids)
    np.testing.assert_allclose(found.numpy(), enumerate_top_k_with_tail(logits, ids), rtol=2e-6, atol=3e-5)
    np.testing.assert_allclose(found.double().exp().sum(-1).numpy(), 1, atol=3e-5 if kind == "far from zero" else 1e-6)


@pytest.mark.parametrize("gap", [20.0, 35.0, 80.0])
def test_tail_keeps_its_precision_where_one_token_has_nearly_everything(gap):
    logits = sharp_logits(gap)
    ids = top_k_ids(logits, K)
    found, expected = (
        top_k_with_tail(logits, ids)[:, -1].double().numpy(),
        enumerate_top_k_with_tail(logits, ids)[:, -1],
    )
    assert (expected < -gap + 6).all()
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_restriction_on_ids_that_are_not_the_most_likely():
    logits = sharp_logits(40.0)
    ids = torch.stack([torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(t))[:K] for t in range(13)])
    np.testing.assert_allclose(
        top_k_with_tail(logits, ids).numpy(), enumerate_top_k_with_tail(logits, ids), rtol=2e-6, atol=1e-6
    )


def test_half_precision_logits_lose_nothing_more():
    logits = random_logits(3.0).bfloat16()
    ids = top_k_ids(logits, K)
    found = top_k_with_tail(logits, ids)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), enumerate_top_k_with_tail(logits, ids), atol=2e-6)
    np.testing.assert_allclose(
        token_log_probs(logits, ids[:, 2]).numpy(), enumerate_top_k_with_tail(logits, ids)[:, 2], atol=2e-6
    )


def test_top_k_are_the_most_likely_and_leave_one_for_the_tail():
    logits = random_logits(1.0, vocabulary=7)
    for k in (1, 3, 6, 7, 100):
        ids = top_k_ids(logits, k)
        assert ids.shape == (TOKENS, min(k, 6))
        for row, chosen in zip(logits.tolist(), ids.tolist(), strict=True):
            assert set(chosen) == set(sorted(range(7), key=lambda v: -row[v])[: min(k, 6)])
    assert top_k_with_tail(logits, top_k_ids(logits, 100)).isfinite().all()


@pytest.mark.parametrize("kind", LOGITS)
def test_entropy_equals_enumeration(kind):
    log_probs = enumerate_log_probs(LOGITS[kind])
    expected = [-math.fsum(math.exp(x) * x for x in row) for row in log_probs]
    np.testing.assert_allclose(
        entropy(LOGITS[kind]).numpy(), expected, atol=1e-4 if kind == "far from zero" else 2e-6, rtol=2e-6
    )


def test_entropy_of_a_uniform_distribution_is_the_logarithm_of_its_size():
    np.testing.assert_allclose(entropy(torch.zeros(1, 151_936)).item(), math.log(151_936), rtol=1e-6)


SOME = torch.arange(TOKENS) % 3 == 1
ROWS = {"none": torch.zeros_like(SOME), "some": SOME, "all": torch.ones_like(SOME)}


@pytest.mark.parametrize("chunk", [1, 4, TOKENS])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kind", ["usual", "sharp", "very sharp", "tail below float32"])
def test_scores_of_tokens_and_top_k_together_with_their_gradient(kind, rows, chunk, monkeypatch):
    """Values and gradient against sums in float64. The inverse of a tail below float32 would be infinite."""
    monkeypatch.setattr(distribution, "LOGITS_CHUNK", chunk * VOCABULARY)
    own, logits = ROWS[rows], SHARPER[kind].clone().requires_grad_()
    labels = torch.arange(TOKENS) * 5 % VOCABULARY
    ids = top_k_ids(logits, K, own)
    torch.testing.assert_close(ids, top_k_ids(logits, K)[own])
    token, restricted = token_and_top_k_log_probs(logits, labels, own, ids)
    log_p = enumerate_log_probs(logits.detach())
    outcomes = enumerate_top_k_with_tail(logits.detach()[own], ids).reshape(len(ids), K + 1)
    np.testing.assert_allclose(token.detach().numpy(), log_p[range(TOKENS), labels], rtol=2e-6, atol=3e-5)
    np.testing.assert_allclose(restricted.detach().numpy(), outcomes, rtol=2e-6, atol=3e-5)

    of_token = random_logits(1.0, seed=4, vocabulary=1)[:, 0]
    of_restricted = random_logits(1.0, seed=3, vocabulary=K + 1)[: len(ids)]
    of_restricted[::2, K] = 0.0  # 0 times infinity
    torch.autograd.backward([token, restricted], [of_token, of_restricted])
    places = own.nonzero().flatten().tolist()
    expected = np.zeros((TOKENS, VOCABULARY))
    for t in range(TOKENS):
        expected[t] -= np.exp(log_p[t]) * of_token[t].double().item()
        expected[t, labels[t]] += of_token[t].item()
        if t in places:
            i = places.index(t)
            chosen, upstream = ids[i].tolist(), of_restricted[i].double().numpy()
            expected[t] -= np.exp(log_p[t]) * upstream.sum()
            for v in range(VOCABULARY):
                outside = upstream[K] * math.exp(log_p[t, v] - outcomes[i, K])
                expected[t, v] += upstream[chosen.index(v)] if v in chosen else outside
    np.testing.assert_allclose(logits.grad.numpy(), expected, atol=4e-6 if kind in ("usual", "sharp") else 2e-5)


def test_scores_that_are_dropped_leave_nothing_behind():
    logits = random_logits(2.0).requires_grad_()
    inner = logits * 2
    found = token_and_top_k_log_probs(inner, torch.arange(TOKENS), SOME, top_k_ids(inner, K, SOME))
    gone = weakref.ref(inner)
    del inner, found
    assert gone() is None


def test_one_output_alone_has_its_own_gradient():
    logits = random_logits(2.0).requires_grad_()
    ids, labels = top_k_ids(logits, K), torch.arange(TOKENS)
    everywhere = ROWS["all"]
    for i, alone in ((0, lambda: token_log_probs(logits, labels)), (1, lambda: top_k_with_tail(logits, ids))):
        together = token_and_top_k_log_probs(logits, labels, everywhere, ids)[i]
        (found,), (expected,) = (torch.autograd.grad(value.square().sum(), logits) for value in (together, alone()))
        torch.testing.assert_close(found, expected)


def test_gradient_of_half_precision_logits_is_rounded_once():
    logits = random_logits(3.0).bfloat16()
    ids = top_k_ids(logits, K)
    gradients = []
    for own in (logits.clone().requires_grad_(), logits.float().requires_grad_()):
        token, restricted = token_and_top_k_log_probs(own, ids[:, 0], SOME, ids[SOME])
        (gradient,) = torch.autograd.grad(token.sum() + (restricted * torch.linspace(-1, 1, K + 1)).sum(), own)
        gradients.append(gradient)
    assert gradients[0].dtype == torch.bfloat16
    torch.testing.assert_close(gradients[0], gradients[1].bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("rows", [1, 5, TOKENS - 1])
def test_chunks_change_neither_values_nor_gradients(rows, monkeypatch):
    ids = top_k_ids(random_logits(2.0), K)

    def evaluate() -> list[Tensor]:
        logits = random_logits(2.0).requires_grad_()
        values = [token_log_probs(logits, ids[:, 1]), top_k_with_tail(logits, ids), entropy(logits)]
        with torch.no_grad():
            values += [token_log_probs(logits, ids[:, 1]), top_k_with_tail(logits, ids), entropy(logits)]
        loss = values[0].square().sum() + (values[1] * torch.linspace(-1, 1, K + 1)).sum() + values[2].square().sum()
        return [*(value.detach() for value in values), *torch.autograd.grad(loss, logits)]

    whole = evaluate()
    monkeypatch.setattr(distribution, "LOGITS_CHUNK", rows * VOCABULARY)
    for found, expected in zip(evaluate(), whole, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


def test_a_chunk_is_never_smaller_than_one_token(monkeypatch):
    monkeypatch.setattr(distribution, "LOGITS_CHUNK", 1)
    torch.testing.assert_close(entropy(torch.zeros(3, 8)), torch.full((3,), math.log(8)))


def test_no_tokens():
    nothing = torch.zeros(0, VOCABULARY)
    assert top_k_with_tail(nothing, top_k_ids(nothing, K)).shape == (0, K + 1)
    assert entropy(nothing).shape == token_log_probs(nothing, torch.zeros(0, dtype=torch.int64)).shape == (0,)


# ---------------------------------------------------------------- divergence


def log_softmax64(seed: int, scale: float = 2.0, outcomes: int = 5) -> Tensor:
    return random_logits(scale, seed, tokens=8, vocabulary=outcomes).double().log_softmax(-1)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
def test_divergence_equals_its_definition(alpha):
    p, q = log_softmax64(0), log_softmax64(1)
    expected = torch.stack([slow_divergence(p[t], q[t], range(4), alpha) for t in range(8)])
    torch.testing.assert_close(generalised_jsd(p, q, alpha), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(generalised_jsd(p.float(), q.float(), alpha), expected.float(), rtol=1e-5, atol=1e-6)


def test_divergences_by_hand():
    p, q = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.75, 0.25]]).log()
    forward = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)  # KL(q || p)
    reverse = 0.5 * math.log(2 / 3) + 0.5 * math.log(2)  # KL(p || q)
    jensen = 0.5 * (0.75 * math.log(1.2) + 0.25 * math.log(2 / 3)) + 0.5 * (0.5 * math.log(0.8) + 0.5 * math.log(4 / 3))
    for alpha, expected in ((0.0, forward), (1.0, reverse), (0.5, jensen)):
        assert generalised_jsd(p, q, alpha).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
def test_gradient_of_the_divergence(alpha):
    logits = random_logits(2.0, 4, tokens=3, vocabulary=5).double().requires_grad_()
    teacher = log_softmax64(5)[:3]
    assert torch.autograd.gradcheck(lambda x: generalised_jsd(x.log_softmax(-1), teacher, alpha), (logits,))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
def test_no_gradient_reaches_the_teacher(alpha):
    student, teacher = log_softmax64(0).requires_grad_(), log_softmax64(1).requires_grad_()
    generalised_jsd(student, teacher, alpha).sum().backward()
    assert student.grad.abs().sum() > 0
    assert teacher.grad is None


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.5, 1.0])
def test_equal_distributions_neither_diverge_nor_pull(alpha):
    logits = random_logits(2.0, 6, tokens=4, vocabulary=5).requires_grad_()
    divergence = generalised_jsd(logits.log_softmax(-1), logits.detach().log_softmax(-1), alpha)
    divergence.sum().backward()
    torch.testing.assert_close(divergence, torch.zeros(4), rtol=0, atol=1e-6)
    torch.testing.assert_close(logits.grad, torch.zeros(4, 5), rtol=0, atol=1e-6)


logit = st.floats(-60, 60, width=32)


@given(st.lists(st.tuples(logit, logit), min_size=2, max_size=6))
def test_jensen_shannon_lies_between_nought_and_log_two(pairs):
    p, q = (torch.tensor([column]).log_softmax(-1) for column in zip(*pairs, strict=True))
    forth, back = generalised_jsd(p, q, 0.5), generalised_jsd(q, p, 0.5)
    assert -1e-6 <= forth.item() <= math.log(2) + 1e-6
    assert forth.item() == pytest.approx(back.item(), abs=1e-6)


def test_disjoint_distributions_reach_log_two():
    p = torch.tensor([[80.0, 0, 0]]).log_softmax(-1)
    q = torch.tensor([[0, 80.0, 0]]).log_softmax(-1)
    assert generalised_jsd(p, q, 0.5).item() == pytest.approx(math.log(2), rel=1e-6)
