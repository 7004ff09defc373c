"""The functions for other people's loops: value and gradient of section 3.3, and what they refuse."""

import math

import numpy as np
import pytest
import torch
from helpers import CONTEXTS, METHODS, Sample, first_correct_sibling, load_method, slow_objective
from torch import Tensor

import srpo
from srpo.questions import prompts

ROLLOUTS, TOKENS, VOCABULARY = 16, 4, 7
GROUPS = torch.arange(ROLLOUTS) % 4  # the rollouts of a question need not be adjacent
REWARDS = torch.zeros(ROLLOUTS)
REWARDS[[4, 8, 9, 3, 7, 11, 15]] = 1  # of the four groups: two correct, a single one, none, all
MASK = torch.arange(TOKENS) < torch.tensor([1 + (3 * i) % TOKENS for i in range(ROLLOUTS)])[:, None]


class World:
    """Logits of student and teacher, NaN wherever nothing may be read, and the sampled tokens."""

    def __init__(self, method: srpo.hosts.functional.Method, several_updates: bool) -> None:
        generator = torch.Generator().manual_seed(5)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator)

        shape = (ROLLOUTS, TOKENS, VOCABULARY)
        self.ids = torch.randint(VOCABULARY, shape[:2], generator=generator)
        student, teacher = 2 * normal(*shape), 2 * normal(*shape)
        before = student + 0.8 * normal(*shape) if several_updates else student
        self.old = self.sampled(before)
        self.rollout = (self.old + 0.9 * normal(*shape[:2])).clamp(max=0)
        every = method.name in {"grpo_with_anchor", *CONTEXTS}
        samples = [self.sample(i, before[i], teacher[i], True) for i in range(ROLLOUTS)]
        self.samples = [
            self.sample(i, before[i], teacher[i], every or first_correct_sibling(samples, i) is not None)
            for i in range(ROLLOUTS)
        ]
        self.slow_logits = student.double().requires_grad_()
        self.logits = student.masked_fill(~MASK[..., None], math.nan).requires_grad_()
        unread = ~(MASK & srpo.route(REWARDS, GROUPS, method).uses_teacher[:, None])
        self.teacher = teacher.masked_fill(unread[..., None], math.nan)

    def sampled(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1).gather(-1, self.ids[..., None])[..., 0]

    def sample(self, i: int, old: Tensor, teacher: Tensor, asked: bool) -> Sample:
        own = MASK[i]
        log_old, log_q = (x[own].double().log_softmax(-1) for x in (old, teacher))
        values = GROUPS[i].item(), REWARDS[i].item(), self.ids[i][own].tolist(), self.rollout[i][own].tolist(), log_old
        return Sample(*values, log_q if asked else None)

    def slow_loss(self, method: srpo.hosts.functional.Method) -> Tensor:
        log_probs = {i: self.slow_logits[i][MASK[i]].log_softmax(-1) for i in range(ROLLOUTS)}
        return slow_objective(method, self.samples, log_probs, range(ROLLOUTS)).total


