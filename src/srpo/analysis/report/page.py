"""The report: one self-contained HTML page that makes no request. Every sentence is computed."""

import base64
import hashlib
import json
import struct
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
import pandas as pd

from srpo.analysis.figures.curves import score_lines, untrained_scores
from srpo.analysis.figures.forest import draw_forest, in_words
from srpo.analysis.figures.panels import budget_marks, clock_unit
from srpo.analysis.figures.registry import FigureData, figure_csv, figure_data
from srpo.analysis.figures.style import method_styles
from srpo.analysis.outline import Section, sections_of
from srpo.analysis.report.first_look import answers, card, command, distinct, stored, what_was_run
from srpo.analysis.report.summary import background, interim, remarks
from srpo.analysis.results.claims import Claim
from srpo.analysis.results.estimates import Estimate
from srpo.analysis.results.load import RUN_KEY, Results, records
from srpo.analysis.results.matrix import AVERAGE, BASE, planned
from srpo.analysis.results.registered import registration_of
from srpo.analysis.results.titles import benchmark_title, method_title, run_title
from srpo.analysis.results.verdicts import UNTESTED, VERDICTS, Finding, Outcome, contains_the_papers, findings
from srpo.analysis.tables.clock_tables import measured_clocks_table
from srpo.analysis.tables.cost_tables import cost_table
from srpo.analysis.tables.grid import interval as interval_text
from srpo.analysis.tables.grid import number
from srpo.analysis.tables.registry import build_tables
from srpo.analysis.tables.table import NOT_COMPARABLE, Table, table_csv
from srpo.files import write_text
from srpo.repository import REPORTS
from srpo.rewards import shown_answer
from srpo.text import duration, joined, minus, plural, printable

_DOTS_PER_CSS_PIXEL = 150 / 96  # figures are saved at 150 dots per inch


NO_DATA = "No data (yet)."

SAME = "same claim"
"""What the page says instead of a verdict if a claim is another one in this experiment."""

ZERO = 1e-6
"""A figure of smaller numbers only is a sentence on the page."""


@dataclass(frozen=True)
class Picture:
    """A figure of the page with its data; without ``image``, ``missing`` says why.

    ``words`` are its rows as a phone shows them, ``curves`` its lines as JSON for ``curves.js``.
    """

    drawn: FigureData
    missing: str = ""
    image: str = ""
    width: int = 0
    words: tuple[dict[str, Any], ...] = ()
    curves: str = ""


def write_report(results: Results, out_path: Path, figures_dir: Path | None = None) -> None:
    """Write the report, and its summary as an ``.rst`` file next to it, which ``snakemake --report`` shows.

    Args:
        figures_dir: where :func:`~srpo.analysis.figures.registry.write_figures` wrote; by default ``figures/`` next
            to the report. If a figure is missing, the page names it.
    """
    out_path = Path(out_path)
    write_text(out_path, render(results, figures_dir or out_path.parent / "figures"))
    found = findings(results)
    sentences = [what_was_run(results), *answers(results, found), *background(results, found)]
    write_text(out_path.with_suffix(".rst"), "\n\n".join(sentences) + "\n")


def render(results: Results, figures_dir: Path) -> str:
    """The page as text."""
    found, tables, cost = findings(results), build_tables(results), cost_table(results)
    script = "".join(f"{{{(REPORTS / name).read_text()}}}\n" for name in ("sort.js", "curves.js"))
    script = (REPORTS / "uplot" / "uPlot.js").read_text() + script
    pictures = {name: _picture(drawn, figures_dir, results) for name, drawn in figure_data(results).items()}
    sections = _shown_sections(results, found, tables, pictures)
    page = (
        environment()
        .get_template("report.html.j2")
        .render(
            experiment=results.experiment,
            css=css(),
            script=jinja2.utils.markupsafe.Markup(script),
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            sections=sections,
            shown={name for section in sections for name in (*section.tables, *section.figures)},
            not_comparable=None if results.experiment.comparable_with_paper else NOT_COMPARABLE,
            what_was_run=what_was_run(results),
            answers=answers(results, found),
            card=card(results),
            background=background(results, found),
            claims={section.block: _block(section, found, results) for section in sections if section.block},
            interim=interim(results),
            primary=sum(finding.claim.primary and finding.verdict != "not tested" for finding in found),
            remarks=remarks(results),
            tables=tables,
            pictures=pictures,
            command=command(results),
            stored=stored(results),
            cost=cost,
            clocks_measured=measured_clocks_table(results),
            started=results.runs.dropna(subset=["wall_seconds"]),
            results=results,
            examples=_examples(results),
            provenance=_provenance(results),
            checksums=_checksums(results),
        )
    )
    return page.lstrip()


