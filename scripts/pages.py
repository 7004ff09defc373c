"""Writes the tables of the pages that follow from configuration and code.

    python scripts/pages.py            # write them
    python scripts/pages.py --check    # fail if a page has others

A table stands between its comment, ``<!-- methods -->``, and the next empty line. What a file of configuration
is for is the first clause of its leading comment. ``docs/numbers.txt`` lists all numbers of the pages outside of the
blocks that ``scripts/published.py`` fills, and the checksums of files that nothing here makes again: an edit that
changes a number by accident shows there.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import textwrap
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import board
import planted_errors

import published
from srpo.algorithm.method import Method
from srpo.experiment.compose import load_experiment
from srpo.ground.repository import CONFIGS
from srpo.hosts.functional import load_method

DOCS = CONFIGS.parent / "docs"
STORED = ("bench/*.csv", "bench/h100/*.[!m]*", "configs/tuned/*.yaml", "reports/reference/*.csv")
"""Files of numbers beside ``published/``, which has its own checksums."""


def main(arguments: list[str] | None = None) -> int:
    """Write or check the pages.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(
        description="Writes the tables of the pages that follow from configuration and code."
    )
    parser.add_argument("--check", action="store_true", help="fail if a page is not current, and write nothing")
    check = parser.parse_args(arguments).check
    old = []
    for (name, mark), table in TABLES.items():
        page = DOCS / name
        before = page.read_text()
        now, found = re.subn(
            rf"(<!-- {mark} -->\n\n).+?(?=\n\n)", lambda m, t=table: m[1] + t(), before, flags=re.DOTALL
        )
        if found != 1:
            sys.exit(f"{page}: {found} places <!-- {mark} -->, 1 expected")
        if now != before:
            old.append(f"{name}, <!-- {mark} -->")
            if not check:
                page.write_text(now)
    numbers = DOCS / "numbers.txt"
    if numbers.read_text() != (now := numbers_of_pages()):
        old.append(numbers.name)
        if not check:
            numbers.write_text(now)
    if check and old:
        print(f"not current: {'; '.join(old)}: run python scripts/pages.py", file=sys.stderr)
    return int(check and bool(old))


def methods() -> str:
    """A row per method file: what it is, and where each case goes."""
    files = sorted(
        CONFIGS.glob("methods/**/*.yaml"), key=lambda file: (file.parent.name != "paper", file.parent, file.stem)
    )
    rows = [(f"`{file.stem}`", purpose(file), branches(load_method(file.stem))) for file in files]
    return grid(("method", "what", "branch of each case"), rows)


def branches(method: Method) -> str:
    """The branches of the four cases, or the one of all; those of both phases."""
    tables = []
    for phase in method.phases:
        names = phase.routing.branches
        tables.append(names[:1] if len(set(names)) == 1 else names)
    return ", then ".join("/".join(table) for table in tables)


def experiments() -> str:
    """A row per shipped experiment: what it is for, its number of runs, and the devices of a run."""
    rows = []
    for file in CONFIGS.glob("experiments/**/*.yaml"):
        experiment = load_experiment(file)
        gpus = experiment.execution.ranks if experiment.scale == "paper" else 0
        rows.append((gpus, experiment.name, purpose(file), len(experiment.runs())))
    return grid(
        ("experiment", "what it is for", "runs", "a run needs"),
        [
            (f"`{name}`", what, str(runs), f"{gpus} GPU{'s' * (gpus > 1)}" if gpus else "CPU")
            for gpus, name, what, runs in sorted(rows)
        ],
    )


def packages() -> str:
    """A row per package of ``src/srpo``: the first sentence of its docstring."""
    rows = []
    for file in sorted((CONFIGS.parent / "src" / "srpo").glob("*/__init__.py")):
        text = " ".join((ast.get_docstring(ast.parse(file.read_text())) or "").split())
        said = first_clause(text.replace("``", "`"), ".;").rstrip(".;")
        rows.append((f"`{file.parent.name}/`", re.sub(r" \(docs/.*?\)", "", said)))
    return grid(("room", "what it is"), rows)


def planted() -> str:
    """A row per planted error that public code has had: what is wrong, and whose code."""
    public = [each for each in planted_errors.errors() if each.made_in and not each.made_in.startswith("this")]
    rows = [(each.error, each.made_in) for each in public]
    return grid(("error", "made in"), rows)


def differences() -> str:
    """A row per difference of two methods: the paper's, and those of others with what may be chance."""
    rows, names = [], {"srpo": "SRPO", "grpo": "GRPO", "sdpo": "SDPO"}
    for one, other, when, hours in board.DIFFERENCES:
        paper = ", ".join(
            f"{model.removeprefix('Qwen3-')} {lead:+.1f}"
            for model in board.PAPERS_MODELS
            for lead in [board.papers_average(model, one, hours) - board.papers_average(model, other, hours)]
        )
        found = board.comparisons(board.papers(board.reproductions()), (one, other), when)
        at = "at the best validation" if "best" in when else "after a short training"
        rows.append((f"{names[one]} minus {names[other]}, {at}", paper, "; ".join(map(str, found))))
    return grid(("difference", "the paper", "others"), rows)


def numbers_of_pages() -> str:
    """The numbers of each page in their order, but those of published experiments; checksums of stored files."""
    lines = []
    for page in published.PAGES:
        found = re.findall(r"\d+(?:[.,]\d+)*", published.BLOCK.sub("", page.read_text()))
        lines += [page.name, *textwrap.wrap(" ".join(found), 118, initial_indent="  ", subsequent_indent="  ")]
    stored = (path for pattern in STORED for path in sorted(CONFIGS.parent.glob(pattern)))
    lines += [f"{path.relative_to(CONFIGS.parent)} {sha256(path.read_bytes()).hexdigest()}" for path in stored]
    return "\n".join([*lines, ""])


def purpose(file: Path) -> str:
    """The first clause of the comment at the head of a file; a colon ends it after six words."""
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    sentence = first_clause(" ".join(lines), ".?;")
    sentence = re.sub(r"^((?:\S+ ){5,}?\S+): .*", r"\1", sentence)
    if not sentence:
        sys.exit(f"{file}: its first lines are no comment that says what it is for")
    return sentence.rstrip(".;").replace("|", "/")


def first_clause(text: str, marks: str) -> str:
    """The text up to the first of ``marks`` that a blank follows, outside of brackets."""
    ends = (found.start() for found in re.finditer(rf"(?<=[{marks}])\s", text))
    return next((said for end in ends if (said := text[:end]).count("(") == said.count(")")), text)


def grid(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ("---",) * len(head), *rows])


TABLES: dict[tuple[str, str], Callable[[], str]] = {
    ("method.md", "methods"): methods,
    ("running.md", "experiments"): experiments,
    ("architecture.md", "packages"): packages,
    ("reproductions.md", "differences"): differences,
    ("verl.md", "planted"): planted,
}

if __name__ == "__main__":
    sys.exit(main())
