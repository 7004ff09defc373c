"""Sample routing (section 3.1, table 7): which branch each rollout takes, and what its teacher is shown."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Int64, Integer
from torch import Tensor

from srpo.algorithm.branches import BRANCHES, DROPPED, index_of
from srpo.algorithm.method import Routing
from srpo.algorithm.teacher import SIBLING_ONLY, TeacherContext

NO_SIBLING = -1


@dataclass(frozen=True)
class Routes:
    """The branch of each rollout of a batch, and what its teacher is shown.

    Attributes:
        correct: c_i.
        sibling: index of the correct sibling that the method chooses in the batch, or ``NO_SIBLING``.
        branch: index of the rollout's branch in ``BRANCHES``.
        remembered: whether a rollout without a correct sibling has a correct response of an earlier step instead.
        context: what the method's teacher may be shown.
    """

    correct: Bool[Tensor, " rollouts"]
    sibling: Int64[Tensor, " rollouts"]
    branch: Int64[Tensor, " rollouts"]
    remembered: Bool[Tensor, " rollouts"]
    context: TeacherContext

    def of(self, rows: Int64[Tensor, " part"]) -> "Routes":
        """The routes of these rollouts; siblings keep their places in the batch."""
        correct, sibling, branch = self.correct[rows], self.sibling[rows], self.branch[rows]
        return Routes(correct, sibling, branch, self.remembered[rows], self.context)

    def takes(self, name: str) -> Bool[Tensor, " rollouts"]:
        return self.branch == index_of(name)

    @property
    def names(self) -> list[str]:
        """The branch of each rollout."""
        known = [*BRANCHES]
        return [known[i] for i in self.branch.tolist()]

    @property
    def sibling_available(self) -> Bool[Tensor, " rollouts"]:
        """m_i: whether the rollout has a correct sibling."""
        return self.sibling != NO_SIBLING

    @property
    def uses_teacher(self) -> Bool[Tensor, " rollouts"]:
        """Which rollouts the teacher computes log-probs of."""
        uses_teacher = torch.tensor([branch.uses_teacher for branch in BRANCHES.values()])
        return uses_teacher[self.branch] & (self.has_solution | self._own_prompt)

    @property
    def has_solution(self) -> Bool[Tensor, " rollouts"]:
        """Whether there is a solution that the teacher may be shown."""
        if self.context.shows_ground_truth:
            return torch.ones_like(self.correct)
        return (self.sibling_available | self.remembered) & self.context.shows_siblings

    @property
    def shown_sibling(self) -> Int64[Tensor, " rollouts"]:
        """The sibling in the teacher's prompt, or ``NO_SIBLING``."""
        if not self.context.shows_siblings:
            return torch.full_like(self.sibling, NO_SIBLING)
        return self.sibling.masked_fill(self._own_prompt, NO_SIBLING)

    @property
    def shown_earlier(self) -> Bool[Tensor, " rollouts"]:
        """Whether the teacher's prompt has a correct response of an earlier step."""
        return self._shown & self.remembered

    @property
    def shown_truth(self) -> Bool[Tensor, " rollouts"]:
        """Whether the teacher's prompt has the right response of the data."""
        return self._shown & (self.shown_sibling == NO_SIBLING) & self.context.shows_ground_truth

    @property
    def _shown(self) -> Bool[Tensor, " rollouts"]:
        """Whether the teacher reads the rollout after more than the question."""
        return self.uses_teacher & ~self._own_prompt

    @property
    def _own_prompt(self) -> Bool[Tensor, " rollouts"]:
        return torch.tensor([branch.sibling == "not_shown" for branch in BRANCHES.values()])[self.branch]

    @property
    def distilled(self) -> Bool[Tensor, " rollouts"]:
        """Which rollouts take a branch with a distillation loss."""
        return has_loss(self.branch, "distillation")

    @property
    def dropped(self) -> Bool[Tensor, " rollouts"]:
        """Which rollouts are not trained on."""
        return self.takes(DROPPED.name)


def has_loss(
    branch: Integer[Tensor, " tokens"], loss: Literal["policy_gradient", "distillation"]
) -> Bool[Tensor, " tokens"]:
    """Whether tokens or rollouts enter a loss; each is given by the index of its branch in ``BRANCHES``."""
    enters = torch.tensor([other.loss == loss for other in BRANCHES.values()], device=branch.device)
    return enters[branch.long()]


def first_correct_siblings(
    correct: Bool[Tensor, " rollouts"], groups: Int64[Tensor, " rollouts"]
) -> Int64[Tensor, " rollouts"]:
    """Index of the first correct rollout of the same group other than the rollout itself, or ``NO_SIBLING``."""
    sibling = torch.full_like(groups, NO_SIBLING)
    for group in groups.unique().tolist():
        members = (groups == group).nonzero().flatten()
        solutions = members[correct[members]]
        if len(solutions):
            sibling[members] = solutions[0]
            sibling[solutions[0]] = solutions[1] if len(solutions) > 1 else NO_SIBLING
    return sibling


def route(
    correct: Bool[Tensor, " rollouts"],
    groups: Int64[Tensor, " rollouts"],
    table: Routing,
    earlier: Bool[Tensor, " rollouts"] | None = None,
    context: TeacherContext = SIBLING_ONLY,
) -> Routes:
    """Route every rollout of a batch by a method's table.

    Args:
        table: the method's branch for each of (correct?, correct sibling exists?).
        earlier: whether a correct response of an earlier step could be shown; it counts as a sibling if there is no
            other. None: of no rollout.
        context: what the method's teacher may be shown.
    """
    sibling = first_correct_siblings(correct, groups)
    alone = sibling == NO_SIBLING
    remembered = torch.zeros_like(alone) if earlier is None else alone & earlier
    case = 2 * (~correct).long() + (alone & ~remembered).long()
    branch = torch.tensor([index_of(name) for name in table.branches])[case]
    return Routes(correct, sibling, branch, remembered, context)