def _shown_sections(
    results: Results, found: list[Finding], tables: dict[str, Table], pictures: dict[str, Picture]
) -> list[Section]:
    """The sections; when all runs are finished and evaluated, without what is still empty: tables, figures, and the
    claims of a section of which none is tested.

    Our questions need methods that few experiments have: an untested section of theirs has what is not empty, too.
    """
    sections = sections_of(results.experiment, bool(results.gaps))
    tested = {f.claim.block for f in found if f.verdict != "not tested"}
    done = len(results.evaluations[RUN_KEY].drop_duplicates()) == len(results.runs)
    done = done and bool((results.runs["status"] == "finished").all())
    kept = []
    for section in sections:
        untested = section.block not in (None, "primary", *tested)
        waits = not (done or (untested and section.block == "questions"))
        filled = {
            "block": section.block if waits or not untested else None,
            "tables": tuple(name for name in section.tables if tables[name].grids or waits),
            "figures": tuple(name for name in section.figures if pictures[name].missing != NO_DATA or waits),
        }
        if waits or section.template or any(filled.values()):
            kept.append(section.model_copy(update=filled))
    return kept


@cache
def environment() -> jinja2.Environment:
    """Templates with autoescaping; ``printable`` for text that models wrote."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(REPORTS),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"printable": printable, "minus": minus, "duration": duration, "number": number}
    made.filters["table_csv"] = lambda table: _csv_uri(table_csv(table.frame, table.digits))
    made.filters["figure_csv"] = lambda frame: _csv_uri(figure_csv(frame))
    return made


def css() -> Any:
    """The style sheet; it is a file of this repository, so it is not escaped."""
    sheets = (REPORTS / "uplot" / "uPlot.css", REPORTS / "report.css")
    return jinja2.utils.markupsafe.Markup("\n".join(path.read_text() for path in sheets))


def _csv_uri(text: str) -> str:
    """CSV embedded in the page; base64 would be a third larger."""
    return f"data:text/csv;charset=utf-8,{quote(text, safe=',.+-_ ()')}"


# ---------------------------------------------------------------- claims


def _block(section: Section, found: list[Finding], results: Results) -> dict[str, Any]:
    """The claims of a section as rows, without our questions that this experiment does not ask; all rows, counted."""
    here = [finding for finding in found if finding.claim.block == section.block]
    here = [finding for finding in here if finding.asked or not finding.claim.ours]
    shown = Counter("checks" if finding.claim.check else _shown(finding) for finding in here)
    counts = [(name, shown[name]) for name in (*VERDICTS, SAME, "checks") if name in shown]
    return {"rows": [claim_row(finding, results) for finding in here], "counts": counts}


def _shown(finding: Finding) -> str:
    return SAME if finding.same else finding.verdict


def claim_row(finding: Finding, results: Results) -> dict[str, Any]:
    """A claim in the table of claims: what was found ``here``, a line per model, and the verdict as it is said."""
    return {"finding": finding, "here": _here(finding, results), "verdict": _shown(finding)}


def _here(finding: Finding, results: Results) -> list[dict[str, str]]:
    """One line per model, or a single line if all models have the same reason for not being tested."""
    reasons = {outcome.reason for outcome in finding.outcomes}
    lines = [_line(outcome, finding.claim, results) for outcome in finding.outcomes]
    if len(lines) > 1 and finding.verdict in UNTESTED and len(reasons) == 1:
        return [lines[0] | {"model": "all models"}]
    return lines


def _line(outcome: Outcome, claim: Claim, results: Results) -> dict[str, str]:
    shared = {"model": results.experiment.models[outcome.model].title, "verdict": outcome.verdict}
    if outcome.estimate is None:
        return shared | {"text": outcome.reason, "interval": "", "over": ""}
    estimate, what = outcome.estimate, ""
    ends = interval_text(estimate.low, estimate.high, claim.digits, claim.signed) if estimate.covers_runs else ""
    one_run = estimate.has_interval and not estimate.covers_runs
    beside = [] if one_run else _beside(outcome, claim, results.experiment.comparable_with_paper)
    if claim.quantity.kind == "best_on_each":
        rivals = [method_title(results, rival) for _, rival, _ in claim.quantity.terms[1:]]
        what = f"smallest lead over {joined(rivals)}: "
    return shared | {
        "text": f"{what}{number(estimate.value, claim.digits, claim.signed)} {claim.unit}",
        "interval": ends,
        "over": "; ".join(filter(None, (_over(estimate), _on_benchmarks(outcome, claim), *beside))),
    }


def _beside(outcome: Outcome, claim: Claim, comparable: bool) -> list[str]:
    """What decides beside the estimate, whether a comparable interval contains the paper's values, the reason."""
    found = []
    if (other := outcome.over_benchmarks) is not None and other.has_interval and outcome.several_seeds:
        found.append(f"over new benchmarks {interval_text(other.low, other.high, claim.digits, claim.signed)}")
    if (clear := outcome.clear) is not None:
        ends = interval_text(*clear.interval(), claim.digits)
        found.append(f"{clear.successes} of {clear.runs} collapsed clearly, percent {ends}")
    papers = contains_the_papers(claim, outcome) if comparable else {}
    for inside, verb in ((True, "contains"), (False, "does not contain")):
        if named := [model for model, contained in papers.items() if contained is inside]:
            found.append(f"the interval {verb} the paper's value ({joined(named)})")
    return [*found, outcome.reason]


