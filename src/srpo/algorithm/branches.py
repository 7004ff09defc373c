"""What a rollout's branch does: whether the teacher scores it, and which loss its tokens enter.

A method's routing table names branches (``configs/methods``); configuration, loss, metrics and report iterate over
:data:`BRANCHES`. Configuration reads this module, so it imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor

    from srpo.algorithm.settings import Settings


def group_advantage(settings: Settings, advantage: Tensor, student: Tensor, teacher: Tensor) -> Tensor:
    """The rollout's group advantage for every token (section 2.1)."""
    return advantage.expand(len(student))


def mixed_advantage(settings: Settings, advantage: Tensor, student: Tensor, teacher: Tensor) -> Tensor:
    """The token-level mix of group advantage and SDPO's (section 4.3)."""
    from srpo.algorithm.advantage import mixed_advantages

    return mixed_advantages(advantage.expand(len(student)), teacher, student, settings.mix_lambda)


def anchored_advantage(settings: Settings, advantage: Tensor, student: Tensor, teacher: Tensor) -> Tensor:
    """The group advantage minus a per-token KL penalty (a control; not in the paper)."""
    from srpo.algorithm.advantage import anchored_advantages

    return anchored_advantages(advantage.expand(len(student)), teacher, student, settings.kl_coef)


def jensen_shannon(settings: Settings, student: Tensor, teacher: Tensor) -> Tensor:
    """The generalised Jensen-Shannon divergence at the method's ``divergence_alpha`` (section 2.2)."""
    from srpo.algorithm.divergence import generalised_jsd

    return generalised_jsd(student, teacher, settings.divergence_alpha)


def no_divergence(settings: Settings, student: Tensor, teacher: Tensor) -> Tensor:
    """The divergence of a branch without distillation."""
    raise NotImplementedError("a branch without distillation has no divergence")


@dataclass(frozen=True)
class Branch:
    """A branch of the routing.

    Attributes:
        name: in method files, in ``groups.jsonl`` and in metrics (``routing/<name>_fraction``, ``loss/<name>``).
        title: in the report.
        loss: which token loss its rollouts enter; None for rollouts that are not trained on.
        sibling: whether the teacher, shown a correct sibling, scores its rollouts: ``never``; ``if_correct``, if there
            is a correct sibling; ``required``: a rollout without a correct sibling cannot take the branch;
            ``not_shown``: the teacher scores all of them under the student's own prompt, without a sibling.
        advantage: of a policy-gradient branch, [response] from the settings, the rollout's group advantage [], and
            log-probs of the sampled tokens under student (before the update) and teacher [response]; the teacher's
            are the student's where there is no correct sibling.
        divergence: of a distillation branch, [tokens] from the settings and log-probs [tokens, K + 1] of the top-K
            tokens and the tail under student and teacher. Gradients flow into the student's.
        excludes: branches that a method cannot use together with this one.
    """

    name: str
    title: str
    loss: Literal["policy_gradient", "distillation"] | None
    sibling: Literal["never", "if_correct", "required", "not_shown"] = "never"
    advantage: Callable[[Settings, Tensor, Tensor, Tensor], Tensor] = group_advantage
    divergence: Callable[[Settings, Tensor, Tensor], Tensor] = no_divergence
    excludes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.loss == "distillation" and (self.divergence is no_divergence or self.sibling != "required"):
            raise ValueError(f"branch {self.name}: distillation needs a divergence and sibling = required")

    @property
    def uses_teacher(self) -> bool:
        """Whether the teacher scores rollouts of this branch (see ``sibling``)."""
        return self.sibling != "never"


DROPPED = Branch("dropped", "dropped", loss=None)
GRPO = Branch("grpo", "GRPO", loss="policy_gradient")
SDPO = Branch("sdpo", "SDPO", loss="distillation", sibling="required", divergence=jensen_shannon)
MIX = Branch(
    "mix", "mix", loss="policy_gradient", sibling="if_correct", advantage=mixed_advantage, excludes=(SDPO.name,)
)
ANCHORED = Branch(
    "anchored", "GRPO, anchored", loss="policy_gradient", sibling="not_shown", advantage=anchored_advantage
)

BRANCHES: dict[str, Branch] = {}
"""Every branch by name. Tensors hold a branch as its index here; ``dropped`` is first, so 0 means no loss."""


def register(branch: Branch) -> Branch:
    """Make a branch known under its name.

    Raises:
        ValueError: if another branch has this name.
    """
    if BRANCHES.setdefault(branch.name, branch) is not branch:
        raise ValueError(f"branch {branch.name}: already registered")
    return branch


for _branch in (DROPPED, GRPO, SDPO, MIX, ANCHORED):
    register(_branch)


def comparable_branches() -> list[Branch]:
    """Branches with a loss that a method may combine, for the report's figures and tables."""
    return [branch for branch in BRANCHES.values() if branch.loss is not None and not branch.excludes]


def index_of(name: str) -> int:
    """A branch's index, which represents it in tensors."""
    return [*BRANCHES].index(name)


def trained_branches(names: Iterable[str]) -> list[Branch]:
    """The branches among ``names`` that have a loss, each once, in the registry's order."""
    chosen = set(names)
    return [branch for name, branch in BRANCHES.items() if name in chosen and branch.loss is not None]
