"""Mini-batches and what the loss reads of each token, by hand."""

import itertools
import math

import pytest
import torch
from batch import LENGTHS, REWARDS, rollouts_of, targets_of
from helpers import load_method

from srpo.algorithm.branches import index_of
from srpo.algorithm.objective import branch_advantages
from srpo.algorithm.routing import has_loss, route
from srpo.algorithm.targets import NOT_COMPUTED, mini_batches

# ---------------------------------------------------------------- mini-batches


@pytest.mark.parametrize(
    ("name", "questions", "expected"),
    [
        ("grpo", 1, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]),
        ("grpo", 2, [list(range(8)), list(range(8, 16))]),
        ("srpo", 4, [list(range(16))]),
        ("sdpo", 4, [[0, 1, 2, 3, 8, 9, 11, 12, 13, 14, 15]]),
        ("sdpo", 1, [[0, 1, 2, 3], [8, 9, 11], [12, 13, 14, 15]]),
        ("sdpo_failed_only", 2, [[0, 3], [8, 9, 11]]),
        ("sdpo_correct_only", 2, [[1, 2], [12, 13, 14, 15]]),
    ],
)
def test_mini_batches_keep_questions_together_and_leave_dropped_rollouts_out(name, questions, expected):
    rollouts = rollouts_of(REWARDS, 4)
    routes = route(rollouts.correct, rollouts.question, load_method(name).routing)
    assert mini_batches(rollouts, routes, questions) == expected


def test_a_batch_without_any_signal_has_no_mini_batch():
    rollouts = rollouts_of([0] * 8, 4)
    assert mini_batches(rollouts, route(rollouts.correct, rollouts.question, load_method("sdpo").routing), 1) == []


# ---------------------------------------------------------------- targets


@pytest.mark.parametrize("questions", [1, 2, 4])
def test_weights_have_mean_one_over_each_mini_batch_and_not_over_less(questions):
    found, routes, _, teacher = targets_of("srpo", questions)
    distilled = routes.takes("sdpo").nonzero().flatten().tolist()
    assert distilled == [0, 3, 8, 9, 11]
    for first in range(0, 16, 4 * questions):
        rows = [i for i in distilled if first <= i < first + 4 * questions]
        raw = {i: [math.exp(-h) for h in teacher.entropy[i].tolist()] for i in rows}
        total, count = math.fsum(itertools.chain(*raw.values())), sum(LENGTHS[i] for i in rows)
        for i in rows:
            assert found[i].divergence_weight.tolist() == pytest.approx([w * count / total for w in raw[i]], rel=1e-5)
            assert abs(found[i].divergence_weight.mean().item() - 1) > 1e-3  # not normalised row by row
    assert all(len(found[i].divergence_weight) == 0 for i in range(16) if i not in distilled)


@pytest.mark.parametrize("questions", [1, 2, 4])
def test_weights_that_preserve_the_loss_scale_leave_each_mini_batch_its_size(questions):
    found, routes, _, teacher = targets_of("srpo_equal_loss_scale", questions)
    usual, *_ = targets_of("srpo", questions)
    for first in range(0, 16, 4 * questions):
        rows = [i for i in routes.takes("sdpo").nonzero().flatten().tolist() if first <= i < first + 4 * questions]
        if not rows:
            continue
        sizes = {"plain": 0.0, "weighted": 0.0}
        for i in rows:
            for weight, divergence in zip(found[i].divergence_weight, teacher.divergence[i], strict=True):
                sizes["plain"] += divergence.item()
                sizes["weighted"] += weight.item() * divergence.item()
        assert sizes["weighted"] == pytest.approx(sizes["plain"], rel=1e-5)
        ratios = torch.cat([found[i].divergence_weight / usual[i].divergence_weight for i in rows])
        assert ratios.max() - ratios.min() < 1e-5 * ratios.max()  # the same relative weights


@pytest.mark.parametrize("questions", [1, 2, 4])
def test_weights_by_group_are_of_the_mini_batch(questions):
    """SC-SDPO; by question 2, 0, 1 and 4 of 4 rollouts are correct, so the last question's weigh nothing."""
    found, routes, *_ = targets_of("sc_sdpo", questions)
    raw = {0: 0.5, 2: math.sqrt(3 / 16), 3: 0.0}
    for first in range(0, 4, questions):
        rows = [i for i in routes.distilled.nonzero().flatten().tolist() if first <= i // 4 < first + questions]
        total, count = sum(raw[i // 4] * LENGTHS[i] for i in rows), sum(LENGTHS[i] for i in rows)
        for i in rows:
            expected = raw[i // 4] * count / total if total else 0.0
            assert found[i].divergence_weight.tolist() == pytest.approx([expected] * LENGTHS[i])


def test_no_weighting_is_exactly_one():
    found, routes, _, _ = targets_of("srpo_without_weighting", 2)
    for i in routes.takes("sdpo").nonzero().flatten().tolist():
        assert found[i].divergence_weight.tolist() == [1.0] * LENGTHS[i]


def test_advantages_are_of_the_whole_group_whatever_is_routed_away():
    found, *_ = targets_of("srpo", 4)
    group_means = [0.5, 0, 0.25, 1]
    for i, length in enumerate(LENGTHS):
        assert found[i].advantage.tolist() == [REWARDS[i] - group_means[i // 4]] * length


def test_what_no_pass_has_computed_is_marked():
    found, _, old, teacher = targets_of("srpo", 4)
    for i, row in found.items():
        assert row.old_log_prob.tolist() == old[i].tolist()
        assert row.teacher_log_prob.tolist() == (
            teacher.log_probs[i].tolist() if i in teacher.log_probs else [NOT_COMPUTED] * LENGTHS[i]
        )


def test_tokens_of_each_branch():
    found, routes, *_ = targets_of("sdpo", 4)
    for i, length in enumerate(LENGTHS):
        assert (i in found) is not bool(routes.dropped[i])
        if i in found:
            assert found[i].branch.tolist() == [index_of("sdpo")] * length
            assert has_loss(found[i].branch, "distillation").all()
            assert not has_loss(found[i].branch, "policy_gradient").any()
    found, *_ = targets_of("advantage_mix", 4)
    assert sorted(found) == list(range(16))
    assert all(found[i].branch.tolist() == [index_of("mix")] * length for i, length in enumerate(LENGTHS))
    assert all(has_loss(row.branch, "policy_gradient").all() for row in found.values())


def test_advantage_mix_by_hand():
    found, _, old, teacher = targets_of("advantage_mix", 4)
    method = load_method("advantage_mix")
    advantage = {i: branch_advantages(method, row, row.old_log_prob) for i, row in found.items()}
    for i, group_advantage in ((0, -0.5), (8, -0.25), (12, 0.0)):
        gap = teacher.log_probs[i] - old[i]
        torch.testing.assert_close(advantage[i], 0.9 * group_advantage + 0.1 * gap)
    assert advantage[10].tolist() == pytest.approx([0.9 * 0.75] * LENGTHS[10])  # the only success
    assert advantage[4].tolist() == [0.0] * LENGTHS[4]  # nobody succeeded