def _over(estimate: Estimate) -> str:
    if not estimate.has_interval:
        return "no interval"
    if not estimate.covers_runs:
        return "one run each, no interval"
    count, spread = estimate.count, estimate.spread
    widened = f", widened by a run SD of {number(spread.sd)} ({spread.dof:.0f} degrees of freedom)" if spread else ""
    units = {
        "base model and question": f"over {plural(count, 'base model')} and the test questions",
        "base model": f"over {plural(count, 'base model')}",
        "run": f"of {plural(count, 'run')}",
        "seed and question": f"over {count} seeds per method and the test questions",
        "seed": f"over {plural(count, 'seed')} per method",
        "question": f"over {plural(count, 'question')}",
    }
    return units[estimate.meaning.removesuffix(", run SD")] + widened


def _on_benchmarks(outcome: Outcome, claim: Claim) -> str:
    """The number of benchmarks on which the rule is satisfied, and the number of measured ones."""
    parts = []
    if outcome.benchmarks > 1:
        what = "ahead" if claim.quantity.kind == "best_on_each" else "the estimate agrees"
        own = f", the interval on {outcome.holding}" if outcome.estimate and outcome.estimate.covers_runs else ""
        parts.append(f"{what} on {outcome.agreeing} of {outcome.benchmarks} benchmarks{own}")
    if outcome.benchmarks < outcome.of_benchmarks:
        parts.append(f"{outcome.benchmarks} of {outcome.of_benchmarks} benchmarks measured")
    return "; ".join(parts)


# ---------------------------------------------------------------- figures


def _picture(drawn: FigureData, folder: Path, results: Results) -> Picture:
    name, frame = drawn.spec.name, drawn.frame
    if frame.empty:
        return Picture(drawn, NO_DATA)
    if "value" in frame and (largest := frame["value"].abs().max()) < ZERO:
        return Picture(drawn, f"every value is 0{f' (at most {largest:.0e})' if largest else ''}.")
    if not (path := folder / f"{name}.png").is_file():
        return Picture(drawn, f"{path.name} has not been drawn.")
    content = path.read_bytes()
    (pixels,) = struct.unpack(">I", content[16:20])  # a PNG's width stands at this place
    image = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    curves = _curves(frame, results) if name == "learning_curves" else ""
    return Picture(drawn, "", image, round(pixels / _DOTS_PER_CSS_PIXEL), _words(drawn, results), curves)


def _curves(frame: pd.DataFrame, results: Results) -> str:
    """The lines of the learning curves as JSON, a panel per model and benchmark: what the drawn figure has too."""
    (size, unit), base = clock_unit(results), untrained_scores(results)
    styles = method_styles(results.experiment.methods)
    marks, end = budget_marks(results)
    panels = []
    for model, benchmark in results.experiment.bases():
        drawn = score_lines(results, frame, model, benchmark)
        if not drawn:
            continue
        names = [results.experiment.models[model].title] * (len(results.experiment.models) > 1)
        names += [benchmark_title(results, benchmark)] * (not names or len(results.experiment.benchmarks) > 1)
        title = " · ".join(names)
        lines = []
        for line in drawn:
            look, points = styles[line.method], line.points
            found: dict[str, Any] = {"name": method_title(results, line.method), "colour": look["color"]}
            found["dash"] = [] if look["linestyle"] == "-" else [2 * length for length in look["linestyle"][1]]
            found |= {"x": _rounded(points["clock"] / size, 3), "y": _rounded(points["value"], 2)}
            if points["low"].notna().any():
                found |= {end: _rounded(points[end], 1) for end in ("low", "high")}
            if len(line.alarms):
                crosses = _rounded(line.alarms["clock"] / size, 3), _rounded(line.alarms["value"], 1)
                found["alarms"] = [*zip(*crosses, strict=True)]
            lines.append(found)
        untrained = base.get((model, benchmark))
        panels.append({"title": title, "lines": lines, "base": None if untrained is None else round(untrained, 2)})
    budgets = [(name, round(place, 3)) for name, place in marks]
    return json.dumps({"panels": panels, "unit": unit, "budgets": budgets, "end": end})


