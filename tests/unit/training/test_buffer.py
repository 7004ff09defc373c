"""The success buffer: what it keeps, what it shows, and what a file keeps of it."""

from dataclasses import replace

import pytest
from batch import rollouts_of
from helpers import load_method

from srpo.questions.splits import Question
from srpo.training.success_buffer import FILE, Success, SuccessBuffer, earlier_successes

QUESTIONS = [Question(index, [], "", "answer_match", "made up") for index in (7, 8)]


def newest(buffer: SuccessBuffer, own: str) -> list[Success | None]:
    """What a rollout of each question is shown whose response is this one."""
    found = earlier_successes(QUESTIONS, replace(rollouts_of([0.0, 0], 1), texts=[own, own]), buffer.known)
    return [found.get(row) for row in (0, 1)]


def test_the_newest_different_responses_are_kept() -> None:
    buffer = SuccessBuffer(3)
    buffer.add(7, 1, ["a", "b", "a"])
    buffer.add(7, 5, ["c", "b"])
    buffer.add(8, 5, ["other"])
    assert buffer.known[7] == [Success("c", 5), Success("b", 5), Success("a", 1)]
    buffer.add(7, 6, ["d"])
    buffer.add(7, 7, [])
    assert buffer.known[7] == [Success("d", 6), Success("c", 5), Success("b", 5)]


def test_a_response_is_never_shown_itself() -> None:
    buffer = SuccessBuffer(2)
    assert newest(buffer, "a") == [None, None]
    buffer.add(7, 1, ["a"])
    assert newest(buffer, "a") == [None, None]
    assert newest(buffer, "wrong") == [Success("a", 1), None]
    buffer.add(7, 3, ["b"])
    assert newest(buffer, "wrong") == [Success("b", 3), None]
    assert newest(buffer, "b") == [Success("a", 1), None]
    buffer.add(8, 3, ["d"])
    assert newest(buffer, "b") == [Success("a", 1), Success("d", 3)]


def test_the_correct_responses_of_a_step_are_kept_by_question():
    buffer = SuccessBuffer(3)
    rollouts = replace(rollouts_of([1.0, 0, 1, 0, 0, 1], 3), texts=["a", "b", "c", "d", "e", "f"])
    buffer.add_step(4, QUESTIONS, rollouts)
    assert buffer.known == {7: [Success("a", 4), Success("c", 4)], 8: [Success("f", 4)]}


def test_a_file_has_all_of_it(tmp_path) -> None:
    buffer, again = SuccessBuffer(2), SuccessBuffer(2)
    buffer.add(7, 1, ["a", "zwei\n\u2028"])
    buffer.add(11, 2, ["b"])
    buffer.save(tmp_path)
    again.load(tmp_path)
    assert again.known == buffer.known == {7: [Success("a", 1), Success("zwei\n\u2028", 1)], 11: [Success("b", 2)]}


def test_none_is_kept_and_no_file_written_without_a_size(tmp_path) -> None:
    buffer = SuccessBuffer(0)
    buffer.add(7, 1, ["a"])
    buffer.add_step(2, QUESTIONS, rollouts_of([1.0, 1], 1))
    assert not buffer.known
    buffer.save(tmp_path)
    buffer.load(tmp_path)
    assert not (tmp_path / FILE).exists()


def test_a_method_without_a_teacher_has_nothing_to_show() -> None:
    with pytest.raises(ValueError, match="no branch of the method asks a teacher"):
        load_method("grpo", success_buffer=4)
