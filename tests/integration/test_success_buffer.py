"""Runs with a success buffer: empty it is SRPO, later it shows what an earlier step has found, resumed it is exact."""

import pytest
from tiny import hash_reward
from tiny_runs import assert_same, trained

METHOD = "srpo_success_buffer"


@pytest.fixture
def same_questions(monkeypatch):
    """Every step asks the first four questions."""
    monkeypatch.setattr("srpo.training.loop.questions_of_step", lambda *_: [0, 1, 2, 3])


def test_an_empty_buffer_is_srpo_bit_for_bit(tmp_path, monkeypatch):
    """No question of the first epoch is asked twice."""
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    found, usual = (trained(tmp_path / name, name, steps=(3,)) for name in (METHOD, "srpo"))
    assert [event["metrics"]["buffer/served_fraction"] for event in found[0]] == [0, 0, 0]
    assert_same(found, usual, {"buffer/served_fraction"})


@pytest.mark.usefixtures("same_questions")
def test_all_wrong_groups_are_shown_what_an_earlier_step_has_found(tmp_path, monkeypatch):
    """In step 1 the second rollout of each group is right, then none."""
    asked, shown = [], []
    monkeypatch.setattr(
        "srpo.training.step.compute_reward",
        lambda _, text, __: float(asked.append(text) or len(asked) in (2, 6, 10, 14)),
    )
    from srpo.training import step

    prompt = step.teacher_prompt_ids
    monkeypatch.setattr(step, "teacher_prompt_ids", lambda *args: shown.append(args[2]) or prompt(*args))
    events, _ = trained(tmp_path, METHOD, steps=(3,))
    metrics = [event["metrics"] for event in events]
    assert [m["buffer/served_fraction"] for m in metrics] == [0, 1, 1]
    assert [m.get("buffer/age") for m in metrics] == [None, 1, 2]
    assert [m["routing/sdpo_fraction"] for m in metrics] == [0.75, 1, 1]
    assert [m["routing/sibling_available_fraction"] for m in metrics] == [0.75, 0, 0]
    assert all("loss/divergence" in m and m["teacher/entropy"] > 0 for m in metrics)
    found = sorted(asked[i] for i in (1, 5, 9, 13))
    assert [sorted(shown[i : i + 4]) for i in (0, 4, 8)] == [found] * 3  # a prompt per question and step
    assert len(shown) == 12


@pytest.mark.usefixtures("same_questions")
def test_a_resumed_run_remembers_what_the_uninterrupted_one_does(tmp_path, monkeypatch):
    monkeypatch.setattr("srpo.training.step.compute_reward", lambda _, text, __: hash_reward(None, text[::-1], None))
    whole, parts = (trained(tmp_path / str(len(s)), METHOD, steps=s) for s in ((4,), (2, 4)))
    assert_same(whole, parts)
    assert sum(event["metrics"]["buffer/served_fraction"] for event in whole[0]) > 0
