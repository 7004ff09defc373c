"""The order of questions, and what is drawn for a step."""

import contextlib
import itertools
import types

from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny_experiment

from srpo.questions.splits import Question
from srpo.rollout.interface import Completion
from srpo.training.questions import questions_of_step
from srpo.training.step import Step


@given(st.integers(12, 60), st.integers(1, 12), st.integers(0, 5))
def test_each_epoch_asks_a_question_at_most_once(questions, per_batch, seed):
    batches = questions // per_batch
    for epoch in range(2):
        steps = range(epoch * batches + 1, (epoch + 1) * batches + 1)
        asked = [question for step in steps for question in questions_of_step(step, questions, per_batch, seed)]
        assert len(set(asked)) == len(asked) == batches * per_batch
        assert set(asked) <= set(range(questions))


def test_an_epoch_that_divides_asks_every_question_in_another_order_each_time():
    epochs = [[q for step in range(first, first + 4) for q in questions_of_step(step, 32, 8, 1)] for first in (1, 5, 9)]
    assert all(sorted(epoch) == list(range(32)) for epoch in epochs)
    assert all(a != b for a, b in itertools.combinations([*epochs, list(range(32))], 2))


def test_questions_depend_on_step_and_seed_alone():
    late = questions_of_step(9, 32, 8, 1)
    assert questions_of_step(9, 32, 8, 1) == late
    assert questions_of_step(9, 32, 8, 2) != late


def test_reward_and_format_are_those_of_a_rollouts_own_question(monkeypatch):
    """The first question's reward reads an answer; the second's is a function, whose format nobody knows."""
    monkeypatch.setattr("srpo.training.step.student_prompts", lambda *_: [[1], [2]])
    monkeypatch.setattr("srpo.training.step.response_texts", lambda *_: texts)
    texts = ["<answer>A</answer>", "A", "<answer>B</answer> and", "<answer> </answer>", "A", "B", "", "A"]
    engine = types.SimpleNamespace(
        generate=lambda *_: [[Completion([7], [-1.0], "stop") for _ in range(4)] for _ in range(2)]
    )
    policy = types.SimpleNamespace(
        tokenizer=None,
        cost=types.SimpleNamespace(forward_flops=lambda _: 0.0, decode_flops=lambda *_: 0.0),
        sampling=lambda: contextlib.nullcontext(engine),
    )
    questions = [Question(3, [], "A", "answer_match", "made up"), Question(5, [], "A", "operator:eq", "made up")]
    experiment = tiny_experiment("srpo")
    rollouts = Step(experiment.run(experiment.runs()[0]), policy, 1).generate(questions)
    assert rollouts.in_format == [True, False, True, False, None, None, None, None]
    assert rollouts.rewards.tolist() == [1, 0, 0, 0, 1, 0, 0, 1]


def test_no_two_samples_of_two_seeds_and_two_steps_have_one_seed(monkeypatch):
    """Else all runs of a method would draw the same samples of a question."""
    monkeypatch.setattr("srpo.training.step.student_prompts", lambda *_: [[1], [2]])
    drawn: list[int] = []
    engine = types.SimpleNamespace(generate=lambda prompts, params, seeds: drawn.extend(itertools.chain(*seeds)) or [])
    policy = types.SimpleNamespace(tokenizer=None, cost=None, sampling=lambda: contextlib.nullcontext(engine))
    experiment = tiny_experiment("srpo")
    (run,) = experiment.runs()
    spec = experiment.run(run)
    for seed, number in itertools.product((1, 2), (1, 2)):
        with contextlib.suppress(AttributeError):  # the empty engine has no completions to decode
            own = spec.model_copy(update={"id": run.model_copy(update={"seed": seed})})
            Step(own, policy, number).generate([Question(i, [], "A", "answer_match", "made up") for i in (3, 5)])
    assert len(set(drawn)) == len(drawn) == 2 * 2 * 2 * 4
