"""Fills the marked blocks of README.md and docs/ from published experiments, from the plan and from the tests.

    python scripts/published.py            # fill them
    python scripts/published.py --check    # fail if a page says something else

A block is ``<!-- srpo KIND ARGUMENTS -->...<!-- end -->``, within a line, where Markdown may show markup as it is, or
over several lines. Kinds:

    table1 NAME             cross-fitted scores, which decide, within the last budget
    differences NAME        SRPO minus the other methods, within the last budget
    verdicts NAME BLOCK     the claims of a block with their verdicts; without BLOCK the primary ones and our questions
    claim NAME CLAIM        a claim of reports/claims.yaml: verdict, estimate, interval, number of base models
    estimate NAME CLAIM     its estimate and interval alone
    collapses NAME          how many runs of each method collapsed
    cost NAME               runs and minutes of a core
    specification NAME      what was run, with commit, day, processor and files
    figure NAME FIGURE      a figure of the report, drawn as docs/NAME-FIGURE.svg, light and dark
    TABLE NAME              any other table of the report, e.g. ``table2``
    specifications NAMES    every SRPO minus GRPO of experiments, of the search and of others, drawn, and as CSV
    doses NAME              mean gaps and gains by dose, of bench/gap.csv
    gap NAME                gain against gap of the same pairs, drawn
    plan ARGUMENTS          what ``srpo plan ARGUMENTS`` prints
    tests FILE              what each test of a file shows

NAME is a folder of ``published/``; while there is none, a block says so. A test refuses an interval outside of a block:
its numbers have no file.
"""

from __future__ import annotations

import argparse
import ast
import colorsys
import hashlib
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import gaps
import matplotlib as mpl
import pandas as pd
import specifications as curves
import yaml
from matplotlib.figure import Figure

from srpo.analysis.clocks import clock_frame
from srpo.analysis.figures import style
from srpo.analysis.load import load_results
from srpo.analysis.outline import COST_TABLES, all_sections
from srpo.analysis.published import unpack
from srpo.analysis.report import claim_row, first_lines
from srpo.analysis.results import Results
from srpo.analysis.tables.table import View
from srpo.analysis.verdicts import findings
from srpo.analysis.write import figure_csv, figure_module, figure_title, make_table, markdown
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_yaml
from srpo.ground.layout import Layout
from srpo.ground.text import duration, joined, plural

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
ALL_TABLES = [*COST_TABLES, *(table for section in all_sections() for table in section.tables)]
BLOCK = re.compile(r"(<!-- srpo (\w+) ([^>]*?) -->)(.*?)(<!-- end -->)", re.DOTALL)
PICTURES: dict[Path, tuple[str, Callable[[], None]]] = {}
"""Pictures of the blocks: the checksum of their numbers, and what draws them."""
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
            if kind in ("plan", "tests") or (ROOT / "published" / arguments[0]).is_dir():
                said = KINDS[kind](*arguments) if kind in KINDS else tables_of(views_of(kind, *arguments))
            else:
                said = f"(The runs of `{arguments[0]}` are not published yet.)"
        except (SrpoError, KeyError, TypeError, OSError, subprocess.CalledProcessError) as error:
            raise SystemExit(f"{page}: {block[1]}: {error}; blocks: {', '.join([*KINDS, *ALL_TABLES])}") from error
        if page.parent != ROOT:
            said = re.sub(r'(\]\(|src="|srcset=")docs/', r"\1", said.replace("](published/", "](../published/"))
        return block[1] + (f"\n\n{said}\n\n" if block[4].startswith("\n") else said) + block[5]

    return BLOCK.sub(current, text)


# ---------------------------------------------------------------- published experiments


@cache
def results_of(name: str) -> Results:
    """The results of a published experiment."""
    with tempfile.TemporaryDirectory() as copy:
        unpack(ROOT / "published" / name, Layout(Path(copy)))
        return load_results(Path(copy))


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


def estimate(name: str, claim: str) -> str:
    lines, several = rows_of(name)[claim]["here"], len(results_of(name).experiment.models) > 1
    return joined([f"{line['model']} " * several + f"{line['text']} {line['interval']}".strip() for line in lines])


def claim(name: str, claim: str) -> str:
    row = rows_of(name)[claim]
    over = row["here"][0]["over"].split(";")[0] if row["here"][0]["interval"] else ""
    return f"{row['finding'].claim.statement}: {row['verdict']}, {estimate(name, claim)} {over}".strip()


def verdicts(name: str, block: str = "") -> str:
    found = [row["finding"] for row in rows_of(name).values()]
    chosen = {f.claim.statement for f in found if (f.claim.block == block if block else f.claim.primary or f.asked)}
    views = views_of("verdicts", name)
    return tables_of([replace(view, rows=[row for row in view.rows if row[0] in chosen]) for view in views])


