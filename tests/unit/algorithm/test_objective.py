"""The objective: token losses by hand and against verl, and the whole of section 3.3 in value and gradient."""

from __future__ import annotations

import math
import types

import pytest
import torch
from helpers import METHODS, Sample, first_correct_sibling, load_method, slow_objective
from torch import Tensor
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

from srpo.algorithm.branches import index_of
from srpo.algorithm.diagnostics import PARTS
from srpo.algorithm.distribution import entropy, token_log_probs, top_k_ids, top_k_with_tail
from srpo.algorithm.divergence import generalised_jsd
from srpo.algorithm.importance import truncated_ratio
from srpo.algorithm.objective import Losses, branch_losses, objective, policy_loss
from srpo.algorithm.rollouts import Rollouts, TeacherLogProbs
from srpo.algorithm.routing import route
from srpo.algorithm.targets import NOT_COMPUTED, WorkerTargets, make_targets, mini_batches
from srpo.policy.batches import jagged, pack_targets
from srpo.policy.kept_log_probs import KEPT
from srpo.policy.loss import srpo_loss

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
    distilled, one = branches.count("sdpo"), torch.ones(len(branches))
    values = {
        "old_log_prob": -one,
        "rollout_log_prob": -one,
        "teacher_log_prob": NOT_COMPUTED * one,
        "advantage": one,
        "branch": torch.tensor([index_of(name) for name in branches]),
        "divergence_weight": torch.ones(distilled),
        "top_k_ids": torch.zeros(distilled, 2, dtype=torch.int64),
        "teacher_log_probs": torch.tensor([0.2, 0.5, 0.3]).log().repeat(distilled, 1),
        "part_and_quarter": torch.zeros(distilled, dtype=torch.int64),
        "copied": torch.full((distilled,), -1),
        "correct": torch.zeros(distilled, dtype=torch.int64),
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


def test_the_objective_is_the_sum_over_branches_divided_once():
    sums = {"grpo": torch.tensor(3.0), "sdpo": torch.tensor(-1.0)}
    none = torch.zeros(0)
    assert objective(Losses(sums, none, none, none, none, torch.tensor(0), torch.tensor(0)), 8).item() == 0.25


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
    assert losses.distillation.tolist() == pytest.approx([kl[0] * 2 * 2 * 0.4, kl[1] * 1.5 * 0.5 * 1.6])
    assert losses.by_branch["sdpo"].item() == pytest.approx(kl[0] * 1.6 + kl[1] * 1.2)
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


def test_the_divergence_of_right_and_wrong_rollouts_is_that_of_their_tokens():
    """Five distilled tokens, two of a right rollout, each against its own teacher, in float64."""
    correct = torch.tensor([0, 1, 0, 1, 0])
    student = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4], [0.9, 0.05, 0.05], [0.2, 0.2, 0.6]])
    teacher = student.flip(0)
    ids = torch.tensor([[5, 1]] * 5)
    rows = {0: some_targets(["sdpo"] * 5, correct=correct)}
    data = {
        "targets": jagged([*pack_targets(rows)["targets"][0].values()]),
        "batch_num_tokens": 5,
        "dp_size": 1,
        "step": 1,
    }
    data |= {"top_k_ids": jagged([ids.flatten()]), "teacher_log_probs": jagged([teacher.log().flatten()])}
    output = {"log_probs": torch.full((5,), -1.0), "student_log_probs": student.log(), "top_k_ids": ids}
    _, metrics = srpo_loss(load_method("sdpo"), output, data)
    p, q = student.double(), teacher.double()
    m = (p + q) / 2
    expected = ((p * (p / m).log() + q * (q / m).log()).sum(1) / 2).tolist()  # Jensen-Shannon
    found = {name: metrics[f"sum/{name}"].aggregate() for name in ("divergence_correct", "divergence_wrong")}
    assert found["divergence_correct"] == pytest.approx(expected[1] + expected[3], rel=1e-5)
    assert found["divergence_wrong"] == pytest.approx(expected[0] + expected[2] + expected[4], rel=1e-5)
    assert [metrics[f"sum/distilled_{part}"].aggregate() for part in ("correct", "wrong")] == [2, 3]


