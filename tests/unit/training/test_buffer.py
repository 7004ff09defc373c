"""The success buffer: what it keeps, what it shows, and what a file keeps of it."""

from __future__ import annotations

import pytest
from helpers import load_method

from srpo.training.success_buffer import FILE, Success, SuccessBuffer


def test_the_newest_different_responses_are_kept() -> None:
    buffer = SuccessBuffer(3)
    buffer.add(7, 1, ["a", "b", "a"])
    buffer.add(7, 5, ["c", "b"])
    buffer.add(8, 5, ["other"])
    assert buffer._known[7] == [Success("c", 5), Success("b", 5), Success("a", 1)]
    buffer.add(7, 6, ["d"])
    buffer.add(7, 7, [])
    assert buffer._known[7] == [Success("d", 6), Success("c", 5), Success("b", 5)]


def test_a_response_is_never_shown_itself() -> None:
    buffer = SuccessBuffer(2)
    assert buffer.newest(7, "a") is None
    buffer.add(7, 1, ["a"])
    assert buffer.newest(7, "a") is None
    assert buffer.newest(7, "wrong") == Success("a", 1)
    buffer.add(7, 3, ["b"])
    assert buffer.newest(7, "wrong") == Success("b", 3)
    assert buffer.newest(7, "b") == Success("a", 1)
    assert buffer.newest(8, "wrong") is None


def test_a_file_has_all_of_it(tmp_path) -> None:
    buffer, again = SuccessBuffer(2), SuccessBuffer(2)
    buffer.add(7, 1, ["a", "zwei\n\u2028"])
    buffer.add(11, 2, ["b"])
    buffer.save(tmp_path)
    again.load(tmp_path)
    assert again._known == buffer._known


def test_none_is_kept_and_no_file_written_without_a_size(tmp_path) -> None:
    buffer = SuccessBuffer(0)
    buffer.add(7, 1, ["a"])
    assert buffer.newest(7, "b") is None
    buffer.save(tmp_path)
    buffer.load(tmp_path)
    assert not (tmp_path / FILE).exists()


@pytest.mark.parametrize("changes", [{"success_buffer": 4}, {"sibling_choice": "random"}])
def test_a_method_without_a_teacher_has_nothing_to_show(changes: dict) -> None:
    with pytest.raises(ValueError, match="no branch of the method asks a teacher"):
        load_method("grpo", **changes)