def collapses(name: str) -> str:
    rows = [row for view in views_of("collapses", name) for row in view.rows if row[1]]
    return "; ".join(f"{label} {texts[0].split(' [')[0]}" for label, texts in rows)


def cost(name: str) -> str:
    runs = results_of(name).runs
    seconds = runs["wall_seconds"].sum() + runs["evaluation_wall_seconds"].sum()
    median = duration(runs["wall_seconds"].median(), digits=2)
    return f"{plural(len(runs), 'run')}, {duration(seconds, 'core', 2)}; a run trains for {median}"


def specification(name: str) -> str:
    results, about = results_of(name), read_yaml(Layout(ROOT / "published" / name).provenance)
    made = f"{plural(about['runs'], 'run')} of commit `{about['commit'][:12]}`, {about['trained']}"
    made += f", on {about['processor']}" if isinstance(about.get("processor"), str) else ""
    return f"{first_lines(results, [])[0]} {made}. Every number: [published/{name}](published/{name})"


def figure(name: str, figure: str) -> str:
    results = results_of(name)
    drawn = figure_module(figure)
    frame = drawn.data(results)
    if figure == "clock_differences":  # a report leaves out measured seconds, which differ by machine
        frame = pd.concat([frame, clock_frame(results, measured=True)], ignore_index=True)
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
    columns = {"gap": "gap"} | {f"gain_{method}": title for method, title in gaps.METHODS.items()}
    means = gaps.dosed(gaps.read(), name).groupby(["benchmark", "dose"])[[*columns]].mean()
    lines = [["benchmark", "examples with a solution", *columns.values()], ["---"] * 2 + ["---:"] * len(columns)]
    lines += [
        [benchmark, f"{dose:.0f} %", *(f"{round(value):+d}" for value in of)]
        for (benchmark, dose), of in zip(means.index, means.to_numpy(), strict=True)
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def gap(name: str) -> str:
    rows = gaps.dosed(gaps.read(), name)
    return picture("Gain against gap, with a line for each method", "gap", figure_csv(rows), partial(gaps.draw, rows))


def picture(title: str, name: str, numbers: str, drawn: Callable[[], Figure]) -> str:
    """A picture with real text, in two files: for light pages and for dark ones.

    Each holds the checksum of its numbers, since other versions of libraries draw other lines.
    """
    data = hashlib.sha256(numbers.encode()).hexdigest()

    def draw(path: Path, dark: bool) -> None:
        with mpl.rc_context(style.rc() | {"svg.fonttype": "none"}), io.StringIO() as file:
            drawn().savefig(file, format="svg", metadata={"Date": None, "Creator": None})
            text = file.getvalue().replace("</defs>", f"</defs>\n<!-- data {data} -->", 1)
        path.write_text(re.sub("#[0-9a-f]{6}", darkened, text) if dark else text)

    names = {False: f"docs/{name}.svg", True: f"docs/{name}-dark.svg"}
    PICTURES.update({ROOT / each: (data, partial(draw, ROOT / each, dark)) for dark, each in names.items()})
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{names[True]}">'
    return f'<picture>{source}<img alt="{title}" src="{names[False]}"></picture>'


def darkened(colour: re.Match[str]) -> str:
    """The colour with its hue on a dark page: white becomes nearly black."""
    hue, light, saturation = colorsys.rgb_to_hls(*mpl.colors.to_rgb(colour[0]))
    return mpl.colors.to_hex(colorsys.hls_to_rgb(hue, 1 - 0.93 * light, saturation))


def data_of(path: Path) -> str | None:
    """The checksum of the numbers in a picture."""
    found = re.search(r"<!-- data (\w+) -->", path.read_text()) if path.is_file() else None
    return found[1] if found else None


# ---------------------------------------------------------------- the plan and the tests


def plan(*arguments: str) -> str:
    command = [sys.executable, "-m", "srpo", "plan", *arguments]
    return f"```\n{subprocess.run(command, capture_output=True, text=True, check=True).stdout}```"


def tests(file: str) -> str:
    found = [node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)]
    shown = {f.name: ast.get_docstring(f) for f in found if f.name.startswith("test_")}
    lines = [text.split("\n\n")[0] if text else name[5:].replace("_", " ") for name, text in shown.items()]
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


KINDS: dict[str, Callable[..., str]] = {
    each.__name__: each
    for each in (
        table1,
        differences,
        verdicts,
        claim,
        estimate,
        collapses,
        cost,
        specification,
        figure,
        specifications,
        doses,
        gap,
        plan,
        tests,
    )
}


if __name__ == "__main__":
    sys.exit(main())
