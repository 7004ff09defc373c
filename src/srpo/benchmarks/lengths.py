"""Questions that are longer than a model's prompt may be: found before anything is trained, refused or left out.

A split does not know the tokenizers of the models that will read it, so lengths belong to a model and a benchmark. A
run, an evaluation and ``srpo data --lengths`` all ask :func:`check_lengths`, so that they agree on the questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from srpo.benchmarks.prompts import prompt_lengths
from srpo.benchmarks.splits import Question
from srpo.errors import SrpoError
from srpo.experiment.config import Training

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
    tokenizer: PreTrainedTokenizerFast, questions: Sequence[Question], split: str, training: Training
) -> CheckedSplit:
    """Measure the prompt of every question, with its chat template, and apply ``training.overlong_prompts``.

    Args:
        tokenizer: of the model that will read the questions.
        split: what to call the questions in a message.

    Raises:
        SrpoError: if a prompt is longer than ``training.max_prompt_length`` and the policy is ``refuse``.
    """
    limit = training.max_prompt_length
    tokens = prompt_lengths(tokenizer, [question.messages for question in questions])
    pairs = list(zip(questions, tokens, strict=True))
    left_out = [(question, length) for question, length in pairs if length > limit]
    if left_out and training.overlong_prompts == "refuse":
        question, length = max(left_out, key=lambda pair: pair[1])
        more = f", the longest of {len(left_out)} that are too long" if len(left_out) > 1 else ""
        raise SrpoError(
            f"{question.data_source}, {split}: question {question.index} has {length} tokens{more}; "
            f"training.max_prompt_length = {limit}: allow as many, or set training.overlong_prompts: leave_out"
        )
    return CheckedSplit(tokens, [question for question, length in pairs if length <= limit], left_out)


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
