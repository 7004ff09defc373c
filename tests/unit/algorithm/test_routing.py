"""The routing tables, every situation of the paper's tables 6 and 7, and what holds for any batch."""

import pytest
import torch
from helpers import CASES, CONTEXTS, METHODS, ROUTES, load_method
from hypothesis import given
from hypothesis import strategies as st

from srpo.algorithm.routing import (
    NO_SIBLING,
    route,
)

CASE_NAMES = ("correct_with_sibling", "correct_without_sibling", "wrong_with_sibling", "wrong_without_sibling")
BRANCHES = ("grpo", "sdpo", "mix", "anchored", "rlsd", "dropped")


def routes_of(name: str, rewards: list[float], groups: list[int] | None = None):
    correct, method = torch.tensor(rewards) == 1, load_method(name)
    groups_ = torch.tensor(groups or [0] * len(rewards))
    return route(correct, groups_, method.routing, context=method.teacher_context)


def branches(name: str, rewards: list[float], groups: list[int] | None = None) -> list[str]:
    result = routes_of(name, rewards, groups)
    masks = {branch: result.takes(branch).tolist() for branch in BRANCHES}
    return [next(branch for branch in BRANCHES if masks[branch][i]) for i in range(len(rewards))]


# ---------------------------------------------------------------- tables 6 and 7


def test_incorrect_with_a_solution_is_distilled():
    result = routes_of("srpo", [0, 1, 0, 1, 0, 0, 0, 0])  # table 6: two successes among eight
    assert result.takes("sdpo").tolist() == [True, False, True, False, True, True, True, True]
    assert result.sibling.tolist() == [1, 3, 1, 1, 1, 1, 1, 1]


def test_correct_with_a_correct_sibling_goes_to_grpo_and_not_to_the_teacher():
    result = routes_of("srpo", [0, 1, 0, 1])
    assert result.takes("grpo").tolist() == [False, True, False, True]
    assert result.sibling_available.tolist() == [True] * 4
    assert result.uses_teacher.tolist() == [True, False, True, False]


def test_a_single_success_goes_to_grpo_and_is_the_sibling_of_all_others():
    assert routes_of("srpo", [0, 0, 1, 0]).sibling.tolist() == [2, 2, NO_SIBLING, 2]
    assert branches("srpo", [0, 0, 1, 0]) == ["sdpo", "sdpo", "grpo", "sdpo"]


def test_all_wrong_falls_back_to_grpo():
    result = routes_of("srpo", [0] * 8)
    assert result.takes("grpo").all()
    assert not result.takes("sdpo").any()
    assert not result.sibling_available.any()


def test_all_right_leaves_the_distillation_branch_empty():
    result = routes_of("srpo", [1] * 8)
    assert result.takes("grpo").all()
    assert not result.uses_teacher.any()
    assert result.sibling.tolist() == [1] + [0] * 7


def test_sdpo_drops_rollouts_without_a_correct_sibling():
    rewards = [0, 1, 0, 0] + [0] * 4 + [1, 1, 0, 1]
    expected = ["sdpo", "dropped", "sdpo", "sdpo"] + ["dropped"] * 4 + ["sdpo"] * 4
    assert branches("sdpo", rewards, [0] * 4 + [1] * 4 + [2] * 4) == expected


# ---------------------------------------------------------------- every method


@pytest.mark.parametrize("name", [*METHODS, *CONTEXTS])
def test_table_of_each_method(name):
    rewards, groups = [1, 1, 0, 1, 0, 0, 0], [0, 0, 0, 1, 1, 2, 2]
    examples = {(True, True): [0, 1], (True, False): [3], (False, True): [2, 4], (False, False): [5, 6]}
    found = branches(name, rewards, groups)
    for case, branch in zip(CASES, ROUTES[name], strict=True):
        assert {found[i] for i in examples[case]} == {branch}


@pytest.mark.parametrize(("name", "needed"), [("grpo", False), ("sdpo", True), ("srpo", True), ("advantage_mix", True)])
def test_only_methods_that_distil_or_mix_need_a_teacher(name, needed):
    assert load_method(name).routing.needs_teacher is needed
    assert bool(routes_of(name, [1, 1, 0, 0]).uses_teacher.any()) is needed


def test_advantage_mix_uses_the_teacher_if_a_sibling_is_correct():
    assert routes_of("advantage_mix", [0, 1, 0, 0], [0, 0, 1, 1]).uses_teacher.tolist() == [
        True,
        False,
        False,
        False,
    ]


def test_anchored_rollouts_use_the_teacher_under_their_own_prompt():
    routes = routes_of("grpo_with_anchor", [0, 1, 0, 0], [0, 0, 1, 1])
    assert routes.uses_teacher.all()
    assert (routes.shown_sibling == NO_SIBLING).all()
    assert routes_of("srpo", [0, 1]).shown_sibling.tolist() == routes_of("srpo", [0, 1]).sibling.tolist() == [1, -1]


def test_a_partial_reward_is_not_correct():
    assert routes_of("srpo", [0.5, 0.999]).correct.tolist() == [False, False]


# ---------------------------------------------------------------- any batch


@st.composite
def any_batch(draw):
    groups = draw(st.lists(st.integers(0, 4), min_size=1, max_size=24))
    rewards = draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=len(groups), max_size=len(groups)))
    return rewards, groups


