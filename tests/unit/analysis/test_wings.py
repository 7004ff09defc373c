"""Imports within analysis/ run one way: report to figures and tables, these to results, all to the outline."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from paths import ROOT

ANALYSIS = ROOT / "src" / "srpo" / "analysis"
MAY_IMPORT = {
    "results": {"results", "outline"},
    "tables": {"tables", "results", "outline"},
    "figures": {"figures", "results", "outline"},
    "report": {"report", "figures", "tables", "results", "outline"},
    "outline": set(),
}


def imported(path) -> set[str]:
    """The wings that a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {name.split(".")[2] for name in names if name.startswith("srpo.analysis.")}
    return found


def test_every_module_is_in_a_wing():
    assert {path.stem for path in ANALYSIS.glob("*.py")} == {"__init__", "outline"}
    assert {path.name for path in ANALYSIS.iterdir() if (path / "__init__.py").is_file()} == {*MAY_IMPORT} - {"outline"}


@pytest.mark.parametrize("path", sorted(ANALYSIS.rglob("*.py")), ids=lambda path: str(path.relative_to(ANALYSIS)))
def test_no_import_runs_up(path):
    wing = path.relative_to(ANALYSIS).parts[0].removesuffix(".py")
    assert imported(path) <= MAY_IMPORT.get(wing, set())


def test_the_workflow_reads_the_outline_without_loading_the_wings():
    code = "import sys, srpo.analysis.outline; print(*{'pandas', 'matplotlib', 'scipy', 'torch'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"
