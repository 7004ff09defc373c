"""Table 3: every method's settings, from its runs' ``run.yaml`` if there is one."""

import numpy as np
import pandas as pd

from srpo.algorithm.branches import BRANCHES
from srpo.algorithm.method import Method
from srpo.algorithm.teacher import Ema
from srpo.analysis.results import MISSING, Results
from srpo.analysis.tables.table import Bold, Table, View
from srpo.experiment.config import ModelledClock, Training

_TEACHER, _EARLY = ("SDPO loss", "Teacher"), ("Validation", "Within the first budget every")


def table(results: Results) -> Table:
    specs = {name: method_spec(results, name) for name in results.experiment.methods}
    title, notes = "Settings as run (the paper's table 3)", [f"{MISSING}: does not apply to the method."]
    if not specs:
        return Table(title, pd.DataFrame(columns=["group", "setting"]), notes)
    frame = pd.DataFrame({name: _settings(*spec) for name, spec in specs.items()})
    if frame.loc[[_TEACHER]].isin([MISSING, Ema().text]).all(axis=None):  # the EMA's rate says it
        frame = frame.drop(_TEACHER)
    if_used = frame.index.isin([_EARLY]) | frame.index.isin(["Other"], level=0)
    frame = frame[(frame != MISSING).any(axis=1) | ~if_used].rename_axis(["group", "setting"]).reset_index()
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
    read = {setting for branch in branches for setting in branch.settings}
    gradient = any(branch.loss == "policy_gradient" for branch in branches)
    clock = t.clock if isinstance(t.clock, ModelledClock) else None
    solution = m.teacher_context.solution

    def number(setting: str, in_force: bool = False) -> str:
        return f"{getattr(m, setting):g}" * (in_force or setting in read)

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
        ("Optimizer (AdamW)", "Learning rate"): np.format_float_scientific(m.learning_rate, min_digits=1, exp_digits=2),
        ("Optimizer (AdamW)", "Warm-up steps"): f"{t.warmup_steps}",
        ("Optimizer (AdamW)", "Weight decay"): f"{t.weight_decay:g}",
        ("Optimizer (AdamW)", "Gradient clip norm"): f"{t.clip_grad:g}",
        ("GRPO loss", "Clip low"): number("clip_ratio_low", gradient),
        ("GRPO loss", "Clip high"): number("clip_ratio_high", gradient),
        ("GRPO loss", "Dual clip"): number("clip_ratio_c", gradient),
        ("Either loss", "Rollout importance clip"): f"{m.rollout_is_threshold:g}",
        ("SDPO loss", "Top-K"): number("distillation_topk", m.needs_teacher),
        ("SDPO loss", "Divergence alpha (0.5: Jensen–Shannon)"): number("distillation_alpha"),
        ("SDPO loss", "Distillation importance clip"): number("distillation_is_clip", m.distils),
        _TEACHER: m.teacher.text * m.needs_teacher,
        ("SDPO loss", "Teacher EMA rate"): number("teacher_update_rate", m.needs_teacher and m.teacher.kind == "ema"),
        ("SDPO loss", "Entropy weighting beta"): number("entropy_beta", m.distils),
        ("SDPO loss", "Mixing lambda"): number("mix_lambda"),
        _EARLY: f"{t.validate_every_in_first_budget or ''}",
        ("Other", "RLSD: lambda"): number("rlsd_lambda"),
        ("Other", "RLSD: clip"): number("rlsd_clip"),
        ("Other", "Weight of the KL penalty"): number("kl_coef"),
        ("Other", "Weight by group"): m.group_weight * (m.group_weight != "none"),
        ("Other", "Weights keep the size of the loss"): "yes" * m.preserve_loss_scale,
        ("Other", "Steps of the first phase"): "" if m.first_phase_steps is None else f"{m.first_phase_steps}",
        ("Other", "Success buffer, responses per question"): f"{m.success_buffer or ''}",
        ("Other", "Teacher is shown"): solution.replace("_", " ") * (solution != "sibling"),
        ("Training clock", "Kind"): t.clock.kind,
        ("Training clock", "Decoding, FLOP/s"): f"{clock.decode_flops_per_second:g}" if clock else "",
        ("Training clock", "Dense passes, FLOP/s"): f"{clock.dense_flops_per_second:g}" if clock else "",
        ("Training clock", "Budgets, s"): " / ".join(f"{seconds:g}" for seconds in t.budget_seconds.values()),
        ("Training clock", "Steps at most"): "" if t.max_steps is None else f"{t.max_steps}",
    }
    return {setting: text or MISSING for setting, text in texts.items()}
