"""Table 3: every method's settings, from its runs' ``run.yaml`` if there is one."""

from collections.abc import Callable
from typing import Any

import pandas as pd

from srpo.algorithm.branches import BRANCHES, Branch
from srpo.algorithm.method import Method
from srpo.algorithm.teacher import SIBLING_ONLY
from srpo.analysis.results import MISSING, Results
from srpo.analysis.tables.table import Bold, Table, View
from srpo.experiment.config import ModelledClock, Training


def table(results: Results) -> Table:
    specs = {name: method_spec(results, name) for name in results.experiment.methods}
    settings = list(_SETTINGS)
    if any(method.teacher.kind != "ema" for method, _ in specs.values()):  # else the EMA's rate says it
        place = [setting for _, setting, _ in settings].index(_EMA_RATE)
        settings[place:place] = _TEACHERS
    last = max(place for place, (group, *_) in enumerate(settings) if group == "SDPO loss") + 1
    found = {setting: {read(*spec) for spec in specs.values()} for _, setting, read in _BY_USE}
    settings[last:last] = [each for each in _BY_USE if found[each[1]] - {MISSING}]
    frame = pd.DataFrame(
        [(group, setting, *(read(*spec) for spec in specs.values())) for group, setting, read in settings],
        columns=["group", "setting", *specs],
    )
    rows: list[tuple[str, list[str]]] = []
    for group, of_group in frame.groupby("group", sort=False):
        rows.append((Bold(group), []))
        rows += [(setting, texts) for _, setting, *texts in of_group.itertuples(index=False, name=None)]
    columns = [results.method_title(name) for name in specs]
    notes = [f"{MISSING}: does not apply to the method."]
    views = [View("Setting", columns, rows, numeric=False)] if specs else []
    return Table("Settings as run (the paper's table 3)", frame, notes, views=views)


def method_spec(results: Results, name: str) -> tuple[Method, Training]:
    """Method and training settings of the first run of ``name`` that has a ``run.yaml``, else the experiment's."""
    for run, spec in results.specs.items():
        if run.method == name and "method" in spec and "training" in spec:
            return Method.model_validate(spec["method"]), Training.model_validate(spec["training"])
    return results.experiment.methods[name], results.experiment.training


def _when(applies: Callable[[Branch], bool], read: Callable[[Method], Any]) -> Callable[[Method, Training], str]:
    """The setting for methods with a branch that it applies to, a dash for the others."""
    return lambda m, _: f"{read(m):g}" if any(applies(BRANCHES[name]) for name in m.branches) else MISSING


def _teacher(read: Callable[[Method], str], *kinds: str) -> Callable[[Method, Training], str]:
    """A setting of these kinds of teacher, of all if none is given."""
    return lambda m, _: read(m) if m.needs_teacher and (not kinds or m.teacher.kind in kinds) else MISSING


def _changed(name: str) -> Callable[[Method, Training], str]:
    """A setting of methods that do not have its default."""
    default = Method.model_fields[name].default
    return lambda m, _: MISSING if getattr(m, name) == default else f"{getattr(m, name)}"


def _context(method: Method, _: Training) -> str:
    return MISSING if method.teacher_context == SIBLING_ONLY else method.teacher_context.text


def _rate(read: Callable[[ModelledClock], float]) -> Callable[[Method, Training], str]:
    return lambda m, t: f"{read(t.clock):g}" if isinstance(t.clock, ModelledClock) else MISSING


def _policy_gradient(branch: Branch) -> bool:
    return branch.loss == "policy_gradient"


def _distillation(branch: Branch) -> bool:
    return branch.loss == "distillation"


