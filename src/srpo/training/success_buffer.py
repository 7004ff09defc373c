"""Correct responses of earlier steps, for rollouts without a correct sibling (DRIFT, arXiv 2606.30345)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias

from srpo.algorithm.rollouts import Rollouts
from srpo.ground.files import read_json, write_json
from srpo.questions.splits import Question

FILE = "success_buffer.json"


@dataclass(frozen=True)
class Success:
    """A correct response, and the last step that has sampled it."""

    text: str
    step: int


Known: TypeAlias = Mapping[int, Sequence[Success]]
"""Correct responses by the index of their question, the newest first."""


def earlier_successes(questions: Sequence[Question], rollouts: Rollouts, known: Known) -> dict[int, Success]:
    """By rollout, the newest correct response of an earlier step to its question that differs from its own response."""
    found = {}
    for row, (question, text) in enumerate(zip(rollouts.question.tolist(), rollouts.texts, strict=True)):
        others = (success for success in known.get(questions[question].index, ()) if success.text != text)
        if (newest := next(others, None)) is not None:
            found[row] = newest
    return found


class SuccessBuffer:
    """The newest correct responses to each question, all different.

    Args:
        size: how many a question has at most; 0 keeps none, and a checkpoint has no file of them.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.known: dict[int, list[Success]] = {}

    def add_step(self, step: int, questions: Sequence[Question], rollouts: Rollouts) -> None:
        """Put the correct responses of a step before the older ones."""
        texts: dict[int, list[str]] = {}
        for row in rollouts.correct.nonzero().flatten().tolist():
            texts.setdefault(int(rollouts.question[row]), []).append(rollouts.texts[row])
        for question, correct in texts.items():
            self.add(questions[question].index, step, correct)

    def add(self, question: int, step: int, texts: Iterable[str]) -> None:
        """Put a question's correct responses of a step before the older ones."""
        new = list(dict.fromkeys(texts))
        if new and self.size:
            older = [known for known in self.known.get(question, ()) if known.text not in new]
            self.known[question] = [*(Success(text, step) for text in new), *older][: self.size]

    def save(self, folder: Path) -> None:
        """Write the content into a checkpoint's folder."""
        if self.size:
            content = {str(question): [asdict(one) for one in known] for question, known in self.known.items()}
            write_json(folder / FILE, content)

    def load(self, folder: Path) -> None:
        """Take the content of a checkpoint's folder."""
        if self.size:
            content = read_json(folder / FILE)
            self.known = {int(question): [Success(**one) for one in known] for question, known in content.items()}