@given(any_batch())
def test_the_sibling_is_the_first_correct_other_of_the_group(batch):
    rewards, groups = batch
    found = routes_of("srpo", rewards, groups).sibling.tolist()
    for i in range(len(rewards)):
        candidates = [j for j in range(len(rewards)) if j != i and groups[j] == groups[i] and rewards[j] == 1]
        assert found[i] == (candidates[0] if candidates else NO_SIBLING)


@given(any_batch(), st.sampled_from(METHODS), st.randoms(use_true_random=False))
def test_permuting_rollouts_permutes_branches(batch, name, random):
    rewards, groups = batch
    order = list(range(len(rewards)))
    random.shuffle(order)
    before = branches(name, rewards, groups)
    assert branches(name, [rewards[i] for i in order], [groups[i] for i in order]) == [before[i] for i in order]


@given(any_batch(), st.sampled_from(METHODS))
def test_whoever_is_distilled_has_a_sibling(batch, name):
    result = routes_of(name, *batch)
    assert not (result.takes("sdpo") & ~result.uses_teacher).any()


# ---------------------------------------------------------------- a response of an earlier step


def test_an_earlier_response_counts_as_a_sibling_where_there_is_none():
    correct, groups = torch.tensor([0, 1, 0, 0, 0, 1]).bool(), torch.tensor([0, 0, 1, 1, 2, 2])
    earlier = torch.tensor([1, 0, 1, 0, 1, 1]).bool()
    plain, routes = (route(correct, groups, load_method("srpo").routing, earlier=e) for e in (None, earlier))
    assert plain.names == ["sdpo", "grpo", "grpo", "grpo", "sdpo", "grpo"]
    assert routes.names == ["sdpo", "grpo", "sdpo", "grpo", "sdpo", "grpo"]
    assert routes.remembered.tolist() == [False, False, True, False, False, True]  # the last is right, and alone
    assert routes.shown_earlier.tolist() == [False, False, True, False, False, False]
    assert routes.uses_teacher.tolist() == [True, False, True, False, True, False]
    assert routes.sibling.equal(plain.sibling)
    assert routes.sibling_available.equal(plain.sibling_available)
    anchored = route(correct, groups, load_method("grpo_with_anchor").routing, earlier=earlier)
    assert not anchored.shown_earlier.any()


@given(any_batch(), st.sampled_from(METHODS))
def test_nothing_remembered_changes_nothing(batch, name):
    correct, groups = torch.tensor(batch[0]) == 1, torch.tensor(batch[1])
    table, none = load_method(name).routing, torch.zeros(len(groups), dtype=torch.bool)
    assert route(correct, groups, table, earlier=none).branch.equal(route(correct, groups, table).branch)


# ---------------------------------------------------------------- what the teacher is shown

# three groups: mixed, all wrong, a single success
SHOWN = {
    "correct": [1, 0, 0, 0, 1, 0],
    "groups": [0, 0, 1, 1, 2, 2],
}


@pytest.mark.parametrize(
    ("name", "context", "branches", "siblings", "truth"),
    [
        ("sdpo", {}, "dsddds", [-1, 0, -1, -1, -1, 4], [0] * 6),
        ("i_sdpo", {}, "ggssgg", [-1] * 6, [0, 0, 1, 1, 0, 0]),
        ("i_sdpo", {"solution": "sibling_or_ground_truth"}, "ggssgg", [-1] * 6, [0, 0, 1, 1, 0, 0]),
    ],
)
def test_the_context_by_hand(name, context, branches, siblings, truth):
    given = load_method(name).teacher_context.model_dump() | context
    method = load_method(name, teacher_context=given)
    correct, groups = (torch.tensor(values) for values in SHOWN.values())
    routes = route(correct == 1, groups, method.routing, context=method.teacher_context)
    assert "".join(branch[0] for branch in routes.names) == branches
    assert routes.shown_sibling.where(routes.uses_teacher, NO_SIBLING).tolist() == siblings
    assert routes.shown_truth.int().tolist() == truth
    assert routes.uses_teacher.equal(routes.takes("sdpo"))


def test_all_rollouts_may_be_distilled_from_the_ground_truth():
    """OPSD: whatever the rewards are; or from a sibling where there is one."""
    table = dict.fromkeys(CASE_NAMES, "sdpo")
    correct, groups = torch.tensor(SHOWN["correct"]) == 1, torch.tensor(SHOWN["groups"])
    truth = load_method("srpo", routing=table, teacher_context={"solution": "ground_truth"})
    routes = route(correct, groups, truth.routing, context=truth.teacher_context)
    assert routes.shown_truth.all()
    both = load_method("srpo", routing=table, teacher_context={"solution": "sibling_or_ground_truth"})
    routes = route(correct, groups, both.routing, context=both.teacher_context)
    assert routes.uses_teacher.all()
    assert routes.shown_sibling.tolist() == [-1, 0, -1, -1, -1, 4]
    assert routes.shown_truth.tolist() == [True, False, True, True, True, False]


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("grpo", {"teacher_context": {"solution": "ground_truth"}}, "no branch of the method shows its teacher"),
        ("srpo", {"success_buffer": 4, "teacher_context": {"solution": "ground_truth"}}, "success_buffer = 4"),
        ("srpo", {"routing": dict.fromkeys(CASE_NAMES, "sdpo")}, "no sibling to show"),
    ],
)
def test_contexts_that_contradict_the_method_are_refused(name, changes, words):
    with pytest.raises(ValueError, match=words):
        load_method(name, **changes)