@pytest.mark.parametrize("ragged", [False, True], ids=["padded", "ragged"])
@pytest.mark.parametrize("several_updates", [False, True], ids=["only-update", "later-update"])
@pytest.mark.parametrize("name", [*METHODS, *CONTEXTS])
def test_loss_and_gradient_equal_the_slow_ones(name: str, several_updates: bool, ragged: bool) -> None:
    if several_updates and name == "srpo_equal_loss_scale":
        pytest.skip("its scale is of the start of the batch; here it is of the update")
    # of a later update, the slow objective has the top K of the batch's start: all of them are the same everywhere
    method = load_method(name, distillation_topk=VOCABULARY if several_updates else 3)
    world = World(method, several_updates)
    old = world.old if several_updates else None
    values = [world.logits, world.teacher, world.ids, old, world.rollout]
    mask = MASK
    if ragged:
        values = [x if x is None else [row[own] for row, own in zip(x, MASK, strict=True)] for x in values]
        asked = srpo.route(REWARDS, GROUPS, method).uses_teacher
        values[1] = [row if wanted else None for row, wanted in zip(values[1], asked, strict=True)]
        mask = None
    logits, teacher, ids, old, rollout = values
    loss, metrics = srpo.loss(
        logits, teacher, ids, mask, REWARDS, GROUPS, method, old_log_probs=old, rollout_log_probs=rollout
    )
    expected = world.slow_loss(method)
    assert loss.item() == pytest.approx(expected.item(), abs=2e-6)
    loss.backward()
    expected.backward()
    torch.testing.assert_close(world.logits.grad.double(), world.slow_logits.grad, rtol=1e-5, atol=1e-6)
    assert world.slow_logits.grad.abs().sum() > 0.1
    parts = [value for key, value in metrics.items() if key.startswith("loss/") and key != "loss/divergence"]
    assert sum(parts) == pytest.approx(expected.item(), abs=2e-6)
    assert all(map(math.isfinite, metrics.values()))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_other_divergences_reach_the_loss(alpha: float) -> None:
    method = load_method("srpo", distillation_topk=3, distillation_alpha=alpha)
    world = World(method, several_updates=False)
    values = (world.logits, world.teacher, world.ids, MASK, REWARDS, GROUPS)
    loss, _ = srpo.loss(*values, method, rollout_log_probs=world.rollout)
    assert loss.item() == pytest.approx(world.slow_loss(method).item(), abs=1e-5)


def test_the_default_is_the_papers_srpo_and_log_probs_do_as_well_as_logits() -> None:
    world = World(load_method("srpo"), several_updates=False)
    loss, metrics = srpo.loss(world.logits, world.teacher, world.ids, MASK, REWARDS, GROUPS)
    again, _ = srpo.loss(world.logits.log_softmax(-1), world.teacher, world.ids, MASK.int(), REWARDS, GROUPS, "srpo")
    torch.testing.assert_close(loss, again)
    # wrong rollouts of the two groups that have a correct one: 2 and 3 of 16
    assert metrics["routing/sdpo_fraction"] == 5 / 16
    assert metrics["actor/rollout_is_weight"] == 1
    assert metrics["rollout_corr/log_prob_rms"] == 0
    assert metrics["weights/p10"] < metrics["weights/median"] < metrics["weights/max"]


def test_half_precision_logits_give_a_float32_loss_and_gradients_of_their_own_dtype() -> None:
    world = World(load_method("srpo"), several_updates=False)
    logits = world.logits.detach().bfloat16().requires_grad_()
    loss, _ = srpo.loss(logits, world.teacher.bfloat16(), world.ids, MASK, REWARDS, GROUPS)
    loss.backward()
    assert loss.dtype == torch.float32
    assert logits.grad.dtype == torch.bfloat16
    assert logits.grad.abs().sum() > 0


def test_a_mini_batch_without_a_branch_is_an_exact_zero_that_can_be_differentiated() -> None:
    world = World(load_method("sdpo"), several_updates=False)
    loss, metrics = srpo.loss(world.logits, None, world.ids, MASK, torch.zeros(ROLLOUTS), GROUPS, "sdpo")
    loss.backward()
    assert (loss.item(), metrics["routing/dropped_fraction"]) == (0, 1)
    assert not world.logits.grad.any()


