"""A method as data: its routing table and its hyperparameters (paper, tables 3 and 7). No torch.

Names are those that SDPO's verl configuration and TRL's ``SDPOConfig`` share; docs/verl.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from srpo.algorithm.branches import BRANCHES, trained_branches
from srpo.algorithm.teacher import SIBLING_ONLY, Ema, Teacher, TeacherContext
from srpo.ground.mistakes import resolve_own
from srpo.ground.schema import AtLeastOne, Config, Count, Fraction, NotNegative, Positive, Rate, Title, merged


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
    def _trains(self) -> Routing:
        if not trained_branches(self.branches):
            raise ValueError("every branch is dropped: the method would train on nothing")
        return self

    @property
    def branches(self) -> tuple[str, ...]:
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

    gone: ClassVar[Mapping[str, Any]] = {
        "divergence_clip": None,
        "damping_max": 0.15,
        "damping_slope": 50.0,
        "sibling_choice": "first",
    }

    name: str
    title: Title
    module: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """A module that registers branches of the method (:func:`srpo.algorithm.branches.register`); None: it has all."""
    routing: Routing
    """Table 7."""
    second_routing: Routing | None = None
    """The table of the steps after ``first_phase_steps``; None: ``routing`` holds for all steps."""
    first_phase_steps: Annotated[int, Field(ge=0)] | None = None
    """How many steps have ``routing`` if there is a second table; 0: none."""
    learning_rate: Rate
    """Peak rate after the warm-up (table 3)."""
    mini_batch_questions: Count
    """Questions per update; a batch has ``questions_per_batch / mini_batch_questions`` updates (table 3)."""

    # the policy-gradient loss (section 2.1)
    clip_ratio_low: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """epsilon_low of the clipped ratio (verl's default; table 3 has none)."""
    clip_ratio_high: Positive = 0.28
    """epsilon_high of the clipped ratio (table 3)."""
    clip_ratio_c: Annotated[float, Field(gt=1)] = 3.0
    """Dual clip: the largest loss of a token with a negative advantage (verl's default)."""
    rollout_is_threshold: AtLeastOne = 2.0
    """Truncation of the importance ratio of trainer to rollout engine; both losses (table 3)."""

    # the distillation loss (section 2.2)
    distillation_topk: Count = 100
    """K: tokens of the student's distribution that are compared one by one; the rest is one tail (table 3)."""
    distillation_alpha: Fraction = 0.5
    """alpha of the generalised Jensen-Shannon divergence: 0 forward KL, 1 reverse KL, 0.5 Jensen-Shannon (table 3)."""
    distillation_is_clip: AtLeastOne = 2.0
    """Truncation of the ratio of student to student before the batch, in the distillation loss (docs/paper.md)."""

    # the self-teacher (section 2.2)
    teacher: Teacher = Ema()
    """Whose weights score the student's tokens."""
    teacher_update_rate: Fraction = 0.05
    """Share of the student in a step of the EMA (table 3)."""
    teacher_context: Annotated[TeacherContext, Field(exclude_if=lambda value: value == SIBLING_ONLY)] = SIBLING_ONLY
    """What the teacher's prompt shows in addition to the question."""
    success_buffer: Annotated[int, Field(ge=0)] = 0
    """How many correct responses of earlier steps are kept per question, for rollouts without a correct sibling."""

    # the weighting of distilled tokens (section 3.2)
    entropy_beta: NotNegative = 0.0
    """beta of the weight exp(-beta H) by the teacher's entropy; 0: no weighting."""
    group_weight: Literal["none", "spread"] = "none"
    """A factor of the weight by the rollout's group: ``spread``, sqrt(p (1 - p)) with p its share of correct ones."""
    preserve_loss_scale: bool = False
    """Scale the weights so that they leave the size of the distillation loss (a control; not in the paper)."""

    # branches outside SRPO
    mix_lambda: Fraction = 0.9
    """lambda of the advantage mix: the share of the group-relative advantage (section 4.3)."""
    kl_coef: NotNegative = 0.1
    """Coefficient of the anchored branch's KL penalty (a control; not in the paper)."""
    rlsd_lambda: Fraction = 0.5
    """Share of the teacher's weight in an advantage of RLSD; 0 is GRPO."""
    rlsd_clip: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """RLSD: how far the teacher's weight of a token may be from 1."""

    @model_validator(mode="before")
    @classmethod
    def _branches_are_registered(cls, raw: Any) -> Any:
        module = raw.get("module") if isinstance(raw, Mapping) else None
        if isinstance(module, str):
            try:
                resolve_own(module)
                for branch in BRANCHES.values():
                    branch.check(cls.model_fields)
            except ValueError as error:
                raise ValueError(f"module = {module}: {str(error).removeprefix(f'{module}: ')}") from error
        return raw

    @property
    def phases(self) -> tuple[Method, ...]:
        """The method of each phase that has steps, as a method without another phase; itself if it has one table."""
        if self.second_routing is None:
            return (self,)
        alone = {"second_routing": None, "first_phase_steps": None}
        later = self.model_copy(update=alone | {"routing": self.second_routing})
        return (self.model_copy(update=alone), later) if self.first_phase_steps else (later,)

    def at(self, step: int) -> Method:
        """The method of a step's phase, without another phase."""
        return self.phases[0 if self.first_phase_steps is None or step <= self.first_phase_steps else -1]

    @property
    def branches(self) -> tuple[str, ...]:
        return tuple(name for phase in self.phases for name in phase.routing.branches)

    @property
    def needs_teacher(self) -> bool:
        """Whether any rollout of any phase needs the self-teacher."""
        return any(phase.routing.needs_teacher for phase in self.phases)

    @property
    def shows_solutions(self) -> bool:
        """Whether the teacher is shown a solution in some case."""
        return any(BRANCHES[name].sibling in ("if_correct", "required") for name in self.branches)

    @property
    def distils(self) -> bool:
        """Whether any rollout of any phase enters a distillation loss."""
        return any(phase.routing.distils for phase in self.phases)

    @property
    def routes_samples(self) -> bool:
        """Whether the rollouts of one step may be trained on in several branches."""
        return any(len(trained_branches(phase.routing.branches)) > 1 for phase in self.phases)

    @property
    def weights_tokens(self) -> bool:
        """Whether the weights of distilled tokens differ."""
        return self.entropy_beta > 0 or self.group_weight != "none"

    @property
    def teacher_has_weights(self) -> bool:
        """Whether a run holds a second set of weights."""
        return self.needs_teacher and self.teacher.has_weights

    @model_validator(mode="after")
    def _branches_go_together(self) -> Method:
        if (self.second_routing is None) != (self.first_phase_steps is None):
            given = "second_routing" if self.first_phase_steps is None else "first_phase_steps"
            raise ValueError(f"{given} is given alone: second_routing and first_phase_steps belong together")
        for name in self.branches:
            for other in BRANCHES[name].excludes:
                if other in self.branches:
                    raise ValueError(f"{name} and {other} exclude each other in one method")
        return self

    @model_validator(mode="after")
    def _clips_are_no_bounds(self) -> Method:
        low, high = self.clip_ratio_low, self.clip_ratio_high
        if low > 0.5 and 1 < high < 2:
            what = f"clip_ratio_low = {low:g}, clip_ratio_high = {high:g}"
            raise ValueError(f"{what}: give distances from 1, {1 - low:.3g} and {high - 1:.3g}")
        return self

    @model_validator(mode="after")
    def _teacher_has_something_to_show(self) -> Method:
        context = self.teacher_context
        for table in filter(None, (self.routing, self.second_routing)):
            for case in ("correct_without_sibling", "wrong_without_sibling"):
                name = getattr(table, case)
                if BRANCHES[name].sibling == "required" and not context.shows_ground_truth:
                    others = ", ".join(name for name, branch in BRANCHES.items() if branch.sibling != "required")
                    raise ValueError(f"{case} = {name}: no sibling to show the teacher; use {others}")
        if context != SIBLING_ONLY and not self.shows_solutions:
            raise ValueError(
                f"teacher_context.solution = {context.solution}: no branch of the method shows its teacher a solution"
            )
        if self.success_buffer and context.solution != "sibling":
            raise ValueError(f"success_buffer = {self.success_buffer}: teacher_context.solution is {context.solution}")
        return self

    @model_validator(mode="after")
    def _settings_go_together(self) -> Method:
        if self.preserve_loss_scale and not self.weights_tokens:
            raise ValueError("preserve_loss_scale = true: entropy_beta = 0 makes all weights 1")
        return self

    @model_validator(mode="after")
    def _settings_are_used(self) -> Method:
        """Other keys of a whole loss belong to no branch: experiments set them alike for all methods."""
        for name, field in type(self).model_fields.items():
            if (value := getattr(self, name)) == field.default:
                continue
            readers = [branch.name for branch in BRANCHES.values() if name in branch.settings]
            what, how = f"{name} = {value}: no branch of the method", f"set it to {field.default}, which has no effect"
            if readers and not {*readers} & {*self.branches}:
                raise ValueError(f"{what} is {' or '.join(readers)}; {how}")
            if name in ("group_weight", "entropy_beta") and not self.distils:
                raise ValueError(f"{what} distils; {how}")
            if name in ("teacher_update_rate", "success_buffer") and not self.needs_teacher:
                raise ValueError(f"{what} asks a teacher; {how}")
        return self

    @model_validator(mode="after")
    def _teacher_is_used(self) -> Method:
        kind, default = self.teacher.kind, type(self).model_fields["teacher_update_rate"].default
        if not self.needs_teacher and kind != "ema":
            raise ValueError(f"teacher.kind = {kind}: no branch of the method asks a teacher")
        if kind != "ema" and self.teacher_update_rate != default:
            raise ValueError(f"teacher_update_rate = {self.teacher_update_rate:g}: only a teacher of kind ema has one")
        return self


def patched(content: dict[str, Any], read: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """A method's file with what it has from the method that it ``extends``.

    A branch's name as a table is four equal cases. A table may give only the cases that differ from the parent's.

    Args:
        read: the complete content of another method, by name.
    """
    own = {
        k: dict.fromkeys(Routing.model_fields, v) if k in _TABLES and isinstance(v, str) else v
        for k, v in content.items()
    }
    if (parent := own.pop("extends", None)) is None:
        return own
    return merged(read(str(parent)), own)


_TABLES = ("routing", "second_routing")
