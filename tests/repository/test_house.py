"""How large the repository may be. The numbers only go down: who adds something takes something away."""

from __future__ import annotations

import ast
import io
import subprocess
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT

BUDGETS = {
    "code lines of Python": 31_510,
    "code lines of src": 13_035,
    "lines of src": 19_985,
    "lines of analysis": 5_039,
    "lines of tests": 22_424,
    "error branches of src": 214,
    "raise in src": 216,
    "rooms of src": 14,
    "modules of more than 500 lines": 2,
    "lines of rules, Snakefile and profiles": 467,
    "words of pages": 15_350,
}


@cache
def _tracked(pattern: str) -> list[Path]:
    found = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for path in (ROOT / name for name in found.stdout.splitlines()) if path.is_file()]


def _lines(*patterns: str) -> int:
    return sum(len(path.read_text().splitlines()) for pattern in patterns for path in _tracked(pattern))


def _code_lines(path: Path) -> int:
    """Lines with a token of code: no blank line, no comment, no docstring or other lone string."""
    lines: set[int] = set()
    statement: list[tokenize.TokenInfo] = []
    layout = {tokenize.NL, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type == tokenize.NEWLINE:
            if any(part.type != tokenize.STRING for part in statement):
                lines.update(line for part in statement for line in range(part.start[0], part.end[0] + 1))
            statement = []
        elif token.type not in layout:
            statement.append(token)
    return len(lines)


def _only_ends(body: list[ast.stmt]) -> bool:
    """Whether a branch does nothing but end in an error, after naming what its message says."""
    last = body[-1]
    exits = (
        isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and ast.unparse(last.value.func) == "sys.exit"
    )
    return (isinstance(last, ast.Raise) or exits) and all(
        isinstance(part, ast.Assign | ast.AnnAssign) for part in body[:-1]
    )


def _error_branches(path: Path) -> Iterator[ast.AST]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Assert):
            yield node
        elif isinstance(node, ast.If):
            yield from (node for body in (node.body, node.orelse) if body and _only_ends(body))
        elif isinstance(node, ast.ExceptHandler | ast.match_case) and _only_ends(node.body):
            yield node


SIZES: dict[str, Callable[[], int]] = {
    "code lines of Python": lambda: sum(map(_code_lines, _tracked("*.py"))),
    "code lines of src": lambda: sum(map(_code_lines, _tracked("src/*.py"))),
    "lines of src": lambda: _lines("src/*.py"),
    "lines of analysis": lambda: _lines("src/srpo/analysis/*.py"),
    "lines of tests": lambda: _lines("tests/*.py"),
    "error branches of src": lambda: sum(1 for path in _tracked("src/*.py") for _ in _error_branches(path)),
    "raise in src": lambda: sum(
        isinstance(node, ast.Raise) for path in _tracked("src/*.py") for node in ast.walk(ast.parse(path.read_text()))
    ),
    "rooms of src": lambda: len({path.relative_to(ROOT / "src/srpo").parts[0] for path in _tracked("src/srpo/*.py")}),
    "modules of more than 500 lines": lambda: sum(
        len(path.read_text().splitlines()) > 500 for path in _tracked("src/*.py")
    ),
    "lines of rules, Snakefile and profiles": lambda: _lines(
        "rules/*", "Snakefile", "profiles/*", "workflow/Snakefile"
    ),
    "words of pages": lambda: sum(
        len(path.read_text().split()) for path in [ROOT / "README.md", *_tracked("docs/*.md")]
    ),
}


@pytest.mark.parametrize("what", BUDGETS)
def test_size_is_within_its_budget(what: str) -> None:
    assert SIZES[what]() <= BUDGETS[what]