def test_i_sdpo_by_hand() -> None:
    """One right and one wrong rollout: GRPO with A = 1/2 and -1/2. Two wrong ones: the ground truth says what to do.

    One token each, p = (1/2, 1/2), q = (9/10, 1/10), m = (7/10, 3/10):
    D = (.9 ln(9/7) + .1 ln(1/3)) / 2 + (.5 ln(5/7) + .5 ln(5/3)) / 2; the loss is (-1/2 + 1/2 + 2 D) / 4.
    """
    method = load_method("i_sdpo", distillation_topk=1)
    logits = torch.zeros(4, 1, 2, requires_grad=True)
    teacher = torch.full((4, 1, 2), math.nan)
    teacher[2:] = torch.tensor([0.9, 0.1]).log()
    ids, mask = torch.zeros(4, 1, dtype=torch.int64), torch.ones(4, 1)
    rewards, groups = [1, 0, 0, 0], [0, 0, 1, 1]
    routes = srpo.route(rewards, groups, method)
    assert routes.names == ["grpo", "grpo", "sdpo", "sdpo"]
    assert routes.shown_truth.tolist() == [False, False, True, True]
    loss, _ = srpo.loss(logits, teacher, ids, mask, rewards, groups, method)
    loss.backward()
    divergence = (0.9 * math.log(9 / 7) + 0.1 * math.log(1 / 3) + 0.5 * math.log(5 / 7) + 0.5 * math.log(5 / 3)) / 2
    assert loss.item() == pytest.approx(2 * divergence / 4, abs=1e-6)
    # GRPO: -A d log p / 4 = -(1/2) (1/2) / 4. Distilled: dD/dp_0 = (ln(p_0/m_0) - ln(p_1/m_1)) / 2, times p_0 p_1 / 4
    slope = (math.log(5 / 7) - math.log(5 / 3)) / 2 / 16
    assert logits.grad[:, 0, 0].tolist() == pytest.approx([-1 / 16, 1 / 16, slope, slope], abs=1e-6)
    # SRPO has no use of the second group, and distils the wrong rollout of the first
    assert srpo.route(rewards, groups, "srpo").names == ["grpo", "sdpo", "grpo", "grpo"]


@pytest.mark.parametrize("name", METHODS)
def test_a_masked_vocabulary_is_one_of_probability_zero(name: str) -> None:
    """Masked in both: -inf is what a very low logit is. More are masked than the top K leaves out."""
    method = load_method(name, distillation_topk=5)
    world = World(method, several_updates=False)
    world.ids %= 3
    found = []
    for low in (-300.0, -math.inf):
        leaf = world.logits.detach().clone().requires_grad_()
        student, teacher = (
            torch.cat([x[..., :3], torch.full_like(x[..., 3:], low)], -1) for x in (leaf, world.teacher)
        )
        loss, _ = srpo.loss(student, teacher, world.ids, MASK, REWARDS, GROUPS, method)
        loss.backward()
        found.append((loss.item(), leaf.grad[MASK]))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-6)
    assert torch.allclose(found[1][1], found[0][1], rtol=1e-5, atol=1e-9)
    assert found[0][1].any()


def test_a_token_that_only_the_teacher_excludes_costs_a_finite_loss() -> None:
    world = World(load_method("sdpo"), several_updates=False)
    teacher = torch.cat([world.teacher[..., :3], torch.full_like(world.teacher[..., 3:], -math.inf)], -1)
    loss, metrics = srpo.loss(world.logits, teacher, world.ids, MASK, REWARDS, GROUPS, "sdpo")
    loss.backward()
    assert math.isfinite(loss.item())
    assert all(map(math.isfinite, metrics.values()))
    assert world.logits.grad[MASK].isfinite().all()


NONE = srpo.hosts.functional.Totals()