@pytest.mark.parametrize("within", [False, True], ids=["ids-before", "ids-in-the-update"])
def test_copying_and_top_k_mass_are_sums_over_distilled_tokens(within):
    """Of four distilled tokens two are asked about; at one of them the token to copy is the most likely."""
    rows = {0: some_targets(["grpo"]), 1: some_targets(["sdpo"] * 4, copied=torch.tensor([-1, 5, 6, -1]))}
    ids, vocabulary = torch.tensor([[5, 1], [5, 1], [5, 6], [1, 5]]), 8
    student = torch.tensor([[0.5, 0.2, 0.3]] * 4).log()
    teacher = torch.full((4, vocabulary), 0.05).log()
    teacher[:, 5], teacher[:, [1, 6]] = math.log(0.55), math.log(0.1)
    kept_ids, kept = (ids[:0], teacher) if within else (ids, top_k_with_tail(teacher, ids))
    data = {
        "targets": jagged([*pack_targets(rows)["targets"][0].values()]),
        "batch_num_tokens": 5,
        "dp_size": 1,
        "step": 1,
    }
    data["top_k_ids"] = jagged([ids.flatten()[:0], kept_ids.flatten()])
    data["teacher_log_probs"] = jagged([kept.flatten()[:0], kept.flatten()])
    output = {"log_probs": torch.full((5,), -1.0), "student_log_probs": student, "top_k_ids": ids}
    _, metrics = srpo_loss(load_method("srpo"), output, data)
    sums = {name.removeprefix("sum/"): metric.aggregate() for name, metric in metrics.items()}
    assert {name: sums[name] for name in ("distilled_tokens", "trained_tokens")} == {
        "distilled_tokens": 4,
        "trained_tokens": 5,
    }
    assert (sums["copying_student"], sums["copying_cases"]) == (1, 2)
    assert sums["student_top_k_mass"] == pytest.approx(4 * 0.7)
    assert sums["teacher_top_k_mass"] == pytest.approx(4 * 0.65)


def test_a_micro_batch_without_distilled_tokens_has_the_same_sums():
    """verl averages each sum over ranks and micro-batches, so that none may be missing."""
    nothing = {"batch_num_tokens": 5, "dp_size": 1, "step": 1}
    for name in ("top_k_ids", "teacher_log_probs"):
        nothing[name] = jagged([torch.zeros(0, dtype=KEPT[name])])
    names = []
    for branch in ("grpo", "dropped"):
        entry = {"targets": jagged([pack_targets({0: some_targets([branch])})["targets"][0][0]])}
        _, metrics = srpo_loss(load_method("srpo"), {"log_probs": torch.tensor([-1.0])}, nothing | entry)
        names.append(set(metrics))
        assert metrics["sum/trained_tokens"].aggregate() == (branch == "grpo")
        assert metrics["sum/copying_cases"].aggregate() == metrics["sum/student_top_k_mass"].aggregate() == 0
    assert names[0] == names[1] >= {"sum/copying_student", "sum/teacher_top_k_mass", "loss/sdpo", "loss/grpo"}


# ---------------------------------------------------------------- the whole objective on a softmax model

VOCABULARY = 7
REWARDS = [0, 1, 1, 0] + [0, 0, 1, 0] + [0] * 4 + [1] * 4  # mixed, a single success, all wrong, all right


@pytest.fixture(scope="module")
def world() -> dict[str, list[Tensor]]:
    """Sixteen rollouts whose current, old and teacher logits are free parameters."""
    generator = torch.Generator().manual_seed(5)
    lengths = [1 + (3 * i) % 4 for i in range(16)]
    logits = [2 * torch.randn(n, VOCABULARY, generator=generator) for n in lengths]
    return {
        "student": logits,
        "old": [x + 0.8 * torch.randn(x.shape, generator=generator) for x in logits],
        "teacher": [2 * torch.randn(x.shape, generator=generator) for x in logits],
        "tokens": [torch.randint(VOCABULARY, (n,), generator=generator) for n in lengths],
        "rollout_noise": [0.9 * torch.randn(n, generator=generator) for n in lengths],
    }


def parts_of(i: int, tokens: Tensor) -> Tensor:
    """Some part for each token of rollout ``i``."""
    return (torch.arange(len(tokens)) + 5 * i) % len(PARTS)


def fast_losses(method, world, student: list[Tensor], mini_batch_questions: int) -> list[tuple[Tensor, dict] | None]:
    """Loss and metrics of each mini-batch through the functions that a training step calls."""
    tokens, old_logits = world["tokens"], world["old"]
    old = [token_log_probs(x, ids) for x, ids in zip(old_logits, tokens, strict=True)]
    rollouts = Rollouts(
        question=torch.arange(4).repeat_interleave(4),
        prompts=[torch.zeros(1, dtype=torch.int64)] * 16,
        responses=tokens,
        texts=[""] * 16,
        rollout_log_probs=[o + noise for o, noise in zip(old, world["rollout_noise"], strict=True)],
        rewards=torch.tensor(REWARDS, dtype=torch.float32),
        in_format=[None] * 16,
        truncated=torch.zeros(16, dtype=torch.bool),
    )
    routes = route(rollouts.correct, rollouts.question, method.routing)
    batches = mini_batches(rollouts, routes, mini_batch_questions)
    of_teacher = routes.uses_teacher.nonzero().flatten().tolist()
    ids = {i: top_k_ids(old_logits[i], method.distillation_topk) for i in of_teacher}
    log_q = {i: top_k_with_tail(world["teacher"][i], ids[i]) for i in of_teacher}
    log_p = {i: top_k_with_tail(old_logits[i], ids[i]) for i in of_teacher}
    divergence = {i: generalised_jsd(log_p[i], q, method.distillation_alpha) for i, q in log_q.items()}
    teacher = TeacherLogProbs(
        log_probs={i: token_log_probs(world["teacher"][i], tokens[i]) for i in of_teacher},
        entropy={i: entropy(world["teacher"][i]) for i in of_teacher},
        argmax_ids={},
        divergence=divergence,
    )
    old_log_probs = {i: old[i] for batch in batches for i in batch}
    parts = {i: parts_of(i, ids) for i, ids in enumerate(tokens)}
    targets = make_targets(method, rollouts, routes, batches, old_log_probs, teacher, parts)
    entries = pack_targets(targets)
    results = []
    for rows in batches:
        distilled = [i for i in rows if routes.distilled[i]]
        data = {name: jagged([values[i] for i in rows]) for name, (values, _) in entries.items()}
        for name, kept in (("top_k_ids", ids), ("teacher_log_probs", log_q)):  # as the worker adds them
            nothing = torch.zeros(0, dtype=KEPT[name])
            data[name] = jagged([kept[i].flatten() if i in distilled else nothing for i in rows])
        data |= {"batch_num_tokens": sum(len(targets[i].branch) for i in rows), "dp_size": 1, "step": 1}
        output = {"log_probs": torch.cat([token_log_probs(student[i], tokens[i]) for i in rows])}
        if distilled:
            output["student_log_probs"] = torch.cat([top_k_with_tail(student[i], ids[i]) for i in distilled])
        results.append(srpo_loss(method, output, data))
    return results


