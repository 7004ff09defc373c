"""The kinds of self-teacher: whose weights score the student's tokens; and what its prompt shows. No torch.

Every kind begins as the model that the run starts from. docs/method.md has formulas, costs and sources.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from srpo.ground.schema import Config


class Ema(Config):
    """The exponential moving average of the student's weights, at the rate ``teacher_update_rate`` (the paper's).

    Attributes:
        moves_after: each ``batch``, when all its mini-batches are done, as SDPO's code does, or each optimizer
            ``update``, as TRL does. With one update per batch they are the same.
    """

    has_weights: ClassVar[bool] = True

    kind: Literal["ema"] = "ema"
    moves_after: Literal["batch", "update"] = "batch"

    @property
    def text(self) -> str:
        """The kind and its settings, for tables."""
        return "EMA" if self.moves_after == "batch" else "EMA of each update"


class Frozen(Config):
    """The weights that the run starts from."""

    has_weights: ClassVar[bool] = True
    text: ClassVar[str] = "frozen"

    kind: Literal["frozen"]


class Live(Config):
    """The student's own weights; it has no others."""

    has_weights: ClassVar[bool] = False
    text: ClassVar[str] = "live"

    kind: Literal["live"]


class TeacherContext(Config):
    """What the teacher's prompt shows in addition to the question; without a solution it does not score the rollout."""

    gone: ClassVar[Mapping[str, Any]] = {"feedback": "never"}

    solution: Literal["sibling", "ground_truth", "sibling_or_ground_truth"] = "sibling"
    """The first correct sibling; the right response of the data (OPSD, SDFT), or its answer if it has none; or this if
    there is no sibling. The ground truth does not change a rollout's case: all questions have one."""

    @property
    def shows_siblings(self) -> bool:
        return self.solution in ("sibling", "sibling_or_ground_truth")

    @property
    def shows_ground_truth(self) -> bool:
        return self.solution in ("ground_truth", "sibling_or_ground_truth")


SIBLING_ONLY = TeacherContext()
"""The paper's."""

Teacher = Annotated[Ema | Frozen | Live, Field(discriminator="kind")]
"""A method's self-teacher, by its kind."""