def changed(values: Tensor, rollout: int, value: float) -> Tensor:
    values = values.detach().clone()
    values[rollout] = value
    return values


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"teacher_logits": lambda x: x[1:]}, "give values of the same tokens of each of 16"),
        ({"response_mask": lambda x: x[:, 1:]}, "give values of the same tokens of each of 16"),
        ({"rewards": lambda x: x[1:]}, "give a finite number and an id for each rollout"),
        ({"rewards": lambda x: 1.1 * x}, r"rewards has 1\.10000002\d*: if not 1 and 0, give `correct`"),
        ({"correct": lambda _: REWARDS[1:]}, "correct: give true or false for each of 16 rollouts"),
        ({"correct": lambda _: 2 * REWARDS - 1}, "correct: give true or false"),
        ({"teacher_logits": lambda x: x[..., 1:]}, "have other vocabularies"),
        ({"logits": lambda x: changed(x, 2, math.nan)}, "logits: no finite log-prob for a sampled token of rollout 2"),
        ({"teacher_logits": lambda x: changed(x, 0, math.nan)}, "teacher_logits: no finite log-prob"),
        ({"old_log_probs": lambda _: changed(MASK * -1.0, 5, math.nan)}, "old_log_probs: no finite log-prob"),
        ({"earlier": lambda _: MASK[:, 0]}, "method srpo: success_buffer = 0"),
        ({"rollout_log_probs": lambda _: MASK * 0.0}, "rollout_log_probs: all are 0"),
        ({"old_log_probs": lambda _: changed(MASK * -1.0, 4, 0.5)}, r"old_log_probs: rollout 4 has 0\.5"),
        ({"rows": lambda _: [*range(16)], "of_all": lambda _: NONE}, "these rows alone have"),
        ({"of_all": lambda _: NONE}, "rows and of_all go together"),
        ({"logits": lambda x: x.softmax(-1)}, "^logits are probabilities: give logits, or log-probs$"),
    ],
)
def test_values_that_would_be_silently_wrong_are_named(changes, says) -> None:
    world = World(load_method("srpo"), several_updates=False)
    given = {"logits": world.logits, "teacher_logits": world.teacher, "response_ids": world.ids}
    given |= {"response_mask": MASK, "rewards": REWARDS, "groups": GROUPS}
    with pytest.raises(ValueError, match=says):
        srpo.loss(**given | {name: change and change(given.get(name)) for name, change in changes.items()})


@pytest.mark.parametrize("correct", [REWARDS.bool(), REWARDS.int().tolist(), 1.9, 2, torch.tensor(1.9)])
def test_other_rewards_say_which_rollouts_are_correct(correct) -> None:
    """Twice the rewards are twice the advantages, and the same distillation of the same rollouts."""
    world = World(load_method("srpo"), several_updates=True)
    values = (world.logits, world.teacher, world.ids, MASK)
    _, usual = srpo.loss(*values, REWARDS, GROUPS, old_log_probs=world.old)
    loss, metrics = srpo.loss(*values, 2 * REWARDS, GROUPS, old_log_probs=world.old, correct=correct)
    assert metrics["loss/grpo"] == pytest.approx(2 * usual["loss/grpo"])
    assert metrics["loss/sdpo"] == usual["loss/sdpo"] > 0.01
    assert loss.item() == pytest.approx(metrics["loss/grpo"] + metrics["loss/sdpo"], abs=1e-7)
    assert srpo.route(2 * REWARDS, GROUPS, correct=correct).branch.equal(srpo.route(REWARDS, GROUPS).branch)


def test_the_gradients_of_old_log_probs_do_not_count() -> None:
    """With them, the log-probs of now that somebody forgot to detach would take the policy gradient away."""
    world = World(load_method("grpo"), several_updates=True)
    found = []
    for detached in (True, False):
        logits = world.logits.detach().requires_grad_()
        now = logits.log_softmax(-1).gather(-1, world.ids[..., None])[..., 0]
        more = (
            {"old_log_probs": now.detach(), "rollout_log_probs": now.detach()} if detached else {"old_log_probs": now}
        )
        loss, _ = srpo.loss(logits, None, world.ids, MASK, REWARDS, GROUPS, "grpo", **more)
        loss.backward()
        found.append(logits.grad[MASK])
    assert found[0].abs().max() > 0.001
    assert found[0].equal(found[1])


def test_the_weight_of_a_group_counts_correct_rollouts() -> None:
    """Not the mean reward, whose spread of -1 and 1 is NaN."""
    name = "sc_sdpo"
    world = World(load_method(name), several_updates=False)
    values = (world.logits, world.teacher, world.ids, MASK)
    _, usual = srpo.loss(*values, REWARDS, GROUPS, name)
    _, metrics = srpo.loss(*values, 2 * REWARDS - 1, GROUPS, name, correct=REWARDS)
    assert metrics["loss/sdpo"] == usual["loss/sdpo"] > 0.01


