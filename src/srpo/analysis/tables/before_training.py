"""Before training: the gap of self-teacher and student of each base model, and what its runs gained."""

import math
from typing import Any

import numpy as np
import pandas as pd

from srpo.analysis.gap import SENTENCES, sign
from srpo.analysis.results import BASE, SCORE_TITLES, Results, estimate_columns, records
from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.estimates import Estimate
from srpo.analysis.tables.table import Bold, Table, View, interval, number

_MEASURED = {
    ("All questions, %", "student"): "student",
    ("All questions, %", "wrong with a sibling"): "wrong_with_sibling",
    ("With a sibling, %", "student"): "student_same",
    ("With a sibling, %", "teacher"): "teacher_sibling",
    ("Points", "gap"): "gap",
}


def table(results: Results) -> Table:
    """A row a base model and benchmark: what was measured, and what was gained."""
    frame, title = gap_frame(results), "The gap of self-teacher and student, before training"
    if frame.empty:
        return Table(title, frame)
    methods = [method for method in METHODS if method in results.experiment.methods]
    gains = {("Gain, points", results.method_title(method)): f"gain_{method}" for method in methods}
    follows = {("", "The gap says"): "says", **gains}
    views = [
        _view(results, frame, _MEASURED, "Measured on train questions"),
        _view(results, frame, follows, "What followed, on test questions"),
    ]
    shown = [*_MEASURED.values(), *gains.values()]
    numbers = [f"{name}{end}" for name in shown for end in ("", "_low", "_high")]
    notes = [
        "The untrained model answers train questions alone; then those with a right rollout again, and as its own "
        "teacher, which is shown that rollout. Gap: teacher minus student on these questions. In brackets 95 % "
        "intervals over questions.",
        *(text for word, text in SENTENCES.items() if word in set(frame["says"])),
        f"Gains: last budget ({SCORE_TITLES[results.deciding]}) minus the untrained model.",
    ]
    frame = frame.reindex(columns=["model", "base_model", "benchmark", "says", *numbers])
    return Table(title, frame, notes, dict.fromkeys(numbers, 1), views)


def _view(results: Results, frame: pd.DataFrame, columns: dict[tuple[str, str], str], title: str) -> View:
    bases = results.experiment.every_base_model()
    rows: list[tuple[str, list[str]]] = []
    for benchmark, group in frame.groupby("benchmark", sort=False):
        rows.append((Bold(results.benchmark_title(str(benchmark))), []))
        rows += [(bases[r["base_model"]].title, [_text(r, name) for name in columns.values()]) for r in records(group)]
    return View("Base model", list(columns), rows, title)


def _text(record: dict[str, Any], name: str) -> str:
    if name == "says":
        return str(record[name])
    signed = name == "gap" or name.startswith("gain_")
    ends = interval(record.get(f"{name}_low"), record.get(f"{name}_high"), sign=signed)
    return f"{number(record.get(name, math.nan), sign=signed)} {ends}".strip()


# ---------------------------------------------------------------- the numbers


METHODS = ("grpo", "sdpo", "srpo")
"""Methods whose gains stand beside the gap."""


def gap_frame(results: Results) -> pd.DataFrame:
    """A row per base model and benchmark with a gap.

    Returns:
        Columns: model, base_model, benchmark; ``says`` (:data:`~srpo.analysis.gap.SENTENCES`); in percent or
        points, with ``_low`` and ``_high``: each estimate of ``gap.json``, ``gain_grpo`` and so on (:func:`gain`).
    """
    rows = []
    for (model, benchmark, seed), gap in results.gaps.items():
        base = results.experiment.base_models(model)[seed].name
        row: dict[str, Any] = {"model": model, "base_model": base, "benchmark": benchmark}
        estimates = gap["estimates"]
        shown = estimates.get("gap")
        row["says"] = sign(shown["low"], shown["high"]) if shown else "no sibling"
        for name, estimate in estimates.items():
            row |= {name: estimate["value"], f"{name}_low": estimate["low"], f"{name}_high": estimate["high"]}
        for method in METHODS:
            row |= estimate_columns(f"gain_{method}", gain(results, model, benchmark, method, seed))
        rows.append(row)
    return pd.DataFrame(rows)


def gain(results: Results, model: str, benchmark: str, method: str, seed: int) -> Estimate | None:
    """What the runs that start from a base model end above it: points on test questions, by the score that decides.

    Args:
        seed: of the base model; 0 if all runs of ``model`` share one, and then it is the mean over runs.

    Returns:
        None as long as no run has reached the last budget, or if the test questions differ.
    """
    values, last = results.of(model, results.deciding), [*results.budget_seconds][-1]
    runs, untrained = values.get((benchmark, method, last), {}), values.get((benchmark, BASE, BASE), {}).get(seed)
    ended = [scored for s, scored in runs.items() if s == seed or not results.experiment.draws_per_seed(model)]
    if untrained is None or not ended or benchmark in results.incomparable:
        return None
    return contrast([[Arm(np.array(ended)), Arm(-untrained[None], fixed=True)]])
