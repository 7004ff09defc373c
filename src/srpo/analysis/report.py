"""One self-contained HTML page about an experiment: no request, every sentence computed."""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import pandas as pd

from srpo.analysis import figures
from srpo.analysis.claims import Claim, Finding, Outcome, findings
from srpo.analysis.grid import MISSING, interval, number
from srpo.analysis.load import Results
from srpo.analysis.run_tables import cost_table
from srpo.analysis.scores import BASE, planned
from srpo.analysis.summary import headlines, remarks
from srpo.analysis.table import NOT_COMPARABLE, Table, benchmark_title, budgets_listed, csv_text, method_title
from srpo.analysis.tables import TABLES, build_tables
from srpo.analysis.text import printable
from srpo.contents import TEMPLATES, contents
from srpo.files import write_text

_DOTS_PER_CSS_PIXEL = 150 / 96  # figures are saved at 150 dots per inch


@dataclass(frozen=True)
class Picture:
    """A figure in the page with its data; without ``image`` its place says why."""

    name: str
    title: str
    caption: str
    csv: str = ""
    image: str | None = None
    width: int = 0
    missing: str = ""


@dataclass(frozen=True)
class Answer:
    """What one model or method answered."""

    method: str
    response: str | None
    correct: bool


@dataclass(frozen=True)
class Example:
    """The answers to one test question, side by side."""

    heading: str
    prompt: str
    truth: str
    answers: list[Answer]


def write_report(results: Results, out_path: Path, figures_dir: Path | None = None) -> None:
    """Write the report, and its summary as the ``.rst`` beside it that ``snakemake --report`` shows.

    Args:
        figures_dir: where :func:`~srpo.analysis.figures.write_figures` wrote; by default ``figures/`` beside
            the report. A figure that is not there is named in its place.
    """
    out_path = Path(out_path)
    write_text(out_path, render(results, figures_dir or out_path.parent / "figures"))
    write_text(out_path.with_suffix(".rst"), "\n\n".join(headlines(results, findings(results))) + "\n")


def render(results: Results, figures_dir: Path) -> str:
    """The page as text."""
    found, tables, cost = findings(results), build_tables(results), cost_table(results)
    command = f"srpo report --experiment results/{results.experiment.name}/experiment.yaml"
    script = (TEMPLATES / "sort.js").read_text()
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            experiment=results.experiment,
            css=css(),
            script=jinja2.utils.markupsafe.Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            sections=contents(results.experiment),
            not_comparable=None if results.experiment.comparable_with_paper else NOT_COMPARABLE,
            headlines=headlines(results, found),
            claims=[claim_row(finding, results) for finding in found if not finding.claim.ours],
            questions=[claim_row(finding, results) for finding in found if finding.claim.ours],
            remarks=remarks(results),
            tables=tables,
            pictures={name: _picture(drawn, figures_dir) for name, drawn in figures.prepare(results).items()},
            command=command,
            commands=dict.fromkeys([*tables, cost.name], f"{command} --only tables")
            | dict.fromkeys(set(figures.FIGURES) - set(tables), f"{command} --only figures"),
            cost=cost,
            cost_total=_cost_total(results),
            models=_models(results),
            data=[_data(results, name) for name in results.experiment.benchmarks],
            examples=_examples(results),
            provenance=_provenance(results),
        )
    )
    return page.lstrip()


@cache
def environment() -> jinja2.Environment:
    """Templates with autoescaping; ``printable`` for text that models wrote."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["printable"] = printable
    made.filters["table_csv"] = _table_csv
    return made


def css() -> Any:
    """The style sheet, ours and therefore not escaped."""
    return jinja2.utils.markupsafe.Markup((TEMPLATES / "report.css").read_text())


def _csv_uri(text: str) -> str:
    """CSV embedded in the page; not as base64, which would take a third more."""
    return f"data:text/csv;charset=utf-8,{quote(text, safe=',.+-_ ()')}"


def _table_csv(table: Table) -> str:
    return _csv_uri(csv_text(table.frame, table.digits))


# ---------------------------------------------------------------- claims


def claim_row(finding: Finding, results: Results) -> dict[str, Any]:
    """A line of the claims' table, in words."""
    claim = finding.claim
    side, threshold = ("above", claim.rule.above) if claim.rule.above is not None else ("below", claim.rule.below)
    return {
        "id": claim.id,
        "statement": claim.statement,
        "section": claim.section,
        "rule": f"{side} {threshold:g} {claim.unit}",
        "paper": _paper(claim),
        "here": _here(finding, results),
        "verdict": finding.verdict,
        "evidence": f"{'table' if claim.evidence in TABLES else 'figure'}-{claim.evidence}",
    }


def _paper(claim: Claim) -> str:
    if isinstance(claim.paper, str):
        return claim.paper
    return ", ".join(f"{model} {number(value, sign=True)}" for model, value in claim.paper.items()) + f" {claim.unit}"


def _here(finding: Finding, results: Results) -> list[dict[str, str]]:
    """A line for each model, or one if all say the same reason why nothing is known."""
    reasons = {outcome.reason for outcome in finding.outcomes}
    if finding.verdict == "not tested" and len(reasons) == 1:
        return [{"model": "all models", "text": reasons.pop(), "interval": "", "over": "", "verdict": "not tested"}]
    return [
        _line(outcome, finding.claim, results.experiment.models[outcome.model].title) for outcome in finding.outcomes
    ]


