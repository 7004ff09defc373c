"""In how many runs of each method each rule gave an alarm or a warning; every signal is in the CSV."""

import pandas as pd

from srpo.analysis.results import MISSING, RUN_KEY, Results
from srpo.analysis.tables.table import Table, View
from srpo.ground.text import plural
from srpo.training.watch import RULES, reference_steps


def table(results: Results) -> Table:
    counted = pd.DataFrame([run for run in results.counted if run in results.step_logs], columns=RUN_KEY)
    frame = results.in_order(results.signals.merge(counted, on=RUN_KEY))
    columns = [*RUN_KEY, "step", "clock", "rule", "level", "value", "reference"]
    views = []
    for model, spec in results.experiment.models.items():
        runs = counted[counted["model"] == model].groupby("method").size()
        methods = [method for method in results.plans[model] if method in runs.index]
        if not methods:
            continue
        here = frame[frame["model"] == model]
        body = [(rule.name, _counts(here[here["rule"] == rule.name], methods)) for rule in RULES]
        body.append(("any rule", _counts(here, methods)))
        heads = [
            (f"{results.method_title(method)}, {plural(runs[method], 'run')}", level)
            for method in methods
            for level in ("alarm", "only a warning")
        ]
        views.append(View("Rule", heads, body, spec.title))
    early = reference_steps(results.experiment.training.warmup_steps)
    notes = [
        "In how many runs each rule gave an alarm, or only a warning (training/watch.py has the rules). Rules on steps "
        f"compare a run with its own steps {early.start} to {early.stop - 1}; a shorter run cannot have their signals. "
        "A signal is no verdict: another table says which runs collapsed."
    ]
    if stopped := (results.runs["stopped_by"] == "alarm").sum():
        notes.append(f"{stopped} of the runs ended at their first alarm (training.stop_on).")
    digits = {"step": 0, "clock": 2, "value": 4, "reference": 4}
    return Table("Alarms and warnings during training", frame[columns], notes if views else [], digits, views)


def _counts(signals: pd.DataFrame, methods: list[str]) -> list[str]:
    """For each method the number of runs with an alarm, and of those with a warning only; a dash for none."""
    worst = signals.groupby(RUN_KEY)["level"].min()  # alarm, or else warn
    runs = worst.groupby("method").value_counts()
    return [str(runs.get((method, level), MISSING)) for method in methods for level in ("alarm", "warn")]
