"""Fills the marked blocks of README.md and docs/ from published experiments.

    python scripts/published.py            # fill them
    python scripts/published.py --check    # fail if a page says something else

A block is ``<!-- srpo KIND ARGUMENTS -->...<!-- end -->``, within a line, where Markdown may show markup as it is, or
over several lines. Kinds:

    table1 NAME             cross-fitted scores, which decide, within the last budget
    differences NAME        SRPO minus the other methods, within the last budget
    verdicts NAME BLOCK     the claims of a block with their verdicts; without BLOCK the primary ones and our questions
    estimate NAME CLAIM     a claim's estimate and interval (reports/claims.yaml); MODEL after it: of this model alone
    decided NAME ONE OTHER  on how many benchmarks a method ends above another if all are decided together
    collapses NAME          how many runs of each method collapsed
    specification NAME      what was run, with commit, day, processor and files
    figure NAME FIGURE      a figure of the report, drawn as docs/NAME-FIGURE.svg
    TABLE NAME              any other table of the report, e.g. ``table2``
    specifications NAMES    every SRPO minus GRPO of experiments, of the search and of others, drawn, and as CSV
    averages NAME           each method's in-training maxima at the budgets, average over the benchmarks
    doses NAME              gaps, scores, differences and collapses by dose, with a picture
    gap_or_dose NAME        which of the two tells SRPO minus GRPO better

NAME is a folder of ``published/``; while there is none, a block says so. A test refuses an interval outside of a block:
its numbers have no file.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import doses as numbers_of
import matplotlib as mpl
import specifications as curves
import yaml
from matplotlib.figure import Figure

from srpo.analysis.figures import style
from srpo.analysis.load import load_results
from srpo.analysis.outline import COST_TABLES, all_sections
from srpo.analysis.published import unpack
from srpo.analysis.report import claim_row, first_lines
from srpo.analysis.results import BASE, Results
from srpo.analysis.statistics.deciding import ALPHA, holm
from srpo.analysis.tables.table import View
from srpo.analysis.verdicts import findings
from srpo.analysis.write import figure_csv, figure_module, figure_title, make_table, markdown
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_yaml
from srpo.ground.layout import Layout
from srpo.ground.text import joined

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL_TABLES = [*COST_TABLES, *(table for section in all_sections() for table in section.tables)]
BLOCK = re.compile(r"(<!--\s+srpo\s+(\w+)\s+([^>]*?)\s+-->)(.*?)(<!--\s+end\s+-->)", re.DOTALL)
PICTURES: dict[Path, tuple[str, Callable[[], None]]] = {}
"""Pictures of the blocks: the checksum of their numbers, and what draws them."""
METHODS = ("grpo", "sdpo", "srpo")
FILES: dict[Path, str] = {}
"""Files of numbers beside the pages."""


def main(arguments: list[str] | None = None) -> int:
    """Fill or check the pages; the exit status."""
    parser = argparse.ArgumentParser(description="Fills the marked blocks of the pages.")
    parser.add_argument("--check", action="store_true", help="fail if a page is not current, and write nothing")
    check = parser.parse_args(arguments).check
    texts = {page: filled(page.read_text(), page) for page in PAGES}
    changes = {page: partial(page.write_text, text) for page, text in texts.items() if text != page.read_text()}
    written = {path: path.read_text() if path.is_file() else None for path in FILES}
    changes |= {path: partial(path.write_text, text) for path, text in FILES.items() if text != written[path]}
    changes |= {path: draw for path, (data, draw) in PICTURES.items() if data != data_of(path)}
    for path, change in changes.items():
        print(f"{path.relative_to(ROOT)}: {'not current; run python scripts/published.py' if check else 'written'}")
        if not check:
            change()
    return int(check and bool(changes))


def filled(text: str, page: Path) -> str:
    """A page's text with its blocks as they are now. A block over several lines stays apart from its markers."""

    def current(block: re.Match[str]) -> str:
        kind, arguments = block[2], block[3].split()
        try:
            if (ROOT / "published" / arguments[0]).is_dir():
                said = KINDS[kind](*arguments) if kind in KINDS else tables_of(views_of(kind, *arguments))
            else:
                said = f"(The runs of `{arguments[0]}` are not published yet.)"
        except (SrpoError, KeyError, TypeError, OSError) as error:
            raise SystemExit(f"{page}: {block[1]}: {error}; blocks: {', '.join([*KINDS, *ALL_TABLES])}") from error
        if page.parent != ROOT:
            said = re.sub(r"(\]\()docs/", r"\1", said.replace("](published/", "](../published/"))
        return block[1] + (f"\n\n{said}\n\n" if block[4].startswith("\n") else said) + block[5]

    return BLOCK.sub(current, text)


