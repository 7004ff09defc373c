"""Steps, validations and questions within each budget, the fewest and the most of a method's runs."""

import pandas as pd

from srpo.analysis.results import MISSING, RUN_KEY, Results, records
from srpo.analysis.tables.table import Bold, Table, View

COUNTS = {"steps": "Steps", "validations": "Validations", "questions_seen": "Questions seen"}


def table(results: Results) -> Table:
    frame, budgets = _counts(results), list(results.budget_seconds)
    rows = {(row["model"], row["method"], row["budget"]): row for row in records(frame)}
    body: list[tuple[str, list[str]]] = []
    for model, of_model in frame.groupby("model", sort=False):
        body.append((Bold(results.experiment.models[str(model)].title), []))
        for method in of_model["method"].unique():
            texts = [_range(rows.get((str(model), method, budget)), name) for name in COUNTS for budget in budgets]
            body.append((results.method_title(method), texts))
    heads = [(title, results.experiment.budget_title(budget)) for title in COUNTS.values() for budget in budgets]
    notes = [
        "The fewest and the most of a method's runs with a score at the budget. Budgets: "
        f"{results.budgets_listed}. A step or a validation counts if it has ended by then. One of these validations "
        "gives the score, nothing is interpolated; so no claim is tested on a budget with fewer than three."
    ]
    views = [View("Method", heads, body)] if body else []
    return Table("What each budget holds", frame, notes if body else [], views=views)


def _counts(results: Results) -> pd.DataFrame:
    rows = []
    batch = results.experiment.training.questions_per_batch
    for run in results.run_rows:
        for budget, seconds in results.budget_seconds.items():
            if run in results.step_logs and results.has_spent(run, budget):
                logs = (of.get(run, None) for of in (results.step_logs, results.validation_logs))
                steps, validations = (0 if log is None else int((log["clock"] <= seconds).sum()) for log in logs)
                counts = {"steps": steps, "validations": validations, "questions_seen": steps * batch}
                rows.append(dict(zip(RUN_KEY, run, strict=True)) | {"budget": budget} | counts)
    grouped = pd.DataFrame(rows, columns=[*RUN_KEY, "budget", *COUNTS]).groupby(
        ["model", "method", "budget"], sort=False
    )
    frame = grouped[[*COUNTS]].agg(["min", "max"])
    frame.columns = frame.columns.map("_".join)
    frame.insert(0, "runs", grouped.size())
    return results.in_order(frame.reset_index())


def _range(row: dict | None, name: str) -> str:
    if row is None:
        return MISSING
    low, high = row[f"{name}_min"], row[f"{name}_max"]
    return f"{low:,}" if low == high else f"{low:,}–{high:,}"
