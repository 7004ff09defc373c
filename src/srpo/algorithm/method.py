"""A method as data: its routing table and its hyperparameters (paper, tables 3 and 7). No torch.

Names are those that SDPO's verl configuration and TRL's ``SDPOConfig`` share; docs/verl.md has the table.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from srpo.algorithm.branches import BRANCHES, trained_branches
from srpo.algorithm.teacher import Ema, Teacher
from srpo.schema import Config, Count, Fraction, Positive


def _registered(name: str) -> str:
    if name not in BRANCHES:
        raise ValueError(f"{name}: no branch; use {', '.join(BRANCHES)}")
    return name


BranchName = Annotated[str, AfterValidator(_registered)]
"""A key of :data:`srpo.algorithm.branches.BRANCHES`."""


class Routing(Config):
    """Which branch a rollout takes, by correctness and by whether a correct sibling exists (table 7)."""

    correct_with_sibling: BranchName
    correct_without_sibling: BranchName
    wrong_with_sibling: BranchName
    wrong_without_sibling: BranchName

    @model_validator(mode="after")
    def _branches_fit(self) -> Routing:
        for case in ("correct_without_sibling", "wrong_without_sibling"):
            if BRANCHES[getattr(self, case)].sibling == "required":
                others = ", ".join(name for name, branch in BRANCHES.items() if branch.sibling != "required")
                raise ValueError(f"{case} = {getattr(self, case)}: no sibling to show the teacher; use {others}")
        if not trained_branches(self.branches):
            raise ValueError("every branch is dropped: the method would train on nothing")
        for name in self.branches:
            for other in BRANCHES[name].excludes:
                if other in self.branches:
                    raise ValueError(f"{name} and {other} exclude each other in one method")
        return self

    @property
    def branches(self) -> tuple[str, ...]:
        """The branches of the four cases in declaration order."""
        return tuple(getattr(self, case) for case in type(self).model_fields)

    @property
    def needs_teacher(self) -> bool:
        """Whether any rollout needs the self-teacher."""
        return any(BRANCHES[name].uses_teacher for name in self.branches)

    @property
    def distils(self) -> bool:
        """Whether any rollout enters a distillation loss."""
        return any(BRANCHES[name].loss == "distillation" for name in self.branches)


class Method(Config):
    """A method: a routing table, a weighting and hyperparameters (tables 3 and 7)."""

    name: str
    title: str
    routing: Routing
    """Table 7."""
    learning_rate: Positive
    """Peak rate after the warm-up (table 3)."""
    mini_batch_questions: Count
    """Questions per update; a batch has ``questions_per_batch / mini_batch_questions`` updates (table 3)."""

    # the policy-gradient loss (section 2.1)
    clip_ratio_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """epsilon_low of the clipped ratio (table 3)."""
    clip_ratio_high: Positive = 0.28
    """epsilon_high of the clipped ratio (table 3)."""
    clip_ratio_c: Annotated[float, Field(gt=1)] = 3.0
    """Dual clip: the largest loss of a token with a negative advantage (verl's default)."""
    rollout_is_threshold: Positive = 2.0
    """Truncation of the importance ratio of trainer to rollout engine; both losses (table 3)."""

    # the distillation loss (section 2.2)
    distillation_topk: Count = 100
    """K: tokens of the student's distribution that are compared one by one; the rest is one tail (table 3)."""
    distillation_alpha: Fraction = 0.5
    """alpha of the generalised Jensen-Shannon divergence: 0 forward KL, 1 reverse KL, 0.5 Jensen-Shannon (table 3)."""
    distillation_is_clip: Positive = 2.0
    """Truncation of the importance ratio of the distillation loss (table 3)."""

    # the self-teacher (section 2.2)
    teacher: Teacher = Ema()
    """Whose weights score the student's tokens."""
    teacher_update_rate: Fraction = 0.05
    """Share of the student: in a step of the EMA (table 3), or in the mixture of the trust region."""

    # the weighting of distilled tokens (section 3.2)
    entropy_beta: Annotated[float, Field(ge=0)] = 0.0
    """beta of the weight exp(-beta H) by the teacher's entropy; 0: no weighting."""
    preserve_loss_scale: bool = False
    """Scale the weights so that they leave the size of the distillation loss (a control; not in the paper)."""

    # branches outside SRPO
    mix_lambda: Fraction = 0.9
    """lambda of the advantage mix: the share of the group-relative advantage (section 4.3)."""
    kl_coef: Annotated[float, Field(ge=0)] = 0.1
    """Coefficient of the anchored branch's KL penalty (a control; not in the paper)."""

    @property
    def teacher_passes(self) -> int:
        """Forward passes that score a response that uses the teacher; 0 without one."""
        return self.teacher.passes if self.routing.needs_teacher else 0

    @property
    def teacher_has_weights(self) -> bool:
        """Whether a run holds a second set of weights."""
        return self.routing.needs_teacher and self.teacher.has_weights

    @model_validator(mode="after")
    def _weights_differ(self) -> Method:
        if self.preserve_loss_scale and self.entropy_beta == 0:
            raise ValueError("preserve_loss_scale = true: entropy_beta = 0 makes all weights 1")
        return self

    @model_validator(mode="after")
    def _teacher_is_used(self) -> Method:
        kind, default = self.teacher.kind, type(self).model_fields["teacher_update_rate"].default
        if not self.routing.needs_teacher and kind != "ema":
            raise ValueError(f"teacher.kind = {kind}: no branch of the method asks a teacher")
        if not self.teacher.has_rate and self.teacher_update_rate != default:
            rate = f"teacher_update_rate = {self.teacher_update_rate:g}"
            raise ValueError(f"{rate}: a teacher of kind {kind} has none; ema and trust_region have one")
        return self