def test_a_group_of_one_rollout_is_refused() -> None:
    world = World(load_method("srpo"), several_updates=False)
    with pytest.raises(ValueError, match="a group of one rollout"):
        srpo.loss(world.logits, world.teacher, world.ids, MASK, torch.zeros(ROLLOUTS), torch.arange(ROLLOUTS), "grpo")


def test_methods_are_those_of_the_repository() -> None:
    assert srpo.load_method("grpo") == load_method("grpo")
    assert srpo.load_method(entropy_beta=2.0).entropy_beta == 2
    changed = srpo.load_method(routing={"correct_with_sibling": "sdpo"})
    assert changed.routing.branches == ("sdpo", "grpo", "sdpo", "grpo")
    assert changed.model_copy(update={"routing": load_method("srpo").routing}) == load_method("srpo")
    assert srpo.teacher_messages is prompts.teacher_messages


def test_a_method_with_a_second_table_needs_the_number_of_the_step() -> None:
    method = load_method("sdpo_then_grpo", first_phase_steps=2)
    names = [srpo.route([0, 1], [0, 0], method, step=step).names for step in (1, 2, 3)]
    assert names == [["sdpo", "dropped"], ["sdpo", "dropped"], ["grpo", "grpo"]]
    world = World(load_method("sdpo"), several_updates=False)
    values = (world.logits, world.teacher, world.ids, MASK, REWARDS, GROUPS)
    assert srpo.loss(*values, method, step=2)[0].equal(srpo.loss(*values, "sdpo")[0])
    grpo = (world.logits, None, world.ids, MASK, REWARDS, GROUPS)
    assert srpo.loss(*grpo, method, step=3)[0].equal(srpo.loss(*grpo, "grpo")[0])
    for refused in (lambda: srpo.route([0, 1], [0, 0], method), lambda: srpo.loss(*values, method)):
        with pytest.raises(ValueError, match="method sdpo_then_grpo: it has a second table, so give the number"):
            refused()


def test_siblings_are_remembered_as_the_method_says() -> None:
    rewards, groups = [0.0, 1, 1, 0, 0], [0, 0, 0, 1, 1]
    routes = srpo.route(rewards, groups, "srpo_success_buffer", earlier=[True, True, True, False, True])
    assert routes.names == ["sdpo", "grpo", "grpo", "grpo", "sdpo"]
    assert routes.shown_earlier.tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("name", METHODS)
def test_parts_of_a_mini_batch_add_up_to_it(name: str) -> None:
    """Micro-batches of any rollouts, in any order: groups may be torn apart, on several processes too."""
    method = load_method(name, distillation_topk=3)
    if method.preserve_loss_scale:
        with pytest.raises(ValueError, match="preserve_loss_scale needs the whole mini-batch in one call"):
            srpo.loss(None, None, None, None, REWARDS, GROUPS, method, rows=[0], of_all=srpo.hosts.functional.Totals())
        return
    world = World(method, several_updates=True)
    whole, part = (world.logits.detach().clone().requires_grad_() for _ in range(2))
    more = {"old_log_probs": world.old, "rollout_log_probs": world.rollout}
    expected, _ = srpo.loss(whole, world.teacher, world.ids, MASK, REWARDS, GROUPS, method, **more)
    expected.backward()
    nats = torch.distributions.Categorical(logits=world.teacher.nan_to_num()).entropy()  # not ours
    parts = torch.randperm(ROLLOUTS, generator=torch.Generator().manual_seed(1)).split(5)
    known = []
    for rows in parts:
        entropies = [nats[row][MASK[row]] for row in rows.tolist()]
        known.append(srpo.totals(MASK[rows].sum(1), entropies, REWARDS, GROUPS, method, rows=rows))
    of_all = sum(known)
    assert of_all == sum(known, start=srpo.hosts.functional.Totals())
    values = [part[parts[0]], world.teacher[parts[0]], world.ids[parts[0]], MASK[parts[0]]]
    count = of_all.tokens
    for wrong in ((1, 0, 0.0), (count, count + 1, 0.0), (count, count, 2.0 * count)):
        with pytest.raises(ValueError, match=r"^of_all.*; add the totals of all parts$"):
            srpo.loss(*values, REWARDS, GROUPS, method, rows=parts[0], of_all=srpo.hosts.functional.Totals(*wrong))
    found = 0.0
    for rows in parts:
        values = [part[rows], world.teacher[rows], world.ids[rows], MASK[rows]]
        of_rows = {key: value[rows] for key, value in more.items()}
        loss, _ = srpo.loss(*values, REWARDS, GROUPS, method, **of_rows, rows=rows, of_all=of_all)
        loss.backward()
        found += loss.item()
    assert found == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(part.grad[MASK], whole.grad[MASK], rtol=1e-5, atol=1e-7)


