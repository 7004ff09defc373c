"""What the phases of a step pass on to each other and to the loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from srpo.algorithm.rollouts import Rollouts
from srpo.algorithm.routing import Routes
from srpo.policy.placement import Placement
from srpo.questions.splits import Question
from srpo.training.success_buffer import Success


@dataclass(frozen=True)
class Batch:
    """The batch of a step, from its routing on.

    Attributes:
        questions: all that the step has asked; those whose groups are dropped are the last.
        rollouts, routes: the rollouts and their branches.
        mini_batches: rollouts of each update, dropped ones left out.
        placement: the rank of each rollout.
        earlier: :func:`~srpo.training.success_buffer.earlier_successes`.
    """

    questions: list[Question]
    rollouts: Rollouts
    routes: Routes
    mini_batches: list[list[int]]
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
