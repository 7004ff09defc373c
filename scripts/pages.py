"""Writes the tables of the pages that follow from configuration: methods, experiments, rules of the watch.

    python scripts/pages.py            # write them
    python scripts/pages.py --check    # fail if a page has others

A table stands between its comment, ``<!-- methods -->``, and the next empty line. What a file is for is the first
clause of its leading comment.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

from srpo.algorithm.method import Method
from srpo.experiment.compose import load_experiment
from srpo.functional import load_method
from srpo.repository import CONFIGS
from srpo.watch import RULES, Limits

DOCS = CONFIGS.parent / "docs"


def main(arguments: list[str] | None = None) -> int:
    """Write or check the pages.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description="Writes the tables of the pages that follow from configuration.")
    parser.add_argument("--check", action="store_true", help="fail if a page is not current, and write nothing")
    check = parser.parse_args(arguments).check
    old = []
    for (name, mark), table in TABLES.items():
        page = DOCS / name
        before = page.read_text()
        now, found = re.subn(rf"(<!-- {mark} -->\n\n).+?(?=\n\n)", lambda m, t=table: m[1] + t(), before, flags=re.DOTALL)
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


def rules() -> str:
    """A row per rule of the watch for collapse: its number, what that is compared with, its limits."""
    against = {
        "early": "its own early steps",
        "least": "its least since then",
        "best": "its best so far",
        "training": "the training reward",
        "nothing": "",
    }
    rows = [
        (f"`{rule.name}`", rule.what, against[rule.against], limit(rule.warn, rule.by), limit(rule.alarm, rule.by))
        for rule in RULES
    ]
    return grid(("rule", "the number", "compared with", "warn", "alarm"), rows)


def limit(limits: Limits | None, by: str) -> str:
    """When a level is reached, in words."""
    if limits is None:
        return ""
    unit = {"ratio": " times it", "points": " points", "value": ""}[by]
    parts = [f"below {limits.low:g}"] * math.isfinite(limits.low) + [f"above {limits.high:g}"] * math.isfinite(limits.high)
    text = " or ".join(parts) + unit if parts else "not finite"
    return text + (f", {limits.times} times in a row" if limits.times > 1 else "")


def purpose(file: Path) -> str:
    """The first clause of the comment at the head of a file, up to a full stop, a question mark or a semicolon."""
    lines = []
    for line in file.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# "))
    sentence = re.split(r"(?<=[.?;])\s", " ".join(lines))[0]
    if not sentence:
        sys.exit(f"{file}: its first lines are no comment that says what it is for")
    return sentence.rstrip(".;").replace("|", "/")


def grid(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ("---",) * len(head), *rows])


TABLES: dict[tuple[str, str], Callable[[], str]] = {
    ("method.md", "methods"): methods,
    ("running.md", "experiments"): experiments,
    ("collapse.md", "rules"): rules,
}

if __name__ == "__main__":
    sys.exit(main())
