"""What the phases of a step pass on to each other and to the loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from srpo.algorithm.rollouts import Rollouts
from srpo.algorithm.routing import Routes
from srpo.policy.placement import Placement
from srpo.questions.splits import Question
from srpo.training.success_buffer import Success


class Schedule(Enum):
    """What a pass of the student computes before the teacher's pass; the update computes the rest."""

    OLD_FIRST = "log pi_old of all rollouts, and the top K of those that use the teacher"
    TOP_K_FIRST = "the top K of the rollouts that use the teacher: the teacher's whole distributions are not kept"
    NOTHING_FIRST = "nothing: the teacher's whole distributions are kept until the update selects the top K"


@dataclass(frozen=True)
class Batch:
    """The batch of a step, from its routing on.

    ``mini_batches`` are the rollouts of each update, dropped ones left out; ``earlier`` is of
    :func:`~srpo.training.success_buffer.earlier_successes`.
    """

    questions: list[Question]
    rollouts: Rollouts
    routes: Routes
    mini_batches: list[list[int]]
    schedule: Schedule
    placement: Placement
    earlier: dict[int, Success]

    @property
    def trained(self) -> list[int]:
        return [row for rows in self.mini_batches for row in rows]

    @cached_property
    def of_teacher(self) -> list[int]:
        """The rollouts that the teacher computes log-probs of."""
        return self.routes.uses_teacher.nonzero().flatten().tolist()

    def lengths(self, rows: Sequence[int]) -> dict[int, int]:
        return {row: self.rollouts.responses[row].numel() for row in rows}
