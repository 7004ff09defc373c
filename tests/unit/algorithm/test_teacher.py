"""The kinds of teacher as settings: what is accepted, and when a teacher's weights move."""

import pytest
from helpers import TEACHERS, load_method

from srpo.algorithm.teacher import Ema


def test_the_default_is_the_papers() -> None:
    method = load_method("srpo")
    assert method.teacher == Ema()
    assert method.teacher_update_rate == 0.05
    assert method == load_method("srpo", teacher={"kind": "ema"})


@pytest.mark.parametrize("name", TEACHERS)
def test_a_file_of_another_teacher_is_srpo_but_for_its_teacher(name: str) -> None:
    own = {"name", "title", "teacher"}
    assert load_method(name).model_dump(exclude=own) == load_method("srpo").model_dump(exclude=own)
    assert load_method(name).teacher.kind in name


def test_only_a_live_teacher_has_no_weights() -> None:
    methods = [load_method(name) for name in ("srpo", *TEACHERS, "grpo")]
    assert [method.teacher_has_weights for method in methods] == [True, True, False, False]
    assert [method.teacher.text for method in methods[:3]] == ["EMA", "frozen", "live"]


def test_bounds_of_the_ratio_are_no_distances() -> None:
    with pytest.raises(ValueError, match=r"clip_ratio_low = 0\.8, clip_ratio_high = 1\.28: .* 1, 0\.2 and 0\.28"):
        load_method("grpo", clip_ratio_low=0.8, clip_ratio_high=1.28)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "srpo",
            {"teacher": {"kind": "frozen"}, "teacher_update_rate": 0.1},
            "teacher_update_rate = 0.1: only a teacher of kind ema",
        ),
        ("grpo", {"teacher": {"kind": "live"}}, "teacher.kind = live: no branch of the method asks a teacher"),
        ("grpo", {"entropy_beta": 1.0}, "entropy_beta = 1.0: no branch of the method distils"),
        ("grpo", {"group_weight": "spread"}, "group_weight = spread: no branch of the method distils"),
        ("grpo", {"teacher_update_rate": 0.1}, "teacher_update_rate = 0.1: no branch of the method asks a teacher"),
    ],
)
def test_what_has_no_effect_is_refused(name: str, changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_method(name, **changes)
