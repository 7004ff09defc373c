"""Sample routing (section 3.1, table 7): which branch each rollout takes, and who teaches it."""

from dataclasses import dataclass

import torch
from torch import Tensor

from srpo.config import Routing

NO_TEACHER = -1


@dataclass(frozen=True)
class Routes:
    """One entry per rollout; the four branch masks partition the batch.

    Attributes:
        correct: [rollouts] bool, c_i.
        teacher: [rollouts] int64, index of the first correct sibling in the batch, or ``NO_TEACHER``.
        grpo, sdpo, mix, dropped: [rollouts] bool.
    """

    correct: Tensor
    teacher: Tensor
    grpo: Tensor
    sdpo: Tensor
    mix: Tensor
    dropped: Tensor

    @property
    def teacher_available(self) -> Tensor:
        """[rollouts] bool, m_i."""
        return self.teacher != NO_TEACHER

    @property
    def taught(self) -> Tensor:
        """[rollouts] bool: rollouts that the self-teacher has to score."""
        return (self.sdpo | self.mix) & self.teacher_available


def first_correct_siblings(correct: Tensor, groups: Tensor) -> Tensor:
    """[rollouts] index of the first correct rollout of the same group other than the rollout itself."""
    teacher = torch.full_like(groups, NO_TEACHER)
    for group in groups.unique().tolist():
        members = (groups == group).nonzero().flatten()
        solutions = members[correct[members]]
        if len(solutions):
            teacher[members] = solutions[0]
            teacher[solutions[0]] = solutions[1] if len(solutions) > 1 else NO_TEACHER
    return teacher


def route(rewards: Tensor, groups: Tensor, table: Routing) -> Routes:
    """Route every rollout of a batch by a method's table.

    Args:
        rewards: [rollouts] float, 1 for correct and 0 for wrong.
        groups: [rollouts] int64, an id for each question.
        table: the method's branch for each of (correct?, correct sibling exists?).
    """
    correct = rewards == 1
    teacher = first_correct_siblings(correct, groups)
    available = teacher != NO_TEACHER
    cells = (correct & available, correct & ~available, ~correct & available, ~correct & ~available)
    masks = {
        branch: torch.stack([cell for cell, b in zip(cells, table.branches, strict=True) if b == branch]).any(0)
        if branch in table.branches
        else torch.zeros_like(correct)
        for branch in ("grpo", "sdpo", "mix", "none")
    }
    return Routes(correct, teacher, masks["grpo"], masks["sdpo"], masks["mix"], masks["none"])
