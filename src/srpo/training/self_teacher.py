"""Samples of an untrained model, as student and as its own teacher: what ``srpo gap`` computes its numbers from."""

import logging
import random
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
    """Rewards, 0 or 1, of as many samples per question as a group has rollouts.

    Attributes:
        rollouts: [questions, samples] rewards of the student.
        shown: indices of the questions with a correct rollout, the first of which the teacher sees as its sibling.
        student: [shown, samples] rewards of further samples of the student, because ``rollouts`` chose the questions.
        teacher: [shown, samples] rewards of the teacher that sees the sibling.
        copied: [shown, samples] whether the teacher's response is the sibling, word for word.
    """

    rollouts: np.ndarray
    shown: list[int]
    student: np.ndarray
    teacher: np.ndarray
    copied: np.ndarray


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
    engines = partial(serving, job.execution, training, folder, log, ends, max_prompt_length=training.max_reprompt_len)
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
        return GapSamples(rollouts, [], *[np.zeros((0, count))] * 3)
    asked = [questions[i] for i in shown]
    siblings = [strip_thinking(texts[i][int(rollouts[i].argmax())]) for i in shown]
    student = rewards(asked, sample("student", asked, [prompts[i] for i in shown]))
    enriched = [
        teacher_prompt_ids(tokenizer, question.messages, sibling, training.max_reprompt_len)
        for question, sibling in zip(asked, siblings, strict=True)
    ]
    found = sample("sibling", asked, enriched)
    copied = [[text.strip() == own.strip() for text in group] for group, own in zip(found, siblings, strict=True)]
    return GapSamples(rollouts, shown, student, rewards(asked, found), np.array(copied, float))
