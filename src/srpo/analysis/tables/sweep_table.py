"""Scores and late drops against the values of a sweep."""

from __future__ import annotations

import math
from typing import Any

from srpo.analysis.results.load import Results
from srpo.analysis.results.matrix import BASE
from srpo.analysis.results.scores import PROTOCOLS, Scores
from srpo.analysis.results.sweeps import LATE_DROP, Line, late_drop_note, sweep_frame, sweep_lines
from srpo.analysis.results.titles import MISSING, benchmark_title, budgets_listed, count_range, listed, original_title
from srpo.analysis.tables.grid import Cell, Grid, Row
from srpo.analysis.tables.table import Table, comparability, intervals_note, record_cell


def sweep_table(results: Results) -> Table:
    """Score and late drop at each value of the sweep, and the change from its first value at the last budget."""
    frame, experiment = sweep_frame(results), results.experiment
    budgets = list(experiment.training.budget_seconds)
    records = {(r["model"], r["method"], str(r["setting"]), r["quantity"]): r for r in frame.to_dict("records")}
    body: list[Row] = []
    over = set()
    for model in dict.fromkeys(line.model for line in sweep_lines(results)):
        body.append(Row(original_title(results, model), heading=True))
        for line in [line for line in sweep_lines(results) if line.model == model]:
            over.add(line.benchmarks)
            for value, *_ in line.points:
                body.append(_row(results, line, value, budgets, records))
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
    return Table("sweep", f"Scores by {label}", notes if body else [], frame, digits, grids)


def _row(results: Results, line: Line, value: float, budgets: list[str], records: dict[tuple, dict]) -> Row:
    """A method at one value; the untrained model has one score for all budgets."""
    title = original_title(results, line.method)
    label = title if math.isnan(value) else f"{title}, {results.experiment.sweep_label} = {value:.12g}"
    found: dict[str, Any] = {q: records.get((line.model, line.method, str(value), q)) for q in (*budgets, LATE_DROP)}
    if line.method == BASE:
        base = records[line.model, BASE, str(value), BASE]
        return Row(label, [Cell(""), record_cell(base, "score", span=len(budgets)), Cell(""), Cell("")])
    last = found[budgets[-1]]
    change = (
        record_cell(last, "change", sign=True) if value != line.points[0][0] and not math.isnan(value) else Cell("")
    )
    return Row(
        label,
        [
            Cell(count_range([last["seeds"]])),
            *(record_cell(found[budget], "score") for budget in budgets),
            record_cell(found[LATE_DROP], "score"),
            Cell(change.text, last["change_low"] > 0, last["change_high"] < 0, interval=change.interval),
        ],
    )