# ---------------------------------------------------------------- published experiments


@cache
def results_of(name: str) -> Results:
    """The results of a published experiment."""
    with tempfile.TemporaryDirectory() as copy:
        layout = Layout(Path(copy))
        unpack(ROOT / "published" / name, layout)
        return load_results(layout.folder)


@cache
def rows_of(name: str) -> dict[str, dict[str, Any]]:
    """The report's row of each claim."""
    results = results_of(name)
    return {finding.claim.id: claim_row(finding, results) for finding in findings(results)}


def at_the_end(view: View, intervals: bool = True) -> str:
    """The columns of the last budget; without ``intervals`` only the average, the first one, has its interval."""
    last = view.columns[-1][1]
    kept = [i for i, (_, budget) in enumerate(view.columns) if budget == last]
    rows = []
    for label, texts in view.rows:
        # the untrained model's score stands in the first of a benchmark's columns
        shown = [texts[i] or next(filter(None, reversed(texts[:i])), "") for i in kept if texts]
        if not intervals:
            shown = [shown[0], *(type(text)(text.split(" [")[0]) for text in shown[1:])] if shown else []
        rows.append((label, shown))
    return markdown(replace(view, columns=[view.columns[i][0] for i in kept], rows=rows, title="")).strip()


def views_of(table: str, name: str) -> list[View]:
    """A table of the report."""
    return list(make_table(table, results_of(name)).shown)


def tables_of(views: list[View]) -> str:
    """Tables of Markdown, with the model's name above each if there are several."""
    return "\n".join(markdown(view if len(views) > 1 else replace(view, title="")) for view in views).strip()


def table1(name: str) -> str:
    return at_the_end(next(v for v in views_of("table1", name) if v.title.startswith("Cross-fitted")), intervals=False)


def differences(name: str) -> str:
    return "\n\n".join(map(at_the_end, views_of("differences", name)))


def estimate(name: str, claim: str, model: str = "") -> str:
    """The number of a claim; of several models each with its name, or of ``model`` alone."""
    here, models = rows_of(name)[claim]["here"], results_of(name).experiment.models
    if model:
        return next(line["text"] for line in here if line["model"] == models[model].title)
    return joined([f"{line['model']} " * (len(models) > 1) + line["text"] for line in here])


def verdicts(name: str, block: str = "") -> str:
    found = [row["finding"] for row in rows_of(name).values()]
    chosen = {f.claim.statement for f in found if (f.claim.block == block if block else f.claim.primary or f.asked)}
    views = views_of("verdicts", name)
    return tables_of([replace(view, rows=[row for row in view.rows if row[0] in chosen]) for view in views])


def collapses(name: str) -> str:
    rows = [row for view in views_of("collapses", name) for row in view.rows if row[1]]
    counts = [(label, *texts[0].split(" [")[0].partition(", ")) for label, texts in rows]
    return "; ".join(f"{label}: {all_of}" + (f" ({clear})" if clear else "") for label, all_of, _, clear in counts)


def specification(name: str) -> str:
    results, about = results_of(name), read_yaml(Layout(ROOT / "published" / name).provenance)
    made = f"Commit `{about['commit'][:12]}` trained the runs on {about['trained']}"
    made += f", on {about['processor']}" if isinstance(about.get("processor"), str) else ""
    return f"{first_lines(results, [])[0]} {made}. [All numbers](published/{name})"


def figure(name: str, figure: str) -> str:
    results = results_of(name)
    drawn = figure_module(figure)
    frame = drawn.data(results)
    if frame.empty:
        raise SrpoError(f"nothing to draw: {name} has no runs for it")
    draw = partial(drawn.draw, figure_title(drawn, results), results, frame)
    return picture(drawn.TITLE, f"{name}-{figure}", figure_csv(frame), draw)


def specifications(*names: str) -> str:
    tuned = yaml.safe_load((ROOT / "configs" / "tuned" / "miniature.yaml").read_text())
    there = [name for name in names if (ROOT / "published" / name).is_dir()]
    frame = curves.curve({name: results_of(name) for name in there}, tuned)
    numbers, path = figure_csv(frame), ROOT / "docs" / "specifications.csv"
    FILES[path] = numbers
    drawn = picture("Every SRPO minus GRPO, by specification", path.stem, numbers, partial(curves.draw, frame))
    return f"{drawn}\n\nThe numbers: [specifications.csv](docs/{path.name})"


