"""The search of hyperparameters: every trial with its score, what was chosen, and what the search cost."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from srpo.analysis.results import MISSING, Results
from srpo.analysis.tables.table import Table, View, cells
from srpo.experiment.config import Tuned
from srpo.ground.text import joined, plural


def table(results: Results) -> Table:
    """A row a point of the grid, a column a method; the chosen one is bold."""
    tuned, title = results.experiment.tuned, "Search of hyperparameters"
    if tuned is None:
        return Table(title, pd.DataFrame())
    methods = results.experiment.methods
    chosen = {method: _setting(values) for method, values in tuned.methods.items()}
    rows = [(t.method, _setting(t.values), t.score, chosen.get(t.method) == _setting(t.values)) for t in tuned.trials]
    frame = pd.DataFrame(rows, columns=["method", "setting", "score", "chosen"])
    texts, settings = cells(frame, ["setting", "method"], "score", best="chosen"), dict.fromkeys(frame["setting"])
    body = [(setting, [texts.get((setting, method), MISSING) for method in chosen]) for setting in settings]
    views = [View("Setting", [_title(methods, method) for method in chosen], body)] if body else []
    others = [m.title for name, m in methods.items() if name not in {**tuned.methods, **results.experiment.variants}]
    notes = [_what(results, tuned)] + [f"Not searched: {joined(others)}."] * bool(others)
    return Table(title, frame, notes, {"score": 1}, views)


def _setting(values: dict[str, int | float]) -> str:
    return ", ".join(f"{key} = {value:g}" for key, value in values.items())


def _title(known: Mapping[str, Any], name: str) -> str:
    return known[name].title if name in known else name


def _what(results: Results, tuned: Tuned) -> str:
    budgets = ", ".join(f"{seconds:g} s" for seconds in tuned.budget_seconds.values())
    models = ", ".join(_title(results.experiment.models, name) for name in tuned.models)
    benchmarks = ", ".join(_title(results.experiment.benchmarks, name) for name in tuned.benchmarks)
    return (
        f"Each method below had the same trials in the experiment {tuned.search} ({models} on {benchmarks}; "
        f"{plural(len(tuned.seeds), 'seed')}): avg@k in percent on {tuned.questions} "
        "questions of the train split that were held out from training, the highest validation within each budget "
        f"({budgets}), averaged over budgets. No test question was used. The highest was chosen; an experiment's "
        f"overrides may replace it. Cost: {tuned.runs} runs, {tuned.training_steps:,} training steps, "
        f"{tuned.clock_seconds:,.0f} s of the training clock, {tuned.wall_seconds / 60:.0f} minutes of wall time."
    )
