"""avg@k: the mean reward of k samples per question, averaged over the questions."""

from dataclasses import dataclass
from statistics import fmean
from typing import Any

from srpo.algorithm.diagnostics import is_repetitive
from srpo.experiment.config import Sampling
from srpo.ground.seeds import derive_seed
from srpo.questions.prompts import response_texts, student_prompts
from srpo.questions.rewards import compute_reward, in_format
from srpo.questions.splits import Question
from srpo.rollout.interface import RolloutEngine, SamplingParams

SAVED_SAMPLES = 4
"""Number of samples of each question that are written to ``samples.jsonl``."""


@dataclass(frozen=True)
class EvaluationResult:
    """Rewards and lengths of k samples per question.

    Attributes:
        k: samples per question.
        question_scores: mean reward of each question, in the order given.
        response_length: mean tokens of a response, its end-of-sequence token included.
        truncated_fraction: share of responses that reached the length limit.
        repeated_fraction: share of responses that repeat themselves (``algorithm.diagnostics.is_repetitive``).
        format_fraction: share of responses with an answer that the reward can read; None if it does not tell.
        counts: of all responses, how many are ``right``; of the others, how many were ``cut`` at the limit, are
            ``unreadable`` for the reward, or are ``wrong``.
        samples: records for ``samples.jsonl``, without their budget.
    """

    k: int
    question_scores: list[float]
    response_length: float
    truncated_fraction: float
    repeated_fraction: float
    format_fraction: float | None
    counts: dict[str, int]
    samples: list[dict[str, Any]]

    @property
    def avg_at_k(self) -> float:
        return fmean(self.question_scores)

    def scores(self) -> dict[str, Any]:
        """What ``validations.jsonl`` and ``evaluation.json`` have of it."""
        names = ("avg_at_k", "response_length", "truncated_fraction", "repeated_fraction", "format_fraction")
        found = {name: value for name in names if (value := getattr(self, name)) is not None}
        return found | self.counts | {"question_scores": self.question_scores}


def evaluate_questions(
    engine: RolloutEngine,
    tokenizer: Any,
    questions: list[Question],
    sampling: Sampling,
    max_prompt_length: int,
    max_response_length: int,
    seed_key: tuple[str | int, ...],
    save: int = 0,
) -> EvaluationResult:
    """Sample ``sampling.rollouts`` responses to each question and score them.

    The seed of a sample is derived from ``seed_key``, the question's index and the sample's number, so
    that a subset of the questions gets the same samples as all of them.

    Args:
        seed_key: what the samples are for, e.g. ``("validation", run_seed, step)``.
        save: of this many questions, from the first on, the result has the first ``SAVED_SAMPLES`` samples.
    """
    prompts = student_prompts(tokenizer, [question.messages for question in questions], max_prompt_length)
    seeds = [[derive_seed(*seed_key, question.index, j) for j in range(sampling.rollouts)] for question in questions]
    params = SamplingParams(sampling.temperature, max_response_length, sampling.top_p)
    groups = engine.generate(prompts, params, seeds)

    completions = [completion for group in groups for completion in group]
    texts = response_texts(tokenizer, [completion.token_ids for completion in completions])
    scores, samples, formats, counts = [], [], [], dict.fromkeys(("right", "cut", "unreadable", "wrong"), 0)
    for i, question in enumerate(questions):
        responses = texts[i * sampling.rollouts : (i + 1) * sampling.rollouts]
        rewards = [compute_reward(question.reward, response, question.ground_truth) for response in responses]
        scores.append(fmean(rewards))
        formats += [in_format(question.reward, response) for response in responses]
        for reward, readable, completion in zip(rewards, formats[-len(rewards) :], groups[i], strict=True):
            cut, unreadable = completion.finish_reason == "length", readable is False
            counts["right" if reward else "cut" if cut else "unreadable" if unreadable else "wrong"] += 1
        if i < save:
            prompt = tokenizer.decode(prompts[i])
            samples += [
                {
                    "question": question.index,
                    "sample": j,
                    "prompt": prompt,
                    "response": responses[j],
                    "ground_truth": question.ground_truth,
                    "reward": rewards[j],
                }
                for j in range(min(SAVED_SAMPLES, sampling.rollouts))
            ]
    known = [found for found in formats if found is not None]
    return EvaluationResult(
        k=sampling.rollouts,
        question_scores=scores,
        response_length=fmean(len(completion.token_ids) for completion in completions),
        truncated_fraction=fmean(completion.finish_reason == "length" for completion in completions),
        repeated_fraction=fmean(is_repetitive(completion.token_ids) for completion in completions),
        format_fraction=fmean(known) if known else None,
        counts=counts,
        samples=samples,
    )