def _rounded(values: pd.Series, digits: int) -> list[float | None]:
    return [None if pd.isna(value) else round(float(value), digits) for value in values]


def _words(drawn: FigureData, results: Results) -> tuple[dict[str, Any], ...]:
    """The differences of a forest plot, each with its ``text``; nothing for another figure."""
    if drawn.spec.draw is not draw_forest:
        return ()
    frame = drawn.frame[drawn.frame["series"] == AVERAGE]
    ends = {end: frame[end].fillna(frame["value"]) for end in ("low", "high")}
    models = results.experiment.models
    named = {name: f"{model.title}, " * (len(models) > 1) for name, model in models.items()}
    said = [f"{named[row['model']]}{row['difference']}: {in_words(row)}, {row['verdict']}" for row in records(frame)]
    return tuple(records(frame.assign(text=said, **ends)))


# ---------------------------------------------------------------- samples


def _examples(results: Results) -> list[dict[str, Any]]:
    """The first sample of the first test question, for every model and benchmark that has samples, by method."""
    budget = list(results.experiment.training.budget_seconds)[-1]
    found = (_example(results, model, benchmark, budget) for model, benchmark in results.experiment.bases())
    return [example for example in found if example]


def _example(results: Results, model: str, benchmark: str, budget: str) -> dict[str, Any] | None:
    samples = results.samples
    here = samples[(samples["model"] == model) & (samples["benchmark"] == benchmark)]
    here = here[here["budget"].isin([BASE, budget])].sort_values(["question", "seed"], kind="stable")
    if here.empty:
        return None
    here = here[here["question"] == here["question"].iloc[0]]
    methods = [BASE, *(m for m, benchmarks in planned(results, model).items() if benchmark in benchmarks)]
    sampled = {row["method"]: row for row in records(here.drop_duplicates("method"))}
    answers = [(method_title(results, method), sampled.get(method)) for method in methods]
    first = records(here.head(1))[0]
    truth = shown_answer(results.experiment.benchmarks[benchmark].reward, first["ground_truth"])
    return {"heading": run_title(results, model, benchmark), "answers": answers, **first, "ground_truth": truth}


# ---------------------------------------------------------------- provenance


def _provenance(results: Results) -> list[tuple[str, str]]:
    """The recorded origin of the runs; several values where runs differ."""
    facts = []
    if records := list(results.provenance.values()):
        named = {"commit": "Commit", "srpo": "srpo", "python": "Python", "machine": "Machine", "processor": "Processor"}
        facts = [(title, distinct(record.get(key) for record in records)) for key, title in named.items()]
        packages = sorted({name for record in records for name in record.get("packages") or {}})
        facts += [(name, distinct((r.get("packages") or {}).get(name) for r in records)) for name in packages]
        run = results.experiment.execution
        how = f"{run.driver}, {plural(run.ranks, 'rank')}, {run.precision}, rollouts by {run.rollout_engine}"
        facts.append(("Driver", how))
    if registered := registration_of(results.experiment):
        made = f"configs/registered.yaml, {registered.date}, analysis of commit {registered.commit}"
        facts += [("Registered", made), ("SHA-256 of that file", registered.sha256)]
    return [(title, value) for title, value in facts if value not in ("", "None")]


def _checksums(results: Results) -> list[tuple[str, str]]:
    """What the runs started from: base models and files of questions, which may differ by seed."""
    found: dict[tuple[str, str], list[int]] = {}
    for run, record in results.provenance.items():
        benchmark, model = benchmark_title(results, run.benchmark), results.experiment.models[run.model]
        files = {f"{benchmark}, {split}": sha for split, sha in (record.get("data") or {}).items()}
        for name, sha in {model.base_model(run.seed).title: record.get("base_model"), **files}.items():
            if sha:
                found.setdefault((name, str(sha)), []).append(run.seed)
    several = Counter(name for name, _ in found)
    seeds = {key: ", ".join(map(str, dict.fromkeys(of))) for key, of in found.items()}
    return [(f"{name}, seed {seeds[name, sha]}" if several[name] > 1 else name, sha) for name, sha in found]
