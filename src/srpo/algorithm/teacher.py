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
        return {"ema": "EMA"}.get(self.kind, self.kind.replace("_", " "))

    def share_of_student(self, update: int, rate: float) -> float:
        """Share of the student in the teacher's weights after an optimizer update; 0 leaves them as they are.

        Args:
            update: the update's number, from 1.
            rate: the method's ``teacher_update_rate``.
        """
        return 0.0


class Ema(_Kind):
    """The exponential moving average of the student's weights, at the rate ``teacher_update_rate`` (the paper's)."""

    has_rate: ClassVar[bool] = True

    kind: Literal["ema"] = "ema"

    def share_of_student(self, update: int, rate: float) -> float:
        """The rate, after each update."""
        return rate


class Frozen(_Kind):
    """The weights that the run starts from."""

    kind: Literal["frozen"]


class Live(_Kind):
    """The student's own weights."""

    has_weights: ClassVar[bool] = False

    kind: Literal["live"]


class Snapshot(_Kind):
    """A copy of the student's weights, made anew every ``every`` optimizer updates."""

    kind: Literal["snapshot"]
    every: Count = 10

    @property
    def text(self) -> str:
        """The kind and its settings, for tables."""
        return f"snapshot every {self.every}"

    def share_of_student(self, update: int, rate: float) -> float:
        """All of the student after every ``every``-th update."""
        return 0.0 if update % self.every else 1.0


class TrustRegion(_Kind):
    """``log q = (1 - a) log q_frozen + a log q_live - log Z`` over the vocabulary, ``a = teacher_update_rate``."""

    has_rate: ClassVar[bool] = True
    passes: ClassVar[int] = 2

    kind: Literal["trust_region"]


Teacher = Annotated[Ema | Frozen | Live | Snapshot | TrustRegion, Field(discriminator="kind")]
"""A method's self-teacher, by its kind."""
