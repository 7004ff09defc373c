"""Table 3: every method's settings, from its runs' ``run.yaml`` if there is one."""

import pandas as pd

from srpo.algorithm.branches import BRANCHES
from srpo.algorithm.method import Method
from srpo.analysis.results import MISSING, Results
from srpo.analysis.tables.table import Bold, Table, View
from srpo.experiment.config import ModelledClock, Training


def table(results: Results) -> Table:
    specs = {name: method_spec(results, name) for name in results.experiment.methods}
    title, notes = "Settings as run (the paper's table 3)", [f"{MISSING}: does not apply to the method."]
    if not specs:
        return Table(title, pd.DataFrame(columns=["group", "setting"]), notes)
    frame = pd.DataFrame({name: _settings(*spec) for name, spec in specs.items()})
    used = (frame != MISSING).any(axis=1) | ~frame.index.isin(_IF_USED)
    if all(method.teacher.kind == "ema" for method, _ in specs.values()):  # the EMA's rate says it
        used &= ~frame.index.isin(_OF_OTHER_TEACHERS)
    frame = frame[used].rename_axis(["group", "setting"]).reset_index()
    rows: list[tuple[str, list[str]]] = []
    for group, of_group in frame.groupby("group", sort=False):
        rows.append((Bold(group), []))
        rows += [(setting, texts) for _, setting, *texts in of_group.itertuples(index=False, name=None)]
    columns = [results.method_title(name) for name in specs]
    return Table(title, frame, notes, views=[View("Setting", columns, rows, numeric=False)])


def method_spec(results: Results, name: str) -> tuple[Method, Training]:
    """Method and training settings of the first run of ``name`` that has a ``run.yaml``, else the experiment's."""
    for run, spec in results.specs.items():
        if run.method == name and "method" in spec and "training" in spec:
            return Method.model_validate(spec["method"]), Training.model_validate(spec["training"])
    return results.experiment.methods[name], results.experiment.training


def _settings(m: Method, t: Training) -> dict[tuple[str, str], str]:
    """The settings of a method as texts, by group and name; a dash for one that does not apply."""
    branches = [BRANCHES[name] for name in m.branches]
    names, losses = {branch.name for branch in branches}, {branch.loss for branch in branches}
    used = {setting for branch in branches for setting in branch.settings}
    gradient, distils, teacher = "policy_gradient" in losses, "distillation" in losses, m.needs_teacher
    clock = t.clock if isinstance(t.clock, ModelledClock) else None
    changed = {name for name in _DEFAULTS if getattr(m, name) != Method.model_fields[name].default}
    shown = m.teacher_context.solution
    texts = {
        ("Batch", "Questions per batch"): f"{t.questions_per_batch}",
        ("Batch", "Rollouts per question"): f"{t.rollouts_per_question}",
        ("Batch", "Questions per mini-batch"): f"{m.mini_batch_questions}",
        ("Lengths", "Prompt, tokens at most"): f"{t.max_prompt_length}",
        ("Lengths", "Response, tokens at most"): f"{t.max_response_length}",
        ("Lengths", "Teacher prompt, tokens at most"): f"{t.max_reprompt_len}",
        ("Rollouts", "Temperature"): f"{t.temperature:g}",
        ("Validation", "Every, steps"): f"{t.validate_every}",
        ("Validation", "Rollouts per question"): f"{t.validation.rollouts}",
        ("Validation", "Temperature"): f"{t.validation.temperature:g}",
        ("Validation", "Top-p"): f"{t.validation.top_p:g}",
        ("Optimizer (AdamW)", "Learning rate"): f"{m.learning_rate:.1e}",
        ("Optimizer (AdamW)", "Warm-up steps"): f"{t.warmup_steps}",
        ("Optimizer (AdamW)", "Weight decay"): f"{t.weight_decay:g}",
        ("Optimizer (AdamW)", "Gradient clip norm"): f"{t.clip_grad:g}",
        ("GRPO loss", "Clip low"): f"{m.clip_ratio_low:g}" * gradient,
        ("GRPO loss", "Clip high"): f"{m.clip_ratio_high:g}" * gradient,
        ("GRPO loss", "Dual clip"): f"{m.clip_ratio_c:g}" * gradient,
        ("Either loss", "Rollout importance clip"): f"{m.rollout_is_threshold:g}",
        ("SDPO loss", "Top-K"): f"{m.distillation_topk:g}" * any(branch.uses_teacher for branch in branches),
        ("SDPO loss", "Divergence alpha (0.5: Jensen–Shannon)"): f"{m.distillation_alpha:g}" * ("sdpo" in names),
        ("SDPO loss", "Distillation importance clip"): f"{m.distillation_is_clip:g}" * distils,
        ("SDPO loss", "Teacher"): m.teacher.text * teacher,
        ("SDPO loss", "Teacher EMA rate"): f"{m.teacher_update_rate:g}" * (teacher and m.teacher.kind == "ema"),
        ("SDPO loss", "Entropy weighting beta"): f"{m.entropy_beta:g}" * distils,
        ("SDPO loss", "Mixing lambda"): f"{m.mix_lambda:g}" * ("mix" in names),
        ("Validation", "Within the first budget every"): f"{t.validate_every_in_first_budget or ''}",
        ("Other", "RLSD: lambda"): f"{m.rlsd_lambda:g}" * ("rlsd_lambda" in used),
        ("Other", "RLSD: clip"): f"{m.rlsd_clip:g}" * ("rlsd_clip" in used),
        ("Other", "Weight by group"): f"{m.group_weight}" * ("group_weight" in changed),
        ("Other", "Steps of the first phase"): f"{m.first_phase_steps}" * ("first_phase_steps" in changed),
        ("Other", "Success buffer, responses per question"): f"{m.success_buffer}" * ("success_buffer" in changed),
        ("Other", "Teacher is shown"): shown.replace("_", " ") * (shown != "sibling"),
        ("Training clock", "Kind"): t.clock.kind,
        ("Training clock", "Decoding, FLOP/s"): f"{clock.decode_flops_per_second:g}" if clock else "",
        ("Training clock", "Dense passes, FLOP/s"): f"{clock.dense_flops_per_second:g}" if clock else "",
        ("Training clock", "Budgets, s"): " / ".join(f"{seconds:g}" for seconds in t.budget_seconds.values()),
        ("Training clock", "Steps at most"): "" if t.max_steps is None else f"{t.max_steps}",
    }
    return {setting: text or MISSING for setting, text in texts.items()}


_DEFAULTS = ("group_weight", "first_phase_steps", "success_buffer")
"""Settings that are shown of methods that change them."""
_OF_OTHER_TEACHERS = [("SDPO loss", "Teacher"), ("SDPO loss", "Teacher, share of the student")]
_IF_USED = [
    ("Validation", "Within the first budget every"),
    *(("Other", name) for name in ("RLSD: lambda", "RLSD: clip", "Weight by group")),
    *(("Other", name) for name in ("Steps of the first phase", "Success buffer, responses per question")),
    ("Other", "Teacher is shown"),
]
"""Rows of tables of which some method uses the setting."""
