"""Questions that are longer than a model's prompt may be: found before anything is trained, refused or left out.

A split does not know the tokenizers of the models that will read it, so lengths belong to a model and a benchmark. A
run, an evaluation and ``srpo lengths`` all ask :func:`check_lengths`, so that they agree on the questions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from srpo.experiment.config import Experiment, Training
from srpo.ground.errors import SrpoError
from srpo.questions.prompts import prompt_lengths, response_texts, turn_marks
from srpo.questions.rewards import compute_reward, shortest_answer
from srpo.questions.splits import Question
from srpo.starts.data import known_questions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


@dataclass(frozen=True)
class CheckedSplit:
    """A split's questions by whether their prompts are short enough.

    Attributes:
        tokens: length of each question's prompt, in the split's order.
        used: the questions that are short enough.
        left_out: the other questions with their tokens.
    """

    tokens: list[int]
    used: list[Question]
    left_out: list[tuple[Question, int]]


def check_lengths(
    tokenizer: PreTrainedTokenizerFast | None, questions: Sequence[Question], split: str, training: Training
) -> CheckedSplit:
    """Measure the prompt of every question, with its chat template, and apply ``training.overlong_prompts``.

    Args:
        tokenizer: of the model that will read the questions. None, before there is one: words are counted instead of
            tokens, so that what is too long for any tokenizer is found; a word is a token or more.
        split: what to call the questions in a message.
    """

    def count(texts: Sequence[str]) -> list[int]:
        parts = tokenizer(texts, add_special_tokens=False)["input_ids"] if tokenizer else map(str.split, texts)
        return [*map(len, parts)]

    asked, unit, limit = [q.messages for q in questions], "tokens" if tokenizer else "words", training.max_prompt_length
    texts = [" ".join(message["content"] for message in messages) for messages in asked]
    lengths = prompt_lengths(tokenizer, asked) if tokenizer else count(texts)
    pairs = list(zip(questions, lengths, strict=True))
    left_out = [(question, length) for question, length in pairs if length > limit]
    if left_out and training.overlong_prompts == "refuse":
        question, length = max(left_out, key=lambda pair: pair[1])
        more = f", the longest of {len(left_out)} that are too long" if len(left_out) > 1 else ""
        raise SrpoError(
            f"{question.data_source}, {split}: question {question.index} ({question.messages[-1]['content']!r:.60}) "
            f"has {length} {unit}{more}; training.max_prompt_length = {limit}: allow as many, or set "
            "training.overlong_prompts: leave_out"
        )
    used = [(question, length) for question, length in pairs if length <= limit]
    needed = training.questions_per_batch if split == "train" else 1
    if len(used) < needed:
        what = f"{len(used)} {split} questions are short enough, {needed} are needed"
        raise SrpoError(f"training.max_prompt_length = {limit}: {what}")
    where = f"{used[0][0].data_source}, {split}"
    right = [(q, answer) for q, _ in used if (answer := shortest_answer(q.reward, q.ground_truth))]
    answers = [answer for _, answer in right]
    if answers and (shortest := min(count(answers))) > (limit := training.max_response_length):
        what = f"training.max_response_length = {limit}: the shortest right response has {shortest} {unit}"
        raise SrpoError(f"{where}: {what}")
    if tokenizer:
        check_tokenizer(tokenizer, texts, right, where)
    return CheckedSplit(lengths, [question for question, _ in used], left_out)


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
    """Refuse what is too long in questions that are known before a split is written."""
    training, trained = experiment.training, {run.benchmark for run in experiment.runs()}
    for name, benchmark in experiment.benchmarks.items():
        for split in ("train", "test") if name in trained else ("test",):
            if questions := known_questions(benchmark, split):
                check_lengths(None, questions, split, training)


def describe_lengths(splits: Mapping[str, CheckedSplit], training: Training) -> dict[str, Any]:
    """The content of a model's ``lengths`` file of a benchmark (docs/architecture.md)."""
    return {
        "max_prompt_length": training.max_prompt_length,
        "splits": {
            split: {
                "questions": len(found.tokens),
                "tokens": {"mean": fmean(found.tokens), "max": max(found.tokens)},
                "left_out": [{"question": question.index, "tokens": tokens} for question, tokens in found.left_out],
            }
            for split, found in splits.items()
        },
    }