_Setting = tuple[str, str, Callable[[Method, Training], str]]
_EMA_RATE = "Teacher EMA rate"
_TEACHERS: list[_Setting] = [
    ("SDPO loss", "Teacher", _teacher(lambda m: m.teacher.text)),
    ("SDPO loss", "Teacher, share of the student", _teacher(lambda m: f"{m.teacher_update_rate:g}", "trust_region")),
]
_BY_USE: list[_Setting] = [
    ("Validation", "Within the first budget every", lambda _, t: f"{t.validate_every_in_first_budget or MISSING}"),
    ("Other", "RLSD: lambda", _when(lambda b: "rlsd_lambda" in b.settings, lambda m: m.rlsd_lambda)),
    ("Other", "RLSD: clip", _when(lambda b: "rlsd_clip" in b.settings, lambda m: m.rlsd_clip)),
    ("Other", "RLSD: decay of lambda", _changed("rlsd_decay")),
    ("Other", "Weight by group", _changed("group_weight")),
    ("Other", "Steps of the first phase", _changed("first_phase_steps")),
    ("Other", "Success buffer, responses per question", _changed("success_buffer")),
    ("Other", "Teacher is shown", _context),
    ("Other", "Groups dropped", lambda m, _: (m.dropped_groups or MISSING).replace("_", " ")),
    (
        "Other",
        "Generation batches of a step, at most",
        lambda m, _: f"{m.generation_batches}" if m.filter_groups else MISSING,
    ),
]
"""Rows of tables of which some method uses the setting."""
_SETTINGS: list[_Setting] = [
    ("Batch", "Questions per batch", lambda m, t: f"{t.questions_per_batch}"),
    ("Batch", "Rollouts per question", lambda m, t: f"{t.rollouts_per_question}"),
    ("Batch", "Questions per mini-batch", lambda m, t: f"{m.mini_batch_questions}"),
    ("Lengths", "Prompt, tokens at most", lambda m, t: f"{t.max_prompt_length}"),
    ("Lengths", "Response, tokens at most", lambda m, t: f"{t.max_response_length}"),
    ("Lengths", "Teacher prompt, tokens at most", lambda m, t: f"{t.max_reprompt_len}"),
    ("Rollouts", "Temperature", lambda m, t: f"{t.temperature:g}"),
    ("Validation", "Every, steps", lambda m, t: f"{t.validate_every}"),
    ("Validation", "Rollouts per question", lambda m, t: f"{t.validation.rollouts}"),
    ("Validation", "Temperature", lambda m, t: f"{t.validation.temperature:g}"),
    ("Validation", "Top-p", lambda m, t: f"{t.validation.top_p:g}"),
    ("Optimizer (AdamW)", "Learning rate", lambda m, t: f"{m.learning_rate:.1e}"),
    ("Optimizer (AdamW)", "Warm-up steps", lambda m, t: f"{t.warmup_steps}"),
    ("Optimizer (AdamW)", "Weight decay", lambda m, t: f"{t.weight_decay:g}"),
    ("Optimizer (AdamW)", "Gradient clip norm", lambda m, t: f"{t.clip_grad:g}"),
    ("GRPO loss", "Clip low", _when(_policy_gradient, lambda m: m.clip_ratio_low)),
    ("GRPO loss", "Clip high", _when(_policy_gradient, lambda m: m.clip_ratio_high)),
    ("GRPO loss", "Dual clip", _when(_policy_gradient, lambda m: m.clip_ratio_c)),
    ("Either loss", "Rollout importance clip", lambda m, t: f"{m.rollout_is_threshold:g}"),
    ("SDPO loss", "Top-K", _when(lambda b: b.uses_teacher, lambda m: m.distillation_topk)),
    (
        "SDPO loss",
        "Divergence alpha (0.5: Jensen–Shannon)",
        _when(lambda b: b.name == "sdpo", lambda m: m.distillation_alpha),
    ),
    ("SDPO loss", "Distillation importance clip", _when(_distillation, lambda m: m.distillation_is_clip)),
    ("SDPO loss", _EMA_RATE, _teacher(lambda m: f"{m.teacher_update_rate:g}", "ema")),
    ("SDPO loss", "Entropy weighting beta", _when(_distillation, lambda m: m.entropy_beta)),
    ("SDPO loss", "Mixing lambda", _when(lambda b: b.name == "mix", lambda m: m.mix_lambda)),
    ("Training clock", "Kind", lambda m, t: t.clock.kind),
    ("Training clock", "Decoding, FLOP/s", _rate(lambda clock: clock.decode_flops_per_second)),
    ("Training clock", "Dense passes, FLOP/s", _rate(lambda clock: clock.dense_flops_per_second)),
    ("Training clock", "Budgets, s", lambda m, t: " / ".join(f"{seconds:g}" for seconds in t.budget_seconds.values())),
    ("Training clock", "Steps at most", lambda m, t: MISSING if t.max_steps is None else f"{t.max_steps}"),
]
