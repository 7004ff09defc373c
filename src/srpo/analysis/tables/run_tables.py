"""What each budget holds, which runs collapsed, and what the watch said before."""

import pandas as pd

from srpo.analysis.collapse import CLEAR, DROP, collapse_frame
from srpo.analysis.results import AVERAGE, MISSING, RUN_KEY, Results
from srpo.analysis.statistics.cross_fit import WINDOW
from srpo.analysis.tables.grid import Cell, Grid, Row, interval
from srpo.analysis.tables.table import Table
from srpo.ground.text import plural
from srpo.training.watch import RULES, reference_steps

COUNTS = {"steps": "Steps", "validations": "Validations", "questions_seen": "Questions seen"}


def budgets_table(results: Results) -> Table:
    """Steps, validations and questions within each budget, the fewest and the most of a method's runs."""
    frame = _counts(results)
    budgets = list(results.budget_seconds)
    records = frame.set_index(["model", "method", "budget"]).to_dict("index")
    body = []
    for model, of_model in frame.groupby("model", sort=False):
        body.append(Row(results.experiment.models[str(model)].title, heading=True))
        for method in of_model["method"].unique():
            found = [records.get((model, method, budget)) for budget in budgets]
            cells = [Cell(_range(row, name)) for name in COUNTS for row in found]
            body.append(Row(results.method_title(method), cells))
    heads = [(title, results.experiment.budget_title(budget)) for title in COUNTS.values() for budget in budgets]
    notes = [
        f"The fewest and the most of a method's runs that have reached the budget. Budgets: {results.budgets_listed}. "
        "A step or a validation counts if it has ended by then. One of these validations "
        "gives the score, nothing is interpolated; so no claim is tested on a budget with fewer than three."
    ]
    grids = [Grid("Method", heads, body)] if body else []
    return Table("budgets", "What each budget holds", notes if body else [], frame, {}, grids)


def _counts(results: Results) -> pd.DataFrame:
    rows = []
    batch = results.experiment.training.questions_per_batch
    for run in results.run_rows:
        for budget, seconds in results.budget_seconds.items():
            if run in results.step_logs and results.reached(run, seconds):
                steps, validations = (
                    int((log[run]["clock"] <= seconds).sum()) if run in log else 0
                    for log in (results.step_logs, results.validation_logs)
                )
                counts = {"steps": steps, "validations": validations, "questions_seen": steps * batch}
                rows.append(dict(zip(RUN_KEY, run, strict=True)) | {"budget": budget} | counts)
    by_run = pd.DataFrame(rows, columns=[*RUN_KEY, "budget", *COUNTS])
    grouped = by_run.groupby(["model", "method", "budget"], sort=False)
    frame = grouped[[*COUNTS]].agg(["min", "max"])
    frame.columns = frame.columns.map("_".join)
    frame.insert(0, "runs", grouped.size())
    return results.in_order(frame.reset_index())


def _range(row: dict | None, name: str) -> str:
    if row is None:
        return MISSING
    low, high = row[f"{name}_min"], row[f"{name}_max"]
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"


def collapses_table(results: Results) -> Table:
    """Runs that ended below the untrained model or far below their best, by benchmark."""
    frame = results.in_order(collapse_frame(results))
    shown = [b for b in (AVERAGE, *results.experiment.benchmarks) if b in set(frame["benchmark"])]
    records = frame.set_index(["model", "method", "benchmark"]).to_dict("index")
    body = []
    for model, of_model in frame.groupby("model", sort=False):
        body.append(Row(results.experiment.models[str(model)].title, heading=True))
        for method in of_model["method"].unique():
            found = [records.get((model, method, benchmark)) for benchmark in shown]
            body.append(Row(results.method_title(method), [_share(row) for row in found]))
    heads = [("", "All benchmarks" if b == AVERAGE else results.benchmark_title(b)) for b in shown]
    notes = [
        f"Finished runs whose last {WINDOW} validations lie below the untrained model, or more than {DROP:g} points "
        f"below their best {WINDOW} in a row. One half of the questions selects the best, the other half measures it. "
        f"Clear: by more than {CLEAR:g} standard errors over the test questions; noise alone makes some of the others. "
        "In brackets the exact 95 % interval of the share in percent (Clopper and Pearson); runs of one base model "
        "count as many as they are alike, at least as one."
    ]
    digits = dict.fromkeys(["percent", "percent_low", "percent_high"], 1)
    grids = [Grid("Method", heads, body)] if body else []
    return Table("collapses", "Runs that collapsed", notes if body else [], frame, digits, grids)


def _share(row: dict | None) -> Cell:
    if row is None:
        return Cell(MISSING)
    ends = interval(row["percent_low"], row["percent_high"], digits=0)
    clear = f", {row['clear']} clear" if row["clear"] < row["collapsed"] else ""
    return Cell(f"{row['collapsed']} of {row['runs']}{clear}", interval=ends)


def watch_table(results: Results) -> Table:
    """How many runs of each method gave an alarm or a warning, by rule; every signal is in the CSV."""
    counted = pd.DataFrame([run for run in results.counted if run in results.step_logs], columns=RUN_KEY)
    frame = results.in_order(results.signals.merge(counted, on=RUN_KEY))
    columns = [*RUN_KEY, "step", "clock", "rule", "level", "value", "reference"]
    grids = []
    for model, spec in results.experiment.models.items():
        runs = counted[counted["model"] == model].groupby("method").size()
        methods = [method for method in results.plans[model] if method in runs.index]
        if not methods:
            continue
        here = frame[frame["model"] == model]
        body = [Row(rule.name, _signal_cells(here[here["rule"] == rule.name], methods)) for rule in RULES]
        body.append(Row("any rule", _signal_cells(here, methods)))
        heads = [
            (f"{results.method_title(method)}, {plural(runs[method], 'run')}", level)
            for method in methods
            for level in ("alarm", "only a warning")
        ]
        grids.append(Grid("Rule", heads, body, spec.title))
    early = reference_steps(results.experiment.training.warmup_steps)
    notes = [
        "In how many runs each rule gave an alarm, or only a warning (docs/collapse.md has the rules). Rules on steps "
        f"compare a run with its own steps {early.start} to {early.stop - 1}; a shorter run cannot have their signals. "
        "A signal is no verdict: another table says which runs collapsed."
    ]
    stopped = results.runs[results.runs["stopped_by"] == "alarm"]
    if len(stopped):
        notes.append(f"{len(stopped)} of the runs ended at their first alarm (training.stop_on).")
    digits = {"step": 0, "clock": 2, "value": 4, "reference": 4}
    return Table("watch", "Alarms and warnings during training", notes if grids else [], frame[columns], digits, grids)


def _signal_cells(signals: pd.DataFrame, methods: list[str]) -> list[Cell]:
    """For each method the number of runs with an alarm, and of those with a warning only; a dash for none."""
    worst = signals.groupby(RUN_KEY)["level"].min()  # alarm, or else warn
    runs = worst.groupby("method").value_counts()
    counts = [runs.get((method, level), MISSING) for method in methods for level in ("alarm", "warn")]
    return [Cell(str(count)) for count in counts]
