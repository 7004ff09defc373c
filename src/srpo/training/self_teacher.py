"""Samples of an untrained model, as student and as its own teacher: what ``srpo gap`` computes its numbers from."""

import logging
import random
import re
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from srpo.experiment.config import Model, Training
from srpo.experiment.job import Job
from srpo.ground.layout import Layout
from srpo.ground.seeds import derive_seed
from srpo.questions.prompts import response_texts, strip_thinking, student_prompts, teacher_prompt_ids
from srpo.questions.rewards import compute_reward
from srpo.questions.splits import Question, read_split
from srpo.rollout.checkpoint import end_tokens
from srpo.rollout.interface import RolloutEngine, SamplingParams
from srpo.starts.open_tokenizer import open_tokenizer
from srpo.training.evaluate_run import serving, with_servers
from srpo.training.lengths import check_lengths, check_teacher


@dataclass(frozen=True)
class GapSamples:
    """Rewards and copies, 0 or 1, of as many samples per question as a group has rollouts.

    Attributes:
        rollouts: [questions, samples] rewards of the student.
        shown: indices of the questions with a correct rollout, the first of which the teacher sees as its sibling.
        student: [shown, samples] rewards of further samples of the student, because ``rollouts`` chose the questions.
        teacher: [shown, samples] rewards of the teacher that sees the ``sibling``, the sibling with its answer
            ``masked``, or the sibling of a ``foreign`` question; empty without a question to show, or with one, so
            that none is foreign.
        answer_copied: [shown, samples] whether a response has the answer of the response in its prompt.
        response_copied: [shown, samples] whether it is that response, word for word.
    """

    rollouts: np.ndarray
    shown: list[int]
    student: np.ndarray
    teacher: dict[str, np.ndarray]
    answer_copied: dict[str, np.ndarray]
    response_copied: dict[str, np.ndarray]


def sample_teacher(job: Job, benchmark: str, layout: Layout, questions: int) -> GapSamples:
    """Sample an untrained model on train questions with the experiment's prompts, training's sampling and engine.

    Args:
        questions: how many, drawn at random with a fixed seed; all if there are fewer.
    """
    model, training = job.model.name, job.training
    tokenizer = open_tokenizer(layout.model(model))
    known = read_split(layout.split(job.benchmark.data_set, "train"))
    check_teacher(tokenizer, check_lengths(tokenizer, known, "train", training), training)
    new = not_learned(job.model, known)
    asked = random.Random(derive_seed("gap questions")).sample(new, min(questions, len(new)))
    log = layout.log("gap", model, benchmark, "server")
    folder = layout.model(model)
    ends = end_tokens(folder, tokenizer)
    engines = partial(serving, job.execution, training, folder, log, ends, training.max_reprompt_len)
    return with_servers(lambda engine: gap_samples(engine, tokenizer, asked, training), engines)


def not_learned(model: Model, questions: list[Question]) -> list[Question]:
    """Those whose responses the model's warm start has not learned by heart; all, with a warning, if there are none."""
    warm_start = getattr(model, "warm_start", None)
    if warm_start is None or warm_start.corpus != "files":
        return questions
    if not (new := [question for question in questions if question.response is None]):
        logging.getLogger(__name__).warning(
            "gap: the warm start knows every question by heart; let some rows have no response"
        )
    return new or questions


def gap_samples(engine: RolloutEngine, tokenizer: Any, questions: list[Question], training: Training) -> GapSamples:
    """Sample student and teacher. The seed of a sample depends on nothing but its role, question and number."""
    params = SamplingParams(training.temperature, training.max_response_length)
    count = training.rollouts_per_question

    def sample(role: str, asked: list[Question], prompts: list[list[int]]) -> list[list[str]]:
        seeds = [[derive_seed("gap", role, question.index, j) for j in range(count)] for question in asked]
        groups = engine.generate(prompts, params, seeds)
        ids = [completion.token_ids for group in groups for completion in group]
        texts = response_texts(tokenizer, ids)
        return [texts[i : i + count] for i in range(0, len(texts), count)]

    def rewards(asked: list[Question], texts: list[list[str]]) -> np.ndarray:
        groups = zip(asked, texts, strict=True)
        return np.array([[compute_reward(q.reward, text, q.ground_truth) for text in group] for q, group in groups])

    prompts = student_prompts(tokenizer, [question.messages for question in questions], training.max_prompt_length)
    texts = sample("rollout", questions, prompts)
    rollouts = rewards(questions, texts)
    shown = np.flatnonzero(rollouts.any(axis=1)).tolist()
    if not shown:
        return GapSamples(rollouts, [], np.zeros((0, count)), {}, {}, {})
    asked = [questions[i] for i in shown]
    siblings = [strip_thinking(texts[i][int(rollouts[i].argmax())]) for i in shown]
    arms = {"sibling": siblings, "masked": [with_masked_answer(text) for text in siblings]}
    if len({question.ground_truth for question in asked}) > 1:
        arms["foreign"] = [siblings[foreign_question(asked, i)] for i in range(len(asked))]
    student = rewards(asked, sample("student", asked, [prompts[i] for i in shown]))
    teacher, answers, responses = {}, {}, {}
    for arm, solutions in arms.items():
        enriched = [
            teacher_prompt_ids(tokenizer, question.messages, solution, training.max_reprompt_len)
            for question, solution in zip(asked, solutions, strict=True)
        ]
        found = sample(arm, asked, enriched)
        teacher[arm] = rewards(asked, found)
        pairs = [[(text, solution) for text in texts] for texts, solution in zip(found, solutions, strict=True)]
        answers[arm] = np.array([[float(_same_answer(*pair)) for pair in group] for group in pairs])
        responses[arm] = np.array([[float(text.strip() == other.strip()) for text, other in group] for group in pairs])
    return GapSamples(rollouts, shown, student, teacher, answers, responses)


def foreign_question(asked: list[Question], own: int) -> int:
    """Index of the next question with another ground truth, so that copying its answer is wrong."""
    order = [*range(own + 1, len(asked)), *range(own)]
    return next(i for i in order if asked[i].ground_truth != asked[own].ground_truth)


def _same_answer(response: str, shown: str) -> bool:
    """Whether both texts have an answer of one form, and it is one and the same."""
    forms = {bool(re.search("<answer>|Action:", text)) for text in (response, shown)}
    return len(forms) == 1 and bool(answer := shown_answer(shown)) and shown_answer(response) == answer


def shown_answer(text: str) -> str:
    """The answer of a response; empty without one."""
    return text[slice(*_answer_span(text))].strip()


def with_masked_answer(text: str) -> str:
    """The response with ``...`` in the place of its answer."""
    start, end = _answer_span(text)
    return f"{text[:start]}...{text[end:]}" if start < end else text


def _answer_span(text: str) -> tuple[int, int]:
    """What rewards read: from the last ``<answer>`` to its closing tag, or from the first ``Action:`` to the end.

    Of a response that has neither, as an own reward may ask for, the last word.
    """
    opening = text.rfind("<answer>")
    if opening >= 0:
        start = opening + len("<answer>")
        closing = text.find("</answer>", start)
        return start, len(text) if closing < 0 else closing
    call, words = re.search("Action:", text), text.split()
    return (call.end() if call else text.rindex(words[-1]) if words else 0), len(text)