def slow_samples(world, own_prompt: bool) -> list[Sample]:
    log = {key: [x.double().log_softmax(-1) for x in world[key]] for key in ("old", "teacher")}
    samples = []
    for i, tokens in enumerate(world["tokens"]):
        old = log["old"][i][torch.arange(len(tokens)), tokens]
        rollout = (old.float() + world["rollout_noise"][i]).tolist()
        samples.append(Sample(i // 4, float(REWARDS[i]), tokens.tolist(), rollout, log["old"][i], log["teacher"][i]))
    return [
        s if own_prompt or first_correct_sibling(samples, i) is not None else Sample(*[*vars(s).values()][:5])
        for i, s in enumerate(samples)
    ]


@pytest.mark.parametrize("mini_batch_questions", [4, 2, 1])
@pytest.mark.parametrize("name", METHODS)
def test_objective_and_gradient_equal_the_slow_ones(name, mini_batch_questions, world):
    method = load_method(name, distillation_topk=3)
    student = [x.clone().requires_grad_() for x in world["student"]]
    student64 = [x.double().requires_grad_() for x in world["student"]]
    samples = slow_samples(world, own_prompt=name == "grpo_with_anchor")
    expected = []
    for first in range(0, 16, 4 * mini_batch_questions):
        rows = range(first, first + 4 * mini_batch_questions)
        loss = slow_objective(method, samples, {i: student64[i].log_softmax(-1) for i in rows}, rows)
        if loss is not None:
            expected.append(loss)
    found = fast_losses(method, world, student, mini_batch_questions)
    assert len(found) == len(expected)
    for (loss, metrics), slow in zip(found, expected, strict=True):
        assert loss.item() == pytest.approx(slow.total.item(), abs=2e-6)
        by_branch = {n.removeprefix("loss/"): m.aggregate() for n, m in metrics.items() if n.startswith("loss/")}
        assert by_branch.keys() == {*method.routing.branches} - {"dropped"}
        policy = sum(by_branch.get(branch, 0) for branch in ("grpo", "mix", "anchored", "rlsd"))
        assert policy == pytest.approx(slow.policy.item(), abs=2e-6)
        assert by_branch.get("sdpo", 0) == pytest.approx(slow.distillation.item(), abs=2e-6)
        for axis, names in enumerate((PARTS, [f"quarter_{i}" for i in range(1, 5)])):
            for index, name in enumerate(names):
                chosen = [
                    value
                    for (i, t), value in slow.by_token.items()
                    if (int(parts_of(i, world["tokens"][i])[t]), 4 * t // len(world["tokens"][i]))[axis] == index
                ]
                assert metrics[f"sum/share/{name}"].aggregate() == pytest.approx(sum(chosen), abs=2e-6, rel=1e-6)
    sum(loss for loss, _ in found).backward()
    sum(slow.total for slow in expected).backward()
    for i in range(16):
        mine = student[i].grad if student[i].grad is not None else torch.zeros_like(student[i])
        theirs = student64[i].grad if student64[i].grad is not None else torch.zeros_like(mine)
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=1e-5, atol=1e-6)
    assert sum(x.grad.abs().sum() for x in student64 if x.grad is not None) > 0.1


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_other_divergences_reach_the_objective(alpha, world):
    method = load_method("srpo", distillation_topk=3, distillation_alpha=alpha)
    [(found, _)] = fast_losses(method, world, world["student"], 4)
    log_probs = {i: x.double().log_softmax(-1) for i, x in enumerate(world["student"])}
    expected = slow_objective(method, slow_samples(world, own_prompt=False), log_probs, range(16))
    assert found.item() == pytest.approx(expected.total.item(), abs=1e-5)
