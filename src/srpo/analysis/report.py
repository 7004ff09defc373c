"""The report: one HTML page of verdicts, tables and figures. It makes no request and runs no script."""

import base64
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd

from srpo.analysis.outline import COST_TABLES, sections_of
from srpo.analysis.registered import registration_of
from srpo.analysis.results import AVERAGE, BASE, MISSING, RUN_KEY, Results, records
from srpo.analysis.tables.answers import sentences
from srpo.analysis.tables.table import Bold, Table, View, interval, number
from srpo.analysis.tables.verdicts import estimate_text
from srpo.analysis.verdicts import VERDICTS, Finding, findings, missing_runs
from srpo.analysis.write import figure_module, make_tables
from srpo.experiment.config import BUDGET_IS
from srpo.ground.files import write_text
from srpo.ground.layout import Layout
from srpo.ground.repository import REFERENCE, REPORTS
from srpo.ground.text import joined, minus, plural, printable
from srpo.questions.rewards import shown_answer
from srpo.training.provenance import PACKAGES, others_of


def write_report(results: Results, out_path: Path, figures_dir: Path | None = None) -> None:
    """Write the page, and its first lines as an ``.rst`` file next to it, which ``snakemake --report`` shows.

    Args:
        figures_dir: where the figures were written; by default ``figures/`` next to the page.
    """
    write_text(out_path, render(results, figures_dir or out_path.parent / "figures"))
    write_text(out_path.with_suffix(".rst"), "\n\n".join(first_lines(results, findings(results))) + "\n")


def render(results: Results, figures_dir: Path) -> str:
    """The page as text."""
    found, tables = findings(results), make_tables(results)
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(REPORTS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"printable": printable, "minus": minus, "groups": _groups}
    templates.tests["bold"] = lambda text: isinstance(text, Bold)
    return templates.get_template("report.html.j2").render(
        experiment=results.experiment,
        css=jinja2.utils.markupsafe.Markup((REPORTS / "report.css").read_text()),
        method=jinja2.utils.markupsafe.Markup((REPORTS / "method.svg").read_text()),
        sections=_sections(results, found, tables, figures_dir),
        first_lines=first_lines(results, found),
        remarks=remarks(results),
        headline=jinja2.utils.markupsafe.Markup(headline(tables["table1"].frame, results)),
        published={} if results.experiment.comparable_with_paper else published_scores(),
        provenance=provenance(results),
    )


def _sections(
    results: Results, found: Sequence[Finding], tables: Mapping[str, Table], figures_dir: Path
) -> list[dict[str, Any]]:
    """The sections that have something to show, each with its figures, claims, tables and samples."""
    sections = []
    for section in sections_of(results.experiment, bool(results.gaps)):
        names = COST_TABLES if section.id == "cost" else section.tables
        claims = [f for f in found if f.claim.block == section.block and (f.asked or not f.claim.ours)]
        content = {
            "figures": [each for name in section.figures if (each := _figure(name, figures_dir))],
            "claims": [claim_row(f, results) for f in claims] if {f.verdict for f in claims} - {"not tested"} else [],
            "tables": {name: tables[name] for name in names if tables[name].shown},
            "examples": _examples(results) if section.id == "samples" else [],
        }
        if any(content.values()) or section.id in ("checks", "provenance"):
            sections.append(content | {"section": section})
    return sections


def _groups(view: View) -> list[tuple[str, int]]:
    """The groups of a table's columns, and the number of columns under each; none if the columns are labels alone."""
    groups = [column[0] for column in view.columns if not isinstance(column, str)]
    return [(group, len(list(members))) for group, members in groupby(groups)]


def _figure(name: str, folder: Path) -> dict[str, str]:
    """A drawn figure's title, caption and image as a data URI; empty if it has no data."""
    image, numbers = folder / f"{name}.png", folder / f"{name}.csv"
    if not numbers.is_file() or len(numbers.read_text().splitlines()) < 2:
        return {}
    figure, data = figure_module(name), base64.b64encode(image.read_bytes()).decode()
    return {"name": name, "title": figure.TITLE, "caption": figure.CAPTION, "image": f"data:image/png;base64,{data}"}


def first_lines(results: Results, found: Sequence[Finding]) -> list[str]:
    """What was run, the count of verdicts, and what was registered."""
    experiment, runs = results.experiment, results.experiment.runs()
    counted = {
        "model": len(experiment.models),
        "benchmark": len(experiment.benchmarks),
        "method": len(experiment.methods),
        "seed": len({run.seed for run in runs}),
    }
    counts = ", ".join(plural(number, name) for name, number in counted.items())
    missing, clock = missing_runs(results), experiment.training.clock.kind
    lines = [
        f"{plural(len(runs), 'run')}{' of toys' * experiment.is_toy}: {counts}. A budget is {BUDGET_IS[clock]}.",
    ]
    if missing:
        lines.append(f"Interim: {missing} of {plural(len(runs), 'planned run')} not finished.")
    for kind, family in (
        ("primary claim", [f for f in found if f.claim.primary]),
        ("own question", [f for f in found if f.asked]),
    ):
        verdicts = Counter(finding.verdict for finding in family)
        if verdicts:
            said = ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS if verdicts[verdict])
            lines.append(f"{plural(sum(verdicts.values()), kind)}: {said}.")
    return lines + registered(results)


