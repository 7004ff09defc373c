"""A method with a second phase: which table a step has, and what is read of both."""

import pytest
from helpers import load_method

from srpo.algorithm.method import Method
from srpo.experiment.step_times import timed_like

GRPO = load_method("grpo").routing


def phased(steps: int) -> Method:
    return load_method("sdpo_then_grpo", first_phase_steps=steps)


@pytest.mark.parametrize("steps", [1, 2, 60])
def test_the_table_of_a_step(steps: int) -> None:
    method = phased(steps)
    for step in range(1, steps + 1):
        assert method.at(step).routing == load_method("sdpo").routing
    for step in (steps + 1, steps + 2, 10_000):
        assert method.at(step).routing == GRPO
    assert all(method.at(step).second_routing is None for step in (1, steps + 1))


def test_everything_but_the_table_is_that_of_both_phases() -> None:
    method = load_method("srpo_then_grpo")
    own = {"routing", "second_routing", "first_phase_steps"}
    assert method.model_dump(exclude={*own, "name", "title"}) == load_method("srpo").model_dump(
        exclude={*own, "name", "title"}
    )
    assert [phase.model_dump(exclude=own) for phase in method.phases] == [method.model_dump(exclude=own)] * 2


def test_what_any_phase_needs_the_method_needs() -> None:
    for name, routes in (("sdpo_then_grpo", False), ("srpo_then_grpo", True)):
        method = load_method(name)
        assert {*method.branches} - {"dropped"} == {"grpo", "sdpo"}
        assert (method.needs_teacher, method.distils, method.teacher_has_weights) == (True, True, True)
        assert method.routes_samples is routes
    assert [load_method(name).routes_samples for name in ("grpo", "sdpo", "srpo")] == [False, False, True]
    later = {"first_phase_steps": 5, "second_routing": load_method("sdpo").routing.model_dump()}
    assert load_method("grpo", **later).needs_teacher
    assert load_method("grpo", **later, teacher={"kind": "frozen"}).teacher_has_weights


def test_a_first_phase_without_steps_asks_for_nothing() -> None:
    method = phased(0)
    assert method.phases == (method.at(1),) == (method.at(7),)
    assert {*method.branches} == {"grpo"}
    assert (method.needs_teacher, method.distils) == (False, False)


def test_a_step_is_timed_like_its_phase() -> None:
    assert [timed_like(phased(3), step) for step in (1, 3, 4, 99)] == ["sdpo", "sdpo", "grpo", "grpo"]
    assert [timed_like(load_method("srpo_then_grpo"), step) for step in (60, 61)] == ["srpo", "grpo"]
    assert timed_like(phased(0)) == "grpo"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_phase_steps": 3}, "first_phase_steps is given alone"),
        ({"second_routing": GRPO.model_dump()}, "second_routing is given alone"),
        (
            {"first_phase_steps": 3, "second_routing": load_method("advantage_mix").routing.model_dump()},
            "mix and sdpo exclude each other in one method",
        ),
    ],
)
def test_what_cannot_be_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_method("sdpo", **changes)
