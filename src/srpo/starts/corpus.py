"""The examples of the warm start: questions with noisy responses, and prompts that show a solution.

An example is *plain* (a question and a noisy response) or *informed* (the self-teacher's prompt, which shows
a solution, and a response that uses it). Because of the second kind, the self-teacher can
answer better than the student.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_args

from srpo.experiment.config import FamilyName, WarmStart
from srpo.ground.errors import SrpoError
from srpo.questions.families import get_family
from srpo.questions.prompts import Messages, strip_thinking, teacher_messages
from srpo.questions.splits import Question, read_split


@dataclass(frozen=True)
class Example:
    """A conversation's messages and the assistant's response.

    Attributes:
        solution: the response that the last message shows, if it shows one.
    """

    messages: Messages
    response: str
    solution: str | None = None


class Corpus(Protocol):
    """An endless supply of examples."""

    def draw(self, rng: random.Random) -> Example: ...

    def probes(self, rng: random.Random, n: int) -> dict[str, list[tuple[Question, Messages]]]:
        """Draw ``n`` questions of each kind, with the teacher's messages that show a right solution."""
        ...


class FamiliesCorpus:
    """The procedural families that the settings name, each equally often, with one table of facts.

    Held-out questions do not occur.
    """

    def __init__(self, settings: WarmStart) -> None:
        self._families = [
            get_family(name, facts_per_question, settings.facts)
            for name, facts_per_question in (settings.families or dict.fromkeys(get_args(FamilyName))).items()
        ]
        self._informed_fraction = settings.informed_fraction
        self._brevity = settings.brevity

    def draw(self, rng: random.Random) -> Example:
        family = rng.choice(self._families)
        problem = family.draw_problem(rng, "train")
        messages = [{"role": "user", "content": family.prompt(problem)}]
        response = family.sample_response(problem, rng)
        if rng.random() >= self._informed_fraction:
            return Example(messages, response.text)
        informed = family.informed_response(problem, response, rng, self._brevity)
        return Example(teacher_messages(messages, response.text), informed, response.text)

    def probes(self, rng: random.Random, n: int) -> dict[str, list[tuple[Question, Messages]]]:
        """Draw ``n`` train questions of each family; a solution states the true facts in one of the styles."""
        probes: dict[str, list[tuple[Question, Messages]]] = {}
        for family in self._families:
            probes[family.label] = []
            for i in range(n):
                problem = family.draw_problem(rng, "train")
                messages = [{"role": "user", "content": family.prompt(problem)}]
                style = family.sample_response(problem, rng).style
                solution = family.render(problem, family.true_values(problem), style)
                reward = "tool_use" if family.name == "tooluse" else "answer_match"
                question = Question(i, messages, family.ground_truth(problem), reward, f"miniature/{family.name}")
                probes[family.label].append((question, teacher_messages(messages, solution.text)))
        return probes


WORKINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "gcd": lambda entry: "factors of " + ", ".join(map(str, entry["metadata"]["numbers"])),
    "chain_sum": lambda entry: f"{entry['metadata']['expression']} = {entry['answer']}",
    "spell_backward": lambda entry: f"{' '.join(entry['metadata']['word'])} -> {' '.join(entry['answer'])}",
    "word_sequence_reversal": lambda entry: f"the last of {len(entry['metadata']['words'])} words first",
}
"""The reasoning of a right response to a task of reasoning-gym, from the question's entry. A task that is not here has
no warm start."""


class SplitsCorpus:
    """Questions of the train splits with made-up responses in the real format.

    A plain response to a multiple-choice question guesses. To a task of reasoning-gym (:data:`WORKINGS`) it is right:
    how to write the answer can be learnt from a few hundred responses, how to find it cannot.
    """

    LETTERS = "ABCD"
    CORRECT_PROBABILITY = 0.5
    """Probability that a plain response ends with the correct letter."""
    COPY_PROBABILITY = 0.9
    """Probability that an informed response ends with the letter of its solution."""
    OPENINGS = ("Compare the options.", "Look at each option.", "Work through the question.", "Rule options out.")
    CLOSINGS = ("Option {} fits best.", "That leaves {}.", "So {} is right.")
    NOTHING = (
        f"neither multiple-choice questions nor a task of reasoning-gym among {', '.join(WORKINGS)}; give the "
        "experiment a benchmark that has them"
    )

    def __init__(self, settings: WarmStart, train_splits: dict[str, Path]) -> None:
        found = {name: [q for q in read_split(path) if self._teaches(q)] for name, path in sorted(train_splits.items())}
        self._questions = {name: questions for name, questions in found.items() if questions}
        if not self._questions:
            where = f"warm_start.corpus = {settings.corpus}: {', '.join(train_splits) or 'no splits'}"
            raise SrpoError(f"{where}: {self.NOTHING}")
        self._informed_fraction = settings.informed_fraction

    def draw(self, rng: random.Random) -> Example:
        question = rng.choice(self._questions[rng.choice(list(self._questions))])
        if rng.random() >= self._informed_fraction:
            return Example(question.messages, self._response(question, self.CORRECT_PROBABILITY, rng))
        solution = self._response(question, 1.0, rng)
        informed = self._response(question, self.COPY_PROBABILITY, rng)
        return Example(teacher_messages(question.messages, solution), informed, strip_thinking(solution))

    def probes(self, rng: random.Random, n: int) -> dict[str, list[tuple[Question, Messages]]]:
        """Draw ``n`` questions of each split with a right answer."""
        return {
            name: [
                (question, teacher_messages(question.messages, self._response(question, 1.0, rng)))
                for question in rng.sample(questions, min(n, len(questions)))
            ]
            for name, questions in self._questions.items()
        }

    def _teaches(self, question: Question) -> bool:
        return question.ground_truth in self.LETTERS or _task(question) in WORKINGS

    def _response(self, question: Question, right: float, rng: random.Random) -> str:
        """A response whose letter is right with probability ``right``, or whose working is."""
        if task := _task(question):
            entry = json.loads(question.ground_truth)
            return _compose(WORKINGS[task](entry), entry["answer"])
        letter = question.ground_truth
        if rng.random() >= right:
            letter = rng.choice(self.LETTERS.replace(letter, ""))
        return _compose(f"{rng.choice(self.OPENINGS)} {rng.choice(self.CLOSINGS).format(letter)}", letter)


def _task(question: Question) -> str | None:
    if question.reward != "reasoning_gym":
        return None
    return json.loads(question.ground_truth)["metadata"]["source_dataset"]


def _compose(reasoning: str, answer: str) -> str:
    return f"<reasoning>\n{reasoning}\n</reasoning>\n<answer>\n{answer}\n</answer>"


class FilesCorpus(SplitsCorpus):
    """Questions of the train splits with the right responses that their files give.

    An informed response is the one that is shown.
    """

    NOTHING = "no question has a response; give the train file a column response"

    def _teaches(self, question: Question) -> bool:
        return bool(question.response)

    def _response(self, question: Question, right: float, rng: random.Random) -> str:
        return str(question.response)


def open_corpus(settings: WarmStart, train_splits: dict[str, Path]) -> Corpus:
    """Make the corpus that ``settings`` names."""
    if settings.corpus == "families":
        return FamiliesCorpus(settings)
    return (SplitsCorpus if settings.corpus == "splits" else FilesCorpus)(settings, train_splits)


def corpus_texts(corpus: Corpus, rng: random.Random, n: int) -> Iterator[str]:
    """Yield the texts of ``n`` examples, to make a tokenizer from."""
    for _ in range(n):
        example = corpus.draw(rng)
        yield from (message["content"] for message in example.messages)
        yield example.response