def headline(scores: pd.DataFrame, results: Results) -> str:
    """Table 1 in small: the average of each method within the last budget, and the paper's after ten hours, as HTML."""
    *_, last = results.budget_seconds
    averages = scores["benchmark"] == (AVERAGE if AVERAGE in set(scores["benchmark"]) else scores["benchmark"].iloc[0])
    rows: dict[str, dict[str, str]] = {}
    for row in records(scores[averages & scores["budget"].isin((BASE, last))]):
        name = "resampled" if row["method"] == BASE else results.deciding
        if pd.isna(row[name]):
            continue  # trained on some of the benchmarks
        ends = interval(row[f"{name}_low"], row[f"{name}_high"])
        column = rows.setdefault(f"{results.experiment.models[row['model']].title}, here", {})
        here = row["model"], row["method"]
        seeds = len({run.seed for run in results.experiment.runs() if (run.model, run.method) == here})
        fewer = f"({row[f'{name}_seeds']} of {plural(seeds, 'seed')})" if row[f"{name}_seeds"] < seeds else ""
        column[row["method"]] = " ".join(filter(None, (number(row[name]), ends, fewer)))
    published = pd.read_csv(REFERENCE / "table1_main.csv")
    averaged = (published["benchmark"] == AVERAGE) & published["budget_hours"].isin((0, 10))
    for row in records(published[averaged].sort_values("model")):  # as here, the smaller first
        rows.setdefault(f"{row['model']}, the paper", {})[row["method"]] = number(row["avg_at_16"])
    shown = [m for m in (BASE, *results.experiment.methods) if any(m in column for column in rows.values())]
    frame = pd.DataFrame(rows, index=shown).fillna(MISSING)
    return frame.rename(index=results.method_title).to_html(border=0, classes="numeric")


def published_scores() -> dict[str, str]:
    """The paper's tables 1 and 2 as HTML, by the section whose numbers are not comparable with them."""
    grids = {}
    for section, file in (("scores", "table1_main"), ("ablations", "table2_ablation")):
        scores = pd.read_csv(REFERENCE / f"{file}.csv").rename(columns={"budget_hours": "hours"})
        columns = [name for name in ("benchmark", "hours") if name in scores]
        grid = scores.pivot_table("avg_at_16", ["model", "method"], columns, sort=False)
        grids[section] = grid.to_html(border=0, na_rep="", float_format=number, classes="numeric")
    return grids


def registered(results: Results) -> list[str]:
    """When the analysis of this experiment was registered, and what departs from it."""
    if (registration := registration_of(results.experiment)) is None:
        return []
    departures = registration.departures(results.experiment)
    analysis = f"with the analysis of commit {registration.commit[:8]}"
    said = f"The claims were registered on {registration.date}, before the first run, {analysis}."
    return [said] + [f"Other than registered: {'; '.join(departures)}."] * bool(departures)


# ---------------------------------------------------------------- claims


def claim_row(finding: Finding, results: Results) -> dict[str, Any]:
    """A claim as the page shows it: ``here`` has a line for each model."""
    here = []
    for outcome in finding.outcomes:
        estimate, rests_on = outcome.estimate, [outcome.reason]
        if estimate is not None and outcome.benchmarks > 1:
            rests_on.insert(0, f"its own interval on {outcome.holding} of {outcome.benchmarks} benchmarks")
        if estimate is not None and estimate.covers_runs:
            unit, _, questions = estimate.meaning.partition(" and ")
            rests_on.insert(0, f"over {plural(estimate.count, unit)}{' and the test questions' * bool(questions)}")
        model = results.experiment.models[outcome.model].title
        line = {"text": outcome.reason, "over": ""}
        if estimate is not None:
            line = {"text": estimate_text(finding.claim, estimate), "over": "; ".join(filter(None, rests_on))}
        here.append({"model": model, **line})
    return {"finding": finding, "here": here, "verdict": finding.verdict}