def doses(name: str) -> str:
    results = results_of(name)
    rows, pairs = numbers_of.by_dose(results), numbers_of.pairs(results)
    names = [*numbers_of.CLAIMS.values()]
    lines = [["dose", "gap", "untrained; GRPO, SDPO, SRPO", *names, "collapsed"], ["---"] * 7]
    for dose, of in rows.groupby("dose"):
        model = of["model"].iloc[0]
        scores = [numbers_of.score(results, model, method) for method in (BASE, *METHODS)]
        untrained, *ends = [f"{score:.0f}" for score in scores]
        shown = of.set_index("difference").loc[names]
        texts = [f"{e.value:+.1f} [{e.low:+.1f}, {e.high:+.1f}], {e.verdict}" for e in shown.itertuples()]
        gap = pairs.loc[pairs["dose"] == dose, "gap"].mean()
        fallen = results.run_ends.query("model == @model").groupby("method")["collapsed"].sum()[[*METHODS]]
        counts = ", ".join(map(str, fallen))
        lines.append([f"{dose:.0f} %", f"{gap:+.0f}", f"{untrained}; {', '.join(ends)}", *texts, counts])
    drawn = picture(
        "When does routing help?", name, figure_csv(rows) + figure_csv(pairs), partial(numbers_of.draw, rows, pairs)
    )
    return f"{drawn}\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def gap_or_dose(name: str) -> str:
    pairs = numbers_of.pairs(results_of(name))
    told, (by_gap, by_dose, count) = numbers_of.told(pairs), numbers_of.signs(pairs)
    lowest, *others = (f"{of:+.2f}" for of in numbers_of.within(pairs))
    gained, above, up = numbers_of.followed(pairs, "better")
    lost, below, down = numbers_of.followed(pairs, "worse")
    return (
        f"The gap's correlation is {told.gap:.2f}, the dose's is {told.dose:.2f}: a difference of {told.lead:+.2f} "
        f"[{told.low:+.2f}, {told.high:+.2f}]. SRPO minus GRPO has the gap's sign in {by_gap} of {count} pairs. SRPO "
        f"minus GRPO has the sign of its dose's mean in {by_dose} pairs. The gap's correlation with SRPO minus GRPO "
        f"is {lowest} at dose 0 %, and {joined(others)} at the doses 10, 30 and 60 %.\n\n"
        "| interval of the gap | pairs | SDPO minus untrained has this sign | SRPO minus GRPO has this sign |\n"
        "| --- | ---: | ---: | ---: |\n"
        f"| below 0 | {down} | {lost} | {below} |\n| above 0 | {up} | {gained} | {above} |"
    )


def averages(name: str) -> str:
    results = results_of(name)
    every = [*results.experiment.benchmarks]
    methods = [m for m in results.experiment.methods if any(plan.get(m) == every for plan in results.plans.values())]

    def shown(model: str, method: str, *budgets: str) -> str:
        found = (results.estimate(model, {(method, budget): 1.0}, every, "in_training") for budget in budgets)
        return ", ".join(f"{each.value:.1f}" for each in found if each)

    lines = [f"| | {' | '.join(map(results.method_title, methods))} |", f"| --- |{' --- |' * len(methods)}"]
    for model in results.experiment.models:
        label = f"{results.experiment.models[model].title}, untrained {shown(model, BASE, BASE)}"
        cells = [shown(model, m, *results.budget_seconds) if m in results.plans[model] else "" for m in methods]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def decided(name: str, one: str, other: str) -> str:
    results = results_of(name)
    (model,), last = results.experiment.models, list(results.budget_seconds)[-1]
    over = results.benchmarks(model, (one, other))
    found = [results.estimate(model, {(one, last): 1.0, (other, last): -1.0}, [each]) for each in over]
    p_values = holm([each.p_above(0) for each in found if each])
    return f"{int((p_values <= ALPHA).sum())} of {len(over)} benchmarks"


def picture(title: str, name: str, numbers: str, drawn: Callable[[], Figure]) -> str:
    """A picture with real text.

    It holds the checksum of its numbers, since other versions of libraries draw other lines.
    """
    data, path = hashlib.sha256(numbers.encode()).hexdigest(), ROOT / f"docs/{name}.svg"

    def draw() -> None:
        with mpl.rc_context(style.rc() | {"svg.fonttype": "none"}), io.StringIO() as file:
            drawn().savefig(file, format="svg", metadata={"Date": None, "Creator": None})
            path.write_text(file.getvalue().replace("</defs>", f"</defs>\n<!-- data {data} -->", 1))

    PICTURES[path] = data, draw
    return f"![{title}](docs/{name}.svg)"


def data_of(path: Path) -> str | None:
    """The checksum of the numbers in a picture."""
    found = re.search(r"<!-- data (\w+) -->", path.read_text()) if path.is_file() else None
    return found[1] if found else None


KINDS: dict[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        table1,
        differences,
        verdicts,
        estimate,
        averages,
        decided,
        collapses,
        specification,
        figure,
        specifications,
        doses,
        gap_or_dose,
    )
}


if __name__ == "__main__":
    sys.exit(main())
