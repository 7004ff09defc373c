"""The kinds of self-teacher: whose weights score the student's tokens; and what its prompt shows. No torch.

Every kind begins as the model that the run starts from. docs/method.md has formulas, costs and sources.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from srpo.ground.schema import Config, Count


class _Kind(Config):
    """A kind; without changes, one whose weights stay.

    Attributes:
        has_weights: whether it keeps its own weights, in addition to the student's.
        has_rate: whether the method's ``teacher_update_rate`` is a setting of it.
        passes: forward passes that score a response.
    """

    has_weights: ClassVar[bool] = True
    has_rate: ClassVar[bool] = False
    passes: ClassVar[int] = 1

    kind: str

    @property
    def text(self) -> str:
        """The kind and its settings, for tables."""
        return self.kind.replace("_", " ")

    def share_of_student(self, move: int, rate: float) -> float:
        """Share of the student in the teacher's weights when the teacher may move; 0 leaves them as they are.

        Args:
            move: how often it could move since the run began, this time included; from 1.
            rate: the method's ``teacher_update_rate``.
        """
        return 0.0


class _Moving(_Kind):
    """A kind that follows the student.

    Attributes:
        moves_after: each ``batch``, when all its mini-batches are done, as SDPO's and RLSD's code does, or each
            optimizer ``update``, as TRL does. With one update per batch they are the same.
    """

    moves_after: Literal["batch", "update"] = "batch"


class Ema(_Moving):
    """The exponential moving average of the student's weights, at the rate ``teacher_update_rate`` (the paper's)."""

    has_rate: ClassVar[bool] = True

    kind: Literal["ema"] = "ema"

    @property
    def text(self) -> str:
        return "EMA" if self.moves_after == "batch" else "EMA of each update"

    def share_of_student(self, move: int, rate: float) -> float:
        return rate


class Frozen(_Kind):
    """The weights that the run starts from."""

    kind: Literal["frozen"]


class Live(_Kind):
    """The student's own weights."""

    has_weights: ClassVar[bool] = False

    kind: Literal["live"]


class Snapshot(_Moving):
    """A copy of the student's weights, made anew after every ``every`` batches (or updates: ``moves_after``)."""

    kind: Literal["snapshot"]
    every: Count = 10

    @property
    def text(self) -> str:
        return f"snapshot every {self.every}" + ("" if self.moves_after == "batch" else " updates")

    def share_of_student(self, move: int, rate: float) -> float:
        """All of the student every ``every``-th time."""
        return 0.0 if move % self.every else 1.0


class TrustRegion(_Kind):
    """``log q = (1 - a) log q_frozen + a log q_live - log Z`` over the vocabulary, ``a = teacher_update_rate``."""

    has_rate: ClassVar[bool] = True
    passes: ClassVar[int] = 2

    kind: Literal["trust_region"]


class TeacherContext(Config):
    """What the teacher's prompt shows in addition to the question (SDPO, arXiv 2601.20802, and its template).

    Without a solution and feedback to show, the teacher does not score the rollout.
    """

    solution: Literal["sibling", "ground_truth", "sibling_or_ground_truth", "none"] = "sibling"
    """The first correct sibling; the right response of the data (OPSD, SDFT), or its answer if it has none; this if
    there is no sibling; or nothing. The ground truth does not change a rollout's case: all questions have one."""
    feedback: Literal["never", "without_solution", "always"] = "never"
    """Whether the prompt has what the reward function says of a wrong rollout: only if it shows no solution (SDPO's
    ``environment_feedback_only_without_solution``), or always."""

    @model_validator(mode="after")
    def _shows_something(self) -> TeacherContext:
        if self.solution == "none" and self.feedback == "never":
            raise ValueError("solution = none: there is nothing to show; use feedback = always")
        if self.shows_ground_truth and self.feedback == "without_solution":
            raise ValueError("feedback = without_solution: the ground truth is always a solution; use always or never")
        return self

    @property
    def shows_siblings(self) -> bool:
        return self.solution in ("sibling", "sibling_or_ground_truth")

    @property
    def shows_ground_truth(self) -> bool:
        return self.solution in ("ground_truth", "sibling_or_ground_truth")

    @property
    def text(self) -> str:
        """For tables."""
        shown = [] if self.solution == "none" else [self.solution.replace("_", " ")]
        feedback = {"never": [], "without_solution": ["feedback if there is no solution"], "always": ["feedback"]}
        return ", ".join(shown + feedback[self.feedback])


SIBLING_ONLY = TeacherContext()
"""The paper's."""

Teacher = Annotated[Ema | Frozen | Live | Snapshot | TrustRegion, Field(discriminator="kind")]
"""A method's self-teacher, by its kind."""