def remarks(results: Results) -> list[str]:
    """What a reader should know of these runs: other questions or packages, early ends, cut answers, falls."""
    found = [
        f"Runs on {results.benchmark_title(name)} are not compared: {what}."
        for name, what in results.incomparable.items()
    ]
    for names in results.experiment.same_tests:
        found.append(f"The same test questions, which an average counts again: {', '.join(names)}.")
    for name, about in results.statistics.items():
        if copies := about.get("test_copies"):
            found.append(f"{results.benchmark_title(name)}: {copies} test questions are copies, intervals too narrow.")
        if trained := about.get("trained_tests"):
            found.append(f"{results.benchmark_title(name)}: {trained} test questions are train questions.")
    unread = [
        results.run_title(b["model"], b["benchmark"]) for b in records(results.bases) if not b["question_scores"].any()
    ]
    for name in dict.fromkeys(unread):
        found.append(f"{name}: no answer of an untrained model is right. Does the reward read the model's format?")
    for run in records(results.runs[results.runs["status"] == "finished"]):
        name = results.run_title(*(run[key] for key in RUN_KEY))
        if run["clock"] < max(results.budget_seconds.values()):
            found.append(f"{name} ended before the last budget ({run['stopped_by']}, step {run['steps']:.0f}).")
        if run["steps"] <= (first := results.experiment.methods[run["method"]].first_phase_steps or 0):
            found.append(f"{name} never left its first phase of {first} steps.")
    found += sentences(results)
    if others := others_of(results.experiment, Layout(results.root)):
        found.append(f"In no number: {plural(len(others), 'run')} that the experiment does not list, e.g. {others[0]}.")
    if differing := _not_the_method(results):
        found.append(f"Runs that are compared differ in more than the method: {'; '.join(differing)}.")
    if any(str(record.get("commit")).endswith("-dirty") for record in results.provenance.values()):
        found.append("Some runs were made with uncommitted changes.")
    return found


def _not_the_method(results: Results) -> list[str]:
    """What differs between a benchmark's methods within a seed, or between their seeds if a method lacks some.

    Seeds may differ in their base models, questions and files of own code.
    """
    of_seeds = [
        {"base model": origin.get("base_model"), "train split": (origin.get("data") or {}).get("train")}
        | (origin.get("code") or {})
        for origin in results.provenance.values()
    ]
    origins = pd.DataFrame(
        run.model_dump() | origin | (origin.get("packages") or {}) | starts
        for (run, origin), starts in zip(results.provenance.items(), of_seeds, strict=True)
    )
    per_seed = {*chain(*of_seeds)}
    packages = {*chain(*(origin.get("packages") or {} for origin in results.provenance.values()))}
    found: dict[str, list[str]] = {}
    for name in origins.columns.intersection(["srpo", "source", "processor", "gpu", *sorted(packages | per_seed)]):
        for (model, _), here in origins.groupby(["model", "benchmark"]):
            if here[name].nunique() > 1:  # without what is not known
                by_method = here.pivot(index="seed", columns="method", values=name)
                may_lack = name in per_seed and results.experiment.draws_per_seed(str(model))
                if by_method.nunique(axis=1, dropna=may_lack).max() > 1:
                    found.setdefault(name, []).extend(here[name].dropna())
    said = {name: joined(list(dict.fromkeys(values))) for name, values in found.items()}
    return [f"{name} {re.sub('(?<=[0-9a-f]{12})[0-9a-f]{52}', '', values)}" for name, values in said.items()]


def _examples(results: Results) -> list[dict[str, Any]]:
    """The first sample of the first test question of every model and benchmark, by method."""
    *_, budget = results.budget_seconds
    samples = results.samples[results.samples["budget"].isin([BASE, budget])]
    found = []
    for (model, benchmark), here in samples.groupby(["model", "benchmark"], sort=False):
        first = records(here.sort_values(["question", "seed"], kind="stable").head(1))[0]
        of_question = here[here["question"] == first["question"]].sort_values("seed", kind="stable")
        sampled = {row["method"]: row for row in records(of_question.drop_duplicates("method"))}
        there = [name for name in (BASE, *results.plans[str(model)]) if name in sampled]
        answers = [(results.method_title(name), sampled[name]) for name in there]
        truth = shown_answer(results.experiment.benchmarks[str(benchmark)].reward, first["ground_truth"])
        heading = results.run_title(model, benchmark)
        found.append({"heading": heading, "prompt": first["prompt"], "ground_truth": truth, "answers": answers})
    return found


def provenance(results: Results) -> list[tuple[str, str]]:
    """The origin of the runs, and the command that makes them again; several values where runs differ."""
    origins = [origin | (origin.get("packages") or {}) for origin in results.provenance.values()]
    keys = ("srpo", "commit", "python", "machine", "processor", "gpu", "cores", *sorted(PACKAGES))
    facts = [("trained", results.trained), *((key, _distinct(origin.get(key) for origin in origins)) for key in keys)]
    if (registration := registration_of(results.experiment)) is not None:
        facts.append(
            ("registered", f"{registration.date}, commit {registration.commit}, SHA-256 {registration.sha256}")
        )
    seconds = results.runs["wall_seconds"].sum()
    facts += [
        ("training", f"{seconds:,.0f} s of wall time"),
        ("again", f"snakemake --cores all --configfile {results.root}/experiment.yaml"),
    ]
    return [(title, value) for title, value in facts if value not in ("", "None")]


def _distinct(values: Iterable[object]) -> str:
    return "; ".join(dict.fromkeys(str(value) for value in values if value is not None))
