"""Scores and late drops against the values of a sweep."""

import math
from dataclasses import replace

from srpo.analysis.results.load import Results
from srpo.analysis.results.matrix import BASE
from srpo.analysis.results.scores import PROTOCOLS, Scores
from srpo.analysis.results.sweeps import LATE_DROP, late_drop_note, sweep_frame, sweep_lines
from srpo.analysis.results.titles import MISSING, benchmark_title, budgets_listed, count_range, listed, original_title
from srpo.analysis.tables.grid import Cell, Grid, Row
from srpo.analysis.tables.table import Table, cells_at, comparability, grid_of, intervals_note


def sweep_table(results: Results) -> Table:
    """Score and late drop at each value of the sweep, and the change from its first value at the last budget."""
    frame, experiment = sweep_frame(results), results.experiment
    budgets = list(experiment.training.budget_seconds)
    frame["point"] = frame["setting"].map(_shown)
    keys = ["model", "method", "point"]
    scores = grid_of(frame, keys, "quantity", "score")
    changes = grid_of(frame, keys, "quantity", "change", sign=True, sided=True)
    seeds = frame[frame["quantity"] == budgets[-1]].groupby(keys)["seeds"].agg(count_range)
    body: list[Row] = []
    over = set()
    for model in dict.fromkeys(line.model for line in sweep_lines(results)):
        body.append(Row(original_title(results, model), heading=True))
        for line in [line for line in sweep_lines(results) if line.model == model]:
            over.add(line.benchmarks)
            for value, *_ in line.points:
                key, title = (model, line.method, _shown(value)), original_title(results, line.method)
                label = title if math.isnan(value) else f"{title}, {experiment.sweep_label} = {_shown(value)}"
                if line.method == BASE:  # the untrained model has one score for all budgets
                    (base,) = cells_at(scores, key, [BASE])
                    cells = [Cell(""), replace(base, span=len(budgets)), Cell(""), Cell("")]
                else:
                    first = math.isnan(value) or value == line.points[0][0]
                    (change,) = cells_at(changes, key, [budgets[-1]])
                    cells = [Cell(seeds[key]), *cells_at(scores, key, [*budgets, LATE_DROP])]
                    cells.append(Cell("") if first else change)
                body.append(Row(label, cells))
    heads = [("", "Seeds"), *(("Score, percent", budget) for budget in budgets), ("", "Late drop, points")]
    heads.append((f"Change at {budgets[-1]}", "from the first value"))
    label = experiment.sweep_label
    notes = [
        f"Score: {PROTOCOLS[Scores.of(results).protocol]}, averaged over the benchmarks "
        f"({' or '.join(listed(benchmark_title(results, b) for b in names) for names in sorted(over))}). "
        f"Budgets: {budgets_listed(results)}. {late_drop_note()} "
        f"Change: the score minus that of the line's first {label}; green: its interval lies above 0, red italics: "
        f"below 0. {MISSING}: not measured (yet).",
        intervals_note([*frame["score_unit"], *frame["change_unit"]]),
        *comparability(results),
    ]
    digits = {f"{name}{end}": 1 for name in ("score", "change") for end in ("", "_low", "_high")}
    grids = [Grid("Method", heads, body)] if body else []
    frame = frame.drop(columns="point")
    return Table("sweep", f"Scores by {label}", notes if body else [], frame, digits, grids)


def _shown(value: float) -> str:
    """A value of the swept setting; empty for a method that is not swept."""
    return "" if math.isnan(value) else f"{value:.12g}"
