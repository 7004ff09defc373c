"""What a rollout's branch does: whether it needs the teacher, and which loss its tokens enter.

A method's routing table names branches (``configs/methods``); configuration, loss, metrics and report iterate over
:data:`BRANCHES`. Configuration reads this module, so it imports no torch: a branch names its function.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from srpo.ground.mistakes import resolve_own

Loss = Literal["policy_gradient", "distillation"]
Sibling = Literal["never", "if_correct", "required", "not_shown"]
Function = str | Callable[..., Any]
"""A function, or the name under which it is imported when it is first used: ``module:function``."""


@dataclass(frozen=True)
class Branch:
    """A branch of the routing.

    Attributes:
        name: in method files, in ``groups.jsonl`` and in metrics (``routing/<name>_fraction``, ``loss/<name>``).
        title: in the report.
        loss: which token loss its rollouts enter; None for rollouts that are not trained on.
        sibling: whether the teacher computes log-probs of its rollouts, and under which prompt: ``never``;
            ``if_correct``: shown a correct sibling, if there is one; ``required``: likewise, and a rollout without a
            correct sibling cannot take the branch; ``not_shown``: of all of them under the student's own prompt.
        advantage: of a policy-gradient branch; None for the rollout's group advantage as it is (section 2.1).
            ``f(method, advantage, student, teacher)``, all [tokens]: the group advantage and the log-probs of the
            sampled tokens under student (before the update) and teacher, the student's if there is no teacher.
            Returns each token's advantage, a constant of the gradient.
        divergence: of a distillation branch. ``f(method, student, teacher)``, both [tokens, K + 1]: log-probs of the
            student's top-K tokens and the tail. Returns each token's divergence; gradients flow into the student.
        excludes: branches that a method cannot use together with this one.
        settings: keys of a method that ``advantage`` or ``divergence`` reads and the branches without it do not. A
            method without such a branch has to leave them at their defaults.
    """

    name: str
    title: str
    loss: Loss | None
    sibling: Sibling = "never"
    advantage: Function | None = None
    divergence: Function | None = None
    excludes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for key, kinds in (("loss", Loss), ("sibling", Sibling)):
            if (given := getattr(self, key)) not in get_args(kinds) and (key, given) != ("loss", None):
                raise ValueError(f"branch {self.name}: {key} = {given!r}: give one of {', '.join(get_args(kinds))}")
        if self.loss == "distillation" and self.sibling != "required":
            raise ValueError(f"branch {self.name}: distillation needs sibling = required")

    def check(self, settings: Collection[str]) -> None:
        """Check that the keys of a method and the branches that a branch names exist: another would do nothing."""
        for key, known in (("settings", settings), ("excludes", BRANCHES)):
            for name in {*getattr(self, key)} - {*known}:
                raise ValueError(f"branch {self.name}: {key} = {name}: unknown")

    @property
    def uses_teacher(self) -> bool:
        """Whether the teacher computes log-probs of rollouts of this branch (see ``sibling``)."""
        return self.sibling != "never"

    @cached_property
    def advantage_function(self) -> Callable[..., Any]:
        return _imported(self.advantage)

    @cached_property
    def divergence_function(self) -> Callable[..., Any]:
        return _imported(self.divergence)


def _imported(function: Function | None) -> Callable[..., Any]:
    assert function is not None
    return resolve_own(function) if isinstance(function, str) else function


BRANCHES: dict[str, Branch] = {}
"""Every branch by name. Tensors hold a branch as its index here; ``dropped`` is first, so 0 means no loss."""


def register(branch: Branch) -> Branch:
    """Make a branch known under its name."""
    if BRANCHES.setdefault(branch.name, branch) is not branch:
        raise ValueError(f"branch {branch.name}: already registered")
    return branch


DROPPED = register(Branch("dropped", "dropped", loss=None))
GRPO = register(Branch("grpo", "GRPO", loss="policy_gradient"))
SDPO = register(
    Branch(
        "sdpo",
        "SDPO",
        loss="distillation",
        sibling="required",
        divergence="srpo.algorithm.divergence:jensen_shannon",
        settings=("distillation_alpha",),
    )
)
MIX = register(
    Branch(
        "mix",
        "mix",
        loss="policy_gradient",
        sibling="if_correct",
        advantage="srpo.algorithm.advantage:mixed_advantages",
        excludes=(SDPO.name,),
        settings=("mix_lambda",),
    )
)
ANCHORED = register(
    Branch(
        "anchored",
        "GRPO, anchored",
        loss="policy_gradient",
        sibling="not_shown",
        advantage="srpo.algorithm.advantage:anchored_advantages",
        settings=("kl_coef",),
    )
)
RLSD = register(
    Branch(
        "rlsd",
        "RLSD",
        loss="policy_gradient",
        sibling="if_correct",
        advantage="srpo.algorithm.advantage:reweighted_advantages",
        settings=("rlsd_lambda", "rlsd_clip"),
    )
)


def logged_branches(used: Iterable[str]) -> list[str]:
    """The branches whose share of the rollouts is logged by a method that uses these: any method may drop a rollout."""
    return list(dict.fromkeys([DROPPED.name, *used]))


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
