"""Questions that are longer than a model's prompt may be: found before anything is trained, and refused.

A split does not know the tokenizers of the models that will read it. So a run, an evaluation and a gap check the
questions with their model's tokenizer, and an experiment checks the words of the questions that are known before.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from srpo.algorithm.teacher import SIBLING_ONLY, TeacherContext
from srpo.experiment.config import Experiment, Training
from srpo.ground.errors import SrpoError
from srpo.questions.prompts import prompt_lengths, response_texts, strip_thinking, teacher_prompt_ids, turn_marks
from srpo.questions.rewards import compute_reward, shortest_answer
from srpo.questions.splits import Question, true_solution
from srpo.starts.data import known_questions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


def check_lengths(
    tokenizer: PreTrainedTokenizerFast | None, questions: Sequence[Question], split: str, training: Training
) -> Question:
    """Check that every prompt, with its chat template, and some right response are short enough; the longest question.

    Args:
        tokenizer: of the model that will read the questions. None, before there is one: words are counted instead of
            tokens, so that what is too long for any tokenizer is found; a word is a token or more.
        split: what to call the questions in a message.

    Raises:
        SrpoError: naming the longest question, or the shortest right response.
    """

    def count(texts: Sequence[str]) -> list[int]:
        parts = tokenizer(texts, add_special_tokens=False)["input_ids"] if tokenizer else map(str.split, texts)
        return [*map(len, parts)]

    asked, unit = [q.messages for q in questions], "tokens" if tokenizer else "words"
    where = f"{questions[0].data_source}, {split}"
    texts = [" ".join(message["content"] for message in messages) for messages in asked]
    lengths = prompt_lengths(tokenizer, asked) if tokenizer else count(texts)
    question, length = max(zip(questions, lengths, strict=True), key=lambda pair: pair[1])
    if length > training.max_prompt_length:
        raise SrpoError(
            f"{where}: question {question.index} ({question.messages[-1]['content']!r:.60}) has {length} {unit}; "
            f"training.max_prompt_length = {training.max_prompt_length}"
        )
    right = [(q, answer) for q in questions if (answer := shortest_answer(q.reward, q.ground_truth))]
    answers = [answer for _, answer in right]
    if answers and (shortest := min(count(answers))) > (limit := training.max_response_length):
        what = f"training.max_response_length = {limit}: the shortest right response has {shortest} {unit}"
        raise SrpoError(f"{where}: {what}")
    if tokenizer:
        check_tokenizer(tokenizer, texts, right, where)
    return question


def check_teacher(
    tokenizer: PreTrainedTokenizerFast,
    longest: Question,
    training: Training,
    positions: int = sys.maxsize,
    context: TeacherContext = SIBLING_ONLY,
    questions: Sequence[Question] = (),
) -> None:
    """Check that a teacher can be shown whole responses, whose end is the answer, after the ``longest`` question.

    A hundredth may be cut: so long a sibling is cut at its own limit, too. ``positions`` are the model's.
    """
    limit = min(training.max_reprompt_len, positions - training.max_response_length)
    room = limit - len(teacher_prompt_ids(tokenizer, longest.messages, "", limit))
    truths = [strip_thinking(true_solution(question)) for question in questions] if context.shows_ground_truth else [""]
    shown = [*map(len, tokenizer(truths, add_special_tokens=False)["input_ids"])]
    if room < 0.99 * (most := max(shown + [training.max_response_length] * context.shows_siblings)):
        what = f"the teacher's prompt has room for a response of {room} tokens, one may have {most}"
        raise SrpoError(f"{longest.data_source}: {what}; change training.max_reprompt_len or other lengths")


def check_tokenizer(
    tokenizer: PreTrainedTokenizerFast, asked: Sequence[str], right: Sequence[tuple[Question, str]], where: str
) -> None:
    """Check that no question becomes marks of turns, and that right answers still are after they were tokens."""
    _, marks = turn_marks(tokenizer)
    cut = sum(not marks.isdisjoint(ids) for ids in tokenizer([*asked], add_special_tokens=False)["input_ids"])
    answers = tokenizer([answer for _, answer in right] or [""], add_special_tokens=False)["input_ids"]
    read = zip(right, response_texts(tokenizer, answers), strict=False)
    lost = sum(not compute_reward(q.reward, text, q.ground_truth) for (q, _), text in read)
    if cut or (lost and lost == len(right)):
        what = f"{cut} questions have marks of turns, {lost} of {len(right)} answers get lost in tokens"
        raise SrpoError(f"{where}: {what}")
    if lost:
        logging.getLogger(__name__).warning(
            "%s: %d of %d right answers are wrong once they were tokens", where, lost, len(right)
        )


def check_experiment(experiment: Experiment) -> None:
    """Refuse what is too long in questions that are known before a split is written, and a teacher that reads less."""
    training, trained = experiment.training, {run.benchmark for run in experiment.runs()}
    if (limit := training.max_reprompt_len) < (least := training.max_prompt_length + training.max_response_length):
        raise SrpoError(f"training.max_reprompt_len = {limit}: at least a prompt and a response, {least}")
    for name, benchmark in experiment.benchmarks.items():
        for split in ("train", "test") if name in trained else ("test",):
            if questions := known_questions(benchmark, split):
                check_lengths(None, questions, split, training)
