"""The kinds of self-teacher: whose weights score the student's tokens. No torch.

Every kind begins as the model that the run starts from. docs/method.md has formulas, costs and sources.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from srpo.schema import Config, Count


class _Kind(Config):
    """A kind; without changes, one whose weights stay.

    Attributes:
        has_weights: whether it keeps its own weights, beside the student's.
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


Teacher = Annotated[Ema | Frozen | Live | Snapshot | TrustRegion, Field(discriminator="kind")]
"""A method's self-teacher, by its kind."""
