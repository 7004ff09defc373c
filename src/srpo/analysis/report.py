"""One self-contained HTML page about an experiment: no script, no request, every sentence computed."""

from __future__ import annotations

import base64
import struct
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from srpo.analysis.claims import comparison_grid, findings, headlines
from srpo.analysis.figures import FIGURES, has_data
from srpo.analysis.grid import MISSING, number
from srpo.analysis.load import RUN_KEY, Results
from srpo.analysis.scores import BASE, planned, run_scores
from srpo.analysis.tables import NOT_COMPARABLE, benchmark_title, build_tables, cost_table, method_title
from srpo.files import write_text

TEMPLATES = Path(__file__).resolve().parents[3] / "reports"
_DOTS_PER_CSS_PIXEL = 150 / 96  # figures are saved at 150 dots per inch
_LONGEST_TEXT = 1500


@dataclass(frozen=True)
class Picture:
    """A figure in the page; without ``data`` its place says why."""

    name: str
    title: str
    caption: str
    data: str | None = None
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


def write_report(
    results: Results, out_path: Path, figures_dir: Path | None = None, tables_dir: Path | None = None
) -> None:
    """Write the report.

    Args:
        figures_dir: where :func:`~srpo.analysis.figures.write_figures` wrote; by default ``figures/`` beside
            the report. A figure that is not there is named in its place.
        tables_dir: the same for the tables' CSV files, which the report links to.
    """
    out_path = Path(out_path)
    figures_dir = figures_dir or out_path.parent / "figures"
    tables_dir = tables_dir or out_path.parent / "tables"
    write_text(out_path, render(results, figures_dir, _relative(tables_dir, out_path.parent)))


def render(results: Results, figures_dir: Path, tables_link: str) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    pictures = {name: _picture(name, results, figures_dir) for name in FIGURES}
    page = environment.get_template("report.html.j2").render(
        experiment=results.experiment,
        not_comparable=None if results.experiment.comparable_with_paper else NOT_COMPARABLE,
        headlines=headlines(results),
        comparison=comparison_grid(results),
        findings=findings(results),
        tables=build_tables(results),
        tables_link=tables_link,
        cost=cost_table(results),
        cost_total=_cost_total(results),
        pictures=pictures,
        models=_models(results),
        data=[_data(results, name) for name in results.experiment.benchmarks],
        examples=_examples(results),
        provenance=_provenance(results),
        remarks=remarks(results),
    )
    return page.lstrip()


def _relative(folder: Path, start: Path) -> str:
    return folder.relative_to(start).as_posix() if folder.is_relative_to(start) else folder.resolve().as_uri()


# ---------------------------------------------------------------- text from outside


def printable(text: Any) -> str:
    """Untrusted text that is safe to lay out: shortened, and with control characters written out.

    Control, surrogate and direction-changing characters could hide or reorder what surrounds them.
    Autoescaping deals with the markup.
    """
    text = str(text)
    shown = "".join(c if c in "\n\t" or unicodedata.category(c)[0] != "C" else f"\\u{ord(c):04x}" for c in text)
    rest = len(shown) - _LONGEST_TEXT
    return shown if rest <= 0 else f"{shown[:_LONGEST_TEXT]} … ({rest} more characters)"


# ---------------------------------------------------------------- figures


def _picture(name: str, results: Results, folder: Path) -> Picture:
    spec, path = FIGURES[name], folder / f"{name}.png"
    caption = spec.caption(results)
    if not has_data(name, results):
        return Picture(name, spec.title, caption, missing="No data yet.")
    if not path.is_file():
        return Picture(name, spec.title, caption, missing=f"{path.name} has not been drawn.")
    content = path.read_bytes()
    (pixels,) = struct.unpack(">I", content[16:20])  # a PNG's width stands at this place
    data = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return Picture(name, spec.title, caption, data, round(pixels / _DOTS_PER_CSS_PIXEL))


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
    ]
    example = statistics.get("example") or {}
    return {
        "title": benchmark_title(results, name),
        "source": statistics.get("source") or {},
        "example": example,
        "notes": notes,
    }


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
    named = {"commit": "Commit", "srpo": "srpo", "python": "Python", "machine": "Machine", "hardware": "Hardware"}
    facts = [(title, _distinct(record.get(key) for record in records)) for key, title in named.items()]
    packages = sorted({name for record in records for name in record.get("packages") or {}})
    facts += [(name, _distinct((r.get("packages") or {}).get(name) for r in records)) for name in packages]
    for run, record in results.provenance.items():
        facts.append((f"Base model {run.model}", str(record.get("base_model"))))
        facts += [(f"{run.benchmark}, {split}", str(sha)) for split, sha in (record.get("data") or {}).items()]
    return [(title, value) for title, value in dict.fromkeys(facts) if value not in ("", "None")]


def _distinct(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value is not None))


def remarks(results: Results) -> list[str]:
    """What a reader should know about these particular runs: early ends, mixed settings, uncommitted code."""
    found = []
    early = _early_ends(results)
    if early:
        found.append(f"These runs stopped at their last allowed step, before the last budget: {_first(early)}.")
    stale = [r.path for r, spec in results.specs.items() if spec != results.experiment.run(r).model_dump(mode="json")]
    if stale:
        found.append(f"Settings of these runs differ from the experiment's: {_first(stale)}.")
    commits = {str(record.get("commit")) for record in results.provenance.values()}
    if len(commits) > 1:
        found.append(f"The runs are of {len(commits)} different commits.")
    if any(commit.endswith("-dirty") for commit in commits):
        found.append("Some runs were made with uncommitted changes (-dirty).")
    disagreeing = _disagreements(results)
    if disagreeing:
        found.append(f"summary.json disagrees with the validation log: {_first(disagreeing)}.")
    return found


def _first(names: list[str], shown: int = 3) -> str:
    rest = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {rest} more" if rest > 0 else "")


def _early_ends(results: Results) -> list[str]:
    last = max(results.experiment.training.budgets.values())
    runs = results.runs[(results.runs["stopped_by"] == "max_steps") & (results.runs["clock"] < last)]
    return [
        f"{r.model}/{r.benchmark}/{r.method}/seed{r.seed} ({r.steps:.0f} steps, {r.clock:.1f} s)"
        for r in runs.itertuples()
    ]


def _disagreements(results: Results) -> list[str]:
    """Runs whose summary selected another score than the maximum of their log."""
    merged = run_scores(results).merge(results.budgets, on=[*RUN_KEY, "budget"])
    apart = (merged["in_training"] - 100 * merged["avg_at_k"]).abs() > 1e-6
    apart |= merged["in_training"].isna() != merged["avg_at_k"].isna()
    return [f"{r.model}/{r.benchmark}/{r.method}/seed{r.seed} ({r.budget})" for r in merged[apart].itertuples()]