WORDS = [f"question {group}" for group in GROUPS.tolist()]


@pytest.mark.parametrize("groups", [[*GROUPS], GROUPS / 7, WORDS, np.array(WORDS, dtype=object)])
def test_groups_are_ids_of_any_kind(groups) -> None:
    """Tensors, which are equal by identity only, and verl's ``uid`` too."""
    assert srpo.route(REWARDS, groups).shown_sibling.equal(srpo.route(REWARDS, GROUPS).shown_sibling)


def test_two_groups_may_be_flags() -> None:
    flags = torch.tensor([True, True, False, False])
    assert srpo.route([1.0, 0, 1, 0], flags).shown_sibling.tolist() == [-1, 0, -1, 2]


def test_the_students_logits_are_not_the_teachers() -> None:
    world = World(load_method("srpo"), several_updates=False)
    for same in (world.logits, world.logits.detach().clone()):
        with pytest.raises(ValueError, match=r"^teacher_logits equal logits: give the teacher's, whose prompt shows"):
            srpo.loss(world.logits, same, world.ids, MASK, REWARDS, GROUPS)
    srpo.loss(world.logits.log_softmax(-1), world.teacher, world.ids, MASK, REWARDS, GROUPS)


def test_padding_is_0_in_a_mask() -> None:
    """-1 would be a token: the loss of all 64 tokens, not that of the response."""
    world = World(load_method("grpo"), several_updates=True)
    values = (world.slow_logits.float(), None, world.ids)
    more = (REWARDS, GROUPS, "grpo")
    right, wrong = (srpo.loss(*values, mask, *more, old_log_probs=world.old)[0].item() for mask in (MASK, MASK | True))
    assert right != pytest.approx(wrong, rel=0.1)
    with pytest.raises(ValueError, match="response_mask: give 0 and 1"):
        srpo.loss(*values, 2 * MASK.int() - 1, *more, old_log_probs=world.old)


def test_totals_are_of_each_rollout_once_and_of_numbers() -> None:
    """A repeated row would count its tokens twice; a NaN, or -5 nats, would be the scale of every weight."""
    nats = [torch.ones(2)] * ROLLOUTS
    known = srpo.totals([2] * ROLLOUTS, nats, REWARDS, GROUPS)
    assert (known.tokens, known.scale) == (32, pytest.approx(math.e))
    with pytest.raises(ValueError, match="the tokens of a repeated rollout would count twice"):
        srpo.totals([2, 2], nats, REWARDS, GROUPS, rows=[0, 0])
    for value in (math.nan, -5.0):
        with pytest.raises(ValueError, match="entropies: give 2 finite ones from 0"):
            srpo.totals([2] * ROLLOUTS, [torch.full((2,), value)] * ROLLOUTS, REWARDS, GROUPS)