def _line(outcome: Outcome, claim: Claim, model: str) -> dict[str, str]:
    if outcome.estimate is None:
        return {"model": model, "text": outcome.reason, "interval": "", "over": "", "verdict": outcome.verdict}
    estimate = outcome.estimate
    units = {"seed": "seeds a method", "question": "questions, one seed", "benchmark": "benchmarks, one seed"}
    over = f"over {estimate.count} {units[estimate.unit]}" if estimate.unit in units else "no interval"
    if outcome.benchmarks < outcome.of_benchmarks:
        over += f"; {outcome.benchmarks} of {outcome.of_benchmarks} benchmarks"
    return {
        "model": model,
        "text": f"{number(estimate.value, claim.digits, claim.signed)} {claim.unit}",
        "interval": interval(estimate.low, estimate.high, claim.digits, claim.signed),
        "over": over,
        "verdict": outcome.verdict,
    }


# ---------------------------------------------------------------- figures


def _picture(drawn: figures.Drawn, folder: Path) -> Picture:
    spec, path = drawn.spec, folder / f"{drawn.spec.name}.png"
    if drawn.frame.empty:
        return Picture(spec.name, spec.title, drawn.caption, missing="No data (yet).")
    if not path.is_file():
        return Picture(spec.name, spec.title, drawn.caption, missing=f"{path.name} has not been drawn.")
    content = path.read_bytes()
    (pixels,) = struct.unpack(">I", content[16:20])  # a PNG's width stands at this place
    image = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    width = round(pixels / _DOTS_PER_CSS_PIXEL)
    return Picture(spec.name, spec.title, drawn.caption, _csv_uri(figures.csv_text(drawn.frame)), image, width)


# ---------------------------------------------------------------- samples


def _examples(results: Results) -> list[Example]:
    """The first sample of the first test question of every model and benchmark that has any."""
    budget = list(results.experiment.training.budgets)[-1]
    found = (_example(results, model, benchmark, budget) for model, benchmark in results.experiment.bases())
    return [example for example in found if example]


def _example(results: Results, model: str, benchmark: str, budget: str) -> Example | None:
    samples = results.samples
    here = samples[(samples["model"] == model) & (samples["benchmark"] == benchmark)]
    here = here[here["budget"].isin([BASE, budget])].sort_values(["question", "seed"], kind="stable")
    if here.empty:
        return None
    here = here[here["question"] == here["question"].iloc[0]]
    methods = [BASE, *(m for m, benchmarks in planned(results, model).items() if benchmark in benchmarks)]
    first = here.drop_duplicates("method").set_index("method")
    answers = [
        Answer(method_title(results, m), first.loc[m, "response"], first.loc[m, "reward"] > 0)
        if m in first.index
        else Answer(method_title(results, m), None, False)
        for m in methods
    ]
    heading = f"{results.experiment.models[model].title} · {benchmark_title(results, benchmark)}"
    return Example(heading, here["prompt"].iloc[0], here["ground_truth"].iloc[0], answers)


# ---------------------------------------------------------------- models, data, cost


def _models(results: Results) -> list[dict[str, Any]]:
    found = []
    for name, spec in results.experiment.models.items():
        base = results.models.get(name, {})
        start = base.get("warm_start") or {}
        found.append(
            {
                "title": spec.title,
                "kind": spec.kind,
                "parameters": f"{base['parameters']:,}" if base.get("parameters") else MISSING,
                "warm_start": f"{start['steps']} steps, loss {number(start.get('loss'), 3)}" if start else MISSING,
            }
        )
    return found


def _data(results: Results, name: str) -> dict[str, Any]:
    statistics = results.statistics.get(name, {})
    unscored = statistics.get("reference_cannot_score") or {}
    rows = statistics.get("rows", {})
    notes = [
        f"The reference's reading of tool calls can never reward {count} of {rows.get(split, '?')} {split} questions"
        + (", and this experiment uses that reading." if _reads_like_reference(results, name) else "; not used here.")
        for split, count in unscored.items()
        if count
    ]
    return {"title": benchmark_title(results, name), "notes": notes}


def _reads_like_reference(results: Results, name: str) -> bool:
    return results.experiment.benchmarks[name].reward == "tool_use_reference"


def _cost_total(results: Results) -> str:
    runs = results.runs.dropna(subset=["wall_seconds"])
    if runs.empty:
        return "No run has started yet."
    peak = runs["peak_memory_gb"].max()
    memory = "" if pd.isna(peak) else f", at most {peak:.2f} GB of memory in one process"
    return (
        f"{len(runs)} runs, {runs['steps'].sum():,.0f} training steps, "
        f"{_duration(runs['wall_seconds'].sum())} of training and "
        f"{_duration(runs['evaluation_wall_seconds'].sum())} of evaluation{memory}."
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# ---------------------------------------------------------------- provenance


def _provenance(results: Results) -> list[tuple[str, str]]:
    """What the runs recorded about their origin; several values where runs differ."""
    records = list(results.provenance.values())
    if not records:
        return []
    named = {"commit": "Commit", "srpo": "srpo", "python": "Python", "machine": "Machine", "hardware": "Hardware"}
    facts = [(title, _distinct(record.get(key) for record in records)) for key, title in named.items()]
    packages = sorted({name for record in records for name in record.get("packages") or {}})
    facts += [(name, _distinct((r.get("packages") or {}).get(name) for r in records)) for name in packages]
    facts.append(("Driver", _driver(results)))
    facts.append(("Budgets", budgets_listed(results)))
    for run, record in results.provenance.items():
        facts.append((f"Base model {run.model}", str(record.get("base_model"))))
        facts += [(f"{run.benchmark}, {split}", str(sha)) for split, sha in (record.get("data") or {}).items()]
    return [(title, value) for title, value in dict.fromkeys(facts) if value not in ("", "None")]


def _driver(results: Results) -> str:
    execution = results.experiment.execution
    ranks = f"{execution.ranks} {'rank' if execution.ranks == 1 else 'ranks'}"
    return f"{execution.driver}, {ranks}, {execution.precision}, rollouts by {execution.rollout_engine}"


def _distinct(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))
