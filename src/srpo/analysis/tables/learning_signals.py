"""The diagnostics as a table: step metrics early and late in training."""

from dataclasses import dataclass

import pandas as pd

from srpo.algorithm.branches import comparable_branches
from srpo.analysis.results.estimates import PERCENT, Estimate
from srpo.analysis.results.load import Results
from srpo.analysis.results.lookups import available, combine, estimate_columns
from srpo.analysis.results.matrix import is_paired, planned
from srpo.analysis.results.run_logs import RunLogs
from srpo.analysis.results.titles import method_title
from srpo.analysis.tables.grid import Grid, Row
from srpo.analysis.tables.table import Table, estimate_cell, intervals_note


@dataclass(frozen=True)
class _Diagnostic:
    """A step metric as the table shows it: ``factor`` times the metric, in ``unit``, with ``digits`` decimals.

    ``share``: whether a number in percent is a part of a whole, so that its interval stays within 0 and 100 %.
    """

    label: str
    metric: str
    unit: str = ""
    digits: int = 3
    share: bool = True

    @property
    def factor(self) -> float:
        return 100.0 if self.unit == "%" else 1.0

    @property
    def bounds(self) -> tuple[float, float] | None:
        return PERCENT if self.unit == "%" and self.share else None


_DIAGNOSTICS = {
    "Groups, % of questions": [
        _Diagnostic("all rollouts wrong", "routing/all_wrong_groups", "%", 1),
        _Diagnostic("all rollouts correct", "routing/all_correct_groups", "%", 1),
    ],
    "Gradient norm before clipping": [
        _Diagnostic("whole loss", "actor/grad_norm"),
        *(_Diagnostic(f"{branch.title} branch", f"grad_norm/{branch.name}") for branch in comparable_branches()),
    ],
    "Distillation loss by kind of token, %": [
        _Diagnostic("reasoning", "distillation_share/reasoning", "%", 1),
        _Diagnostic("first answer token", "distillation_share/answer_start", "%", 1),
        _Diagnostic("rest of the answer", "distillation_share/answer_rest", "%", 1),
        _Diagnostic("format", "distillation_share/format", "%", 1),
    ],
    "Distillation loss by position in the response, %": [
        _Diagnostic(f"{name} quarter", f"distillation_share/quarter_{i}", "%", 1)
        for i, name in enumerate(("first", "second", "third", "last"), 1)
    ],
    "Most likely first answer token is that of the shown sibling, % of distilled rollouts with another one": [
        _Diagnostic("student", "copying/student", "%", 1),
        _Diagnostic("self-teacher", "copying/teacher", "%", 1),
    ],
    "Dynamic weights": [
        _Diagnostic("10 % quantile", "weights/p10"),
        _Diagnostic("median", "weights/median"),
        _Diagnostic("90 % quantile", "weights/p90"),
        _Diagnostic("largest", "weights/max"),
        _Diagnostic("effective share of tokens, %", "weights/effective_fraction", "%", 1),
        _Diagnostic("weighted loss, % of unweighted", "weights/loss_scale", "%", 1, share=False),
    ],
    "Self-teacher": [_Diagnostic("entropy, nats", "teacher/entropy", "nats")],
    "Probability of the student's top K, %": [
        _Diagnostic("student", "student/top_k_mass", "%", 2),
        _Diagnostic("self-teacher", "teacher/top_k_mass", "%", 2),
    ],
    "Corrections": [
        _Diagnostic("clipped tokens of the policy gradient, %", "actor/clip_fraction", "%", 2),
        _Diagnostic("rollout correction, mean weight", "actor/rollout_is_weight", digits=4),
        _Diagnostic("truncated rollout corrections, % of tokens", "actor/rollout_is_truncated_fraction", "%", 2),
    ],
}
_PARTS = {"early": "first tenth", "late": "last tenth"}


def diagnostics_table(results: Results) -> Table:
    """Means of the diagnostics over the first and the last tenth of training, by model and method."""
    rows, grids = [], []
    for model, spec in results.experiment.models.items():
        methods, body = planned(results, model), []
        for heading, diagnostics in _DIAGNOSTICS.items():
            lines = []
            for diagnostic in diagnostics:
                found = {(m, when): _estimate(results, model, m, diagnostic, when) for m in methods for when in _PARTS}
                if not any(estimate for estimate, _ in found.values()):
                    continue
                cells = [estimate_cell(estimate, diagnostic.digits) for estimate, _ in found.values()]
                lines.append(Row(diagnostic.label, cells))
                for (method, when), (estimate, benchmarks) in found.items():
                    key = {"model": model, "method": method, "metric": diagnostic.metric, "unit": diagnostic.unit}
                    rows.append(key | {"part": when, "benchmarks": benchmarks} | estimate_columns("value", estimate))
            if lines:
                body += [Row(heading, heading=True), *lines]
        if body:
            heads = [(method_title(results, method), part) for method in methods for part in _PARTS.values()]
            grids.append(Grid("Diagnostic", heads, body, spec.title))
    frame = pd.DataFrame(rows, columns=["model", "method", "metric", "unit", "part", "benchmarks", *_VALUES])
    notes = [
        "Means over the first and the last tenth of the steps with a value, averaged over the benchmarks with a "
        "finished run. A dash: the metric does not apply to the method, or is not in its logs. Rows without any value "
        f"are left out. {intervals_note(frame['value_unit'])}"
    ]
    digits = dict.fromkeys(["value", "value_low", "value_high"], 4)
    return Table("diagnostics", "Diagnostics early and late in training", notes, frame, digits, grids)


_VALUES = list(estimate_columns("value", None))


def _estimate(
    results: Results, model: str, method: str, diagnostic: _Diagnostic, when: str
) -> tuple[Estimate | None, int]:
    """The mean over benchmarks, and the number of these benchmarks."""
    lookup = RunLogs.of(results).metric(model, diagnostic.metric)
    terms = {(method, when): diagnostic.factor}
    over = available(lookup, terms, planned(results, model)[method])
    return combine(lookup, terms, over, diagnostic.bounds, paired=is_paired(results, model)), len(over)
