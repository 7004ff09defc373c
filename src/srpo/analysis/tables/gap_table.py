"""Before training: what the gap of self-teacher and student says of each base model, and what its runs gained."""

import math
from typing import Any

import pandas as pd

from srpo.analysis.before_training import METHODS, gap_frame, held
from srpo.analysis.gap import MISS, SENTENCES, SLOPE
from srpo.analysis.results import SCORE_TITLES, Results, records
from srpo.analysis.tables.grid import Cell, Grid, Row
from srpo.analysis.tables.table import Table, record_cell
from srpo.ground.text import joined, plural

_MEASURED = {
    ("All questions, %", "student"): "student",
    ("All questions, %", "wrong with a sibling"): "wrong_with_sibling",
    ("With a sibling, %", "student"): "student_same",
    ("With a sibling, %", "teacher"): "teacher_sibling",
    ("With a sibling, %", "answer masked"): "teacher_masked",
    ("With a sibling, %", "foreign solution"): "teacher_foreign",
    ("With a sibling, %", "foreign answer copied"): "answer_copied_foreign",
    ("Points", "gap"): "gap",
}
_SIGNED = ("gap", "expected_gain")


def before_training_table(results: Results) -> Table:
    """A row a base model and benchmark: what was measured, what the law makes of it, and what was gained."""
    frame, title = gap_frame(results), "The gap of self-teacher and student, before training"
    if frame.empty:
        return Table("before_training", title, [], frame, {}, [])
    methods = [method for method in METHODS if method in results.experiment.methods]
    gains = {("Gain, points", results.method_title(method)): f"gain_{method}" for method in methods}
    follows = {("", "The gap says"): "says", ("Gain, points", "by the law"): "expected_gain", **gains}
    grids = [
        _grid(results, frame, _MEASURED, "Measured on train questions"),
        _grid(results, frame, follows, "What followed, on test questions"),
    ]
    shown = [*_MEASURED.values(), "expected_gain", *gains.values()]
    numbers = [f"{name}{end}" for name in shown for end in ("", "_low", "_high")]
    notes = _notes(results, frame, methods)
    frame = frame.reindex(columns=["model", "base_model", "benchmark", "says", *numbers])
    return Table("before_training", title, notes, frame, dict.fromkeys(numbers, 1), grids)


def _grid(results: Results, frame: pd.DataFrame, columns: dict[tuple[str, str], str], title: str) -> Grid:
    bases = results.experiment.every_base_model()
    rows = []
    for benchmark, group in frame.groupby("benchmark", sort=False):
        rows.append(Row(results.benchmark_title(str(benchmark)), heading=True))
        for record in records(group):
            cells = [_cell(record, name) for name in columns.values()]
            rows.append(Row(bases[record["base_model"]].title, cells))
    return Grid("Base model", list(columns), rows, title=title)


def _cell(record: dict[str, Any], name: str) -> Cell:
    if name == "says":
        return Cell(record[name])
    signed = name in _SIGNED or name.startswith("gain_")
    return record_cell({name: math.nan} | record, name, sign=signed)


def _notes(results: Results, frame: pd.DataFrame, methods: list[str]) -> list[str]:
    counts = frame["says"].value_counts()
    said = [f"{SENTENCES[word]} ({plural(counts[word], 'pair')} here.)" for word in SENTENCES if word in counts]
    scored = {results.method_title(method): held(frame, method) for method in methods}
    ended = [f"{title}'s gain in {inside} of {pairs}" for title, (inside, pairs) in scored.items() if pairs]
    return [
        "The untrained model answers train questions alone; then those with a right rollout again, and as its own "
        "teacher, which is shown that rollout, the same with its answer masked, or another question's. Gap: teacher "
        "minus student on these questions. In brackets 95 % intervals over questions.",
        *said,
        f"By the law (arXiv 2605.30070) the gain is {SLOPE:g} times the gap over all rollouts, of which only the wrong "
        "ones with a sibling are shown it. This is no forecast: its 95 % interval, from 64 pairs of our toys, reaches "
        f"{MISS:.0f} points to each side, within what is possible. "
        f"{f'Here it holds {joined(ended)}. ' * bool(ended)}"
        f"Gains: last budget ({SCORE_TITLES[results.deciding]}) minus the untrained model.",
    ]
