"""Writes the tables of the pages that follow from configuration and code.

    python scripts/pages.py            # write them
    python scripts/pages.py --check    # fail if a page has others

A table stands between its comment, ``<!-- methods -->``, and the next empty line. What a file of configuration
is for is the first clause of its leading comment.
"""

from __future__ import annotations

import argparse
import ast
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

import board
import pandas as pd

from srpo.algorithm.method import Method
from srpo.algorithm.teacher import SIBLING_ONLY
from srpo.analysis.paper import paper_splits
from srpo.experiment.compose import load_experiment
from srpo.ground.repository import CONFIGS, REFERENCE
from srpo.hosts.functional import load_method
from srpo.training.watch import RULES, Limits

DOCS = CONFIGS.parent / "docs"


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
    if check and old:
        print(f"not current: {'; '.join(old)}: run python scripts/pages.py", file=sys.stderr)
    return int(check and bool(old))


def methods() -> str:
    """A row per method file: what it is, where each case goes, how distilled tokens are weighted, the teacher."""
    rows = []
    for file in sorted(CONFIGS.glob("methods/**/*.yaml"), key=lambda file: (file.parent, file.stem)):
        method = load_method(file.stem)
        teacher = method.teacher.text if method.needs_teacher else ""
        if method.teacher_context != SIBLING_ONLY:
            teacher += f", shown {method.teacher_context.text}"
        rows.append((f"`{file.stem}`", purpose(file), branches(method), weighting(method), teacher))
    return grid(("method", "what", "branch of each case", "weight", "teacher"), rows)


def branches(method: Method) -> str:
    """The branches of the four cases, or the one of all; those of both phases."""
    tables = []
    for phase in method.phases:
        names = phase.routing.branches
        tables.append(names[:1] if len(set(names)) == 1 else names)
    return ", then ".join(" / ".join(table) for table in tables)


def weighting(method: Method) -> str:
    """What weights the distilled tokens."""
    parts = ["entropy"] * (method.entropy_beta > 0) + ["group"] * (method.group_weight == "spread")
    parts += ["equal loss scale"] * method.preserve_loss_scale
    return ", ".join(parts) or "1" if method.distils else ""


def experiments() -> str:
    """A row per shipped experiment: what it is for, its number of runs, and the devices of a run."""
    rows = []
    for file in CONFIGS.glob("experiments/**/*.yaml"):
        experiment = load_experiment(file)
        gpus = experiment.execution.ranks if experiment.scale == "paper" else 0
        rows.append((gpus, experiment.name, purpose(file), len(experiment.runs())))
    return grid(
        ("experiment", "what it is for", "runs", "a run takes"),
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


def rules() -> str:
    """A row per rule of the watch for falls: its number, what that is compared with, its limits."""
    against = {
        "early": "its own early steps",
        "least": "its least since then",
        "best": "its best so far",
        "nothing": "",
    }
    rows = [
        (f"`{rule.name}`", rule.what, against[rule.against], limit(rule.warn, rule.by), limit(rule.alarm, rule.by))
        for rule in RULES
    ]
    return grid(("rule", "the number", "compared with", "warn", "alarm"), rows)


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
        said = f"{names[one]} minus {names[other]}, {'at the best' if 'best' in when else 'after a short training'}"
        rows.append((said, paper, "; ".join(map(str, found))))
    return grid(("difference", "the paper", "others"), rows)


def five() -> str:
    """A row per source and model with the averages over the five benchmarks, the paper's among them."""
    paper = pd.read_csv(REFERENCE / "table1_main.csv").query("benchmark == 'average' and model in @board.PAPERS_MODELS")
    paper = paper.assign(source="paper", budget=paper["budget_hours"].map("{} h".format)).rename(
        columns={"avg_at_16": "score"}
    )
    others = board.averages(board.reproductions()).query("paper_method != 'no'")
    steps = others.groupby(["source", "run", "model"])["steps"].transform("max")
    others = others.assign(budget=steps.map(lambda n: f"{n} steps" if pd.notna(n) and n else "not stated"))
    others["source"] += (", " + others["run"]).where(others["run"] != "", "")
    both = pd.concat([paper[paper["budget_hours"] != 1], others])
    base = both[both["method"] == "base"].set_index(["source", "model"])["score"]
    trained = both[both["method"] != "base"]
    rows = []
    for (source, model, budget), of in trained.groupby(["source", "model", "budget"], sort=False):
        scores = of.set_index("method")["score"]
        cells = [base.get((source, model)), *(scores.get(name) for name in ("grpo", "sdpo", "srpo"))]
        shown = ["" if cell is None else f"{cell:.1f}" for cell in cells]
        lead = f"{cells[3] - cells[1]:+.1f}" if cells[3] is not None else ""
        rows.append((f"{source}, {model.removeprefix('Qwen3-')}", budget, *shown, lead))
    return grid(("source", "budget", "untrained", "GRPO", "SDPO", "SRPO", "SRPO - GRPO"), rows)


def settings() -> str:
    """A row per source with each method's learning rate and updates per step."""
    paper = load_experiment(CONFIGS / "experiments" / "paper.yaml")
    batch, names = paper.training.questions_per_batch, ("grpo", "sdpo", "srpo")
    ours = [paper.methods[name] for name in names]
    rows = [("paper", *(f"{m.learning_rate:.0e}, {batch // m.mini_batch_questions}" for m in ours))]
    numbers = board.reproductions().query("paper_method == 'yes'").dropna(subset=["learning_rate"])
    numbers = numbers[numbers["benchmark"].isin(paper_splits()["benchmark"])]
    for source, of in numbers.groupby("source", sort=False):
        first = of.drop_duplicates("method").set_index("method")
        rate = first["learning_rate"].map("{:.0e}".format)
        said = rate + first["updates_per_step"].map(lambda n: "" if pd.isna(n) else f", {n}")
        rows.append((str(source), *(said.get(name, "") for name in names)))
    return grid(("source", "GRPO", "SDPO", "SRPO"), rows)


def limit(limits: Limits | None, by: str) -> str:
    """When a level is reached, in words."""
    if limits is None:
        return ""
    unit = {"ratio": " times it", "points": " points", "value": ""}[by]
    parts = [f"below {limits.low:g}"] * math.isfinite(limits.low) + [f"above {limits.high:g}"] * math.isfinite(
        limits.high
    )
    text = " or ".join(parts) + unit if parts else "not finite"
    return text + (f", {limits.times} times in a row" if limits.times > 1 else "")


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
    ("collapse.md", "rules"): rules,
    ("architecture.md", "packages"): packages,
    ("reproductions.md", "differences"): differences,
    ("reproductions.md", "averages"): five,
    ("reproductions.md", "settings"): settings,
}

if __name__ == "__main__":
    sys.exit(main())
