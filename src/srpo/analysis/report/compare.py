"""Compares two experiments: verdicts that changed, scores and their differences, settings that differ."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from srpo.analysis.results.contrasts import Arm, contrast, independent_difference
from srpo.analysis.results.estimates import Estimate
from srpo.analysis.results.load import Results, load_results
from srpo.analysis.results.matrix import BASE, planned, recorded_tests
from srpo.analysis.results.scores import Scores
from srpo.analysis.results.titles import MISSING, benchmark_title, method_title
from srpo.analysis.results.verdicts import Finding, findings
from srpo.analysis.tables.grid import Cell, Grid, Row, markdown
from srpo.analysis.tables.table import estimate_cell
from srpo.inputs.schema import flattened

_NAMES = ("name", "title")


def compare(first: Path, second: Path) -> str:
    """Compare the results directories of two experiments.

    Returns:
        Title, notes and tables as Markdown.

    Raises:
        SrpoError: if either folder holds no experiment.
    """
    sides = [load_results(folder) for folder in (first, second)]
    labels = [side.experiment.name for side in sides]
    if labels[0] == labels[1]:
        labels = [str(first), str(second)]
    grids = [_verdicts(sides, labels), *_scores(sides, labels), _settings(sides, labels)]
    note = (
        f"A is {labels[0]}, B is {labels[1]}. Scores: selected checkpoint, resampled, percent; brackets hold 95 % "
        "intervals. Differences are B minus A: question by question if the test splits have the same bytes, otherwise "
        "with independent questions."
    )
    parts = [f"# {labels[0]} and {labels[1]}", note, *(markdown(grid).rstrip() for grid in grids)]
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- verdicts


def _verdicts(sides: list[Results], labels: list[str]) -> Grid:
    """Claims whose verdict changed, then the others."""
    pairs = list(zip(*(findings(side) for side in sides), strict=True))
    rows = []
    for heading, changed in (("Changed", True), ("Unchanged", False)):
        chosen = [pair for pair in pairs if (pair[0].verdict != pair[1].verdict) is changed]
        rows += [Row(f"{heading}: {len(chosen)}", heading=True)]
        for a, b in chosen:
            label = f"{a.claim.statement}{' (our question)' if a.claim.ours else ''}"
            rows.append(Row(label, [Cell(_said(f, side)) for f, side in zip((a, b), sides, strict=True)]))
    return Grid("Claim", [("", label) for label in labels], rows, "Verdicts", numeric=False)


def _said(finding: Finding, results: Results) -> str:
    digits, signed = finding.claim.digits, finding.claim.signed
    found = [
        f"{results.experiment.models[outcome.model].title} {estimate_cell(outcome.estimate, digits, signed)}"
        for outcome in finding.outcomes
        if outcome.estimate
    ]
    return f"{finding.verdict} ({'; '.join(found)})" if found else finding.verdict


# ---------------------------------------------------------------- scores


def _scores(sides: list[Results], labels: list[str]) -> Iterator[Grid]:
    """A table for each common model, with every method, benchmark and budget that both experiments planned."""
    a, b = sides
    for model in a.experiment.models:
        if model not in b.experiment.models:
            continue
        rows = []
        for benchmark in a.experiment.benchmarks:
            there = _planned_scores(b, model, benchmark)
            shared = [score for score in _planned_scores(a, model, benchmark) if score in there]
            if shared:
                rows.append(Row(benchmark_title(a, benchmark), heading=True))
            paired = _same_questions(sides, benchmark)
            for method, budget in shared:
                runs = [Scores.of(side).lookup(model, "resampled")(benchmark, method, budget) for side in sides]
                estimates = [
                    Scores.of(side).estimate(model, {(method, budget): 1.0}, [benchmark], "resampled") for side in sides
                ]
                change = _change(runs, paired, method == BASE) if all(runs) else None
                marked = estimate_cell(change, sign=True)
                label = method_title(a, method) + (f", {a.experiment.budget_title(budget)}" if method != BASE else "")
                rows.append(Row(label, [*map(estimate_cell, estimates), marked]))
        if rows:
            heads = [("", f"A: {labels[0]}"), ("", f"B: {labels[1]}"), ("", "B minus A")]
            yield Grid("Score", heads, rows, a.experiment.models[model].title)


def _planned_scores(results: Results, model: str, benchmark: str) -> list[tuple[str, str]]:
    """(method, budget) pairs planned on a benchmark, the base model first."""
    base = [(BASE, BASE)] if (model, benchmark) in results.experiment.bases() else []
    methods = [m for m, benchmarks in planned(results, model).items() if benchmark in benchmarks]
    return base + [(method, budget) for method in methods for budget in results.experiment.training.budget_seconds]


def _same_questions(sides: list[Results], benchmark: str) -> bool:
    """Whether runs of both recorded the same checksum of the test split, for each table of facts that both have."""
    a, b = (recorded_tests(side).get(benchmark, {}) for side in sides)
    return bool(a.keys() & b.keys()) and all(a[name] == b[name] and len(a[name]) == 1 for name in a.keys() & b.keys())


def _change(runs: list[Mapping[int, np.ndarray]], paired: bool, fixed: bool) -> Estimate:
    """B minus A, question by question if the questions are the same."""
    a, b = (np.array(list(side.values())) for side in runs)
    if paired and a.shape[1] == b.shape[1]:
        return contrast([[Arm(b, fixed), Arm(-a, fixed)]])
    return independent_difference(*(contrast([[Arm(values, fixed)]]) for values in (b, a)))


# ---------------------------------------------------------------- settings


def _settings(sides: list[Results], labels: list[str]) -> Grid:
    """Every key of the resolved experiments whose values differ."""
    flat = [flattened(side.experiment.model_dump(mode="json")) for side in sides]
    keys = [key for key in dict.fromkeys([*flat[0], *flat[1]]) if key not in _NAMES]
    rows = [
        Row(key, [Cell(_shown(side, key)) for side in flat]) for key in keys if flat[0].get(key) != flat[1].get(key)
    ]
    rows = rows or [Row("no setting differs", [Cell(""), Cell("")])]
    return Grid("Setting", [("", label) for label in labels], rows, "Settings that differ", numeric=False)


def _shown(flat: dict[str, Any], key: str) -> str:
    return json.dumps(flat[key], ensure_ascii=False) if key in flat else MISSING
