"""The table of methods in docs/method.md, against the method files."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

from srpo.algorithm.method import Method
from srpo.functional import load_method

FILES = sorted(path.stem for path in (ROOT / "configs" / "methods").glob("*.yaml"))
ROWS = {
    name: [cell.strip() for cell in rest.split("|")]
    for name, rest in re.findall(
        r"^\| `(\w+)` \|(.*)\|$",
        (ROOT / "docs" / "method.md").read_text().split("\n| method | branch of each case |")[1].split("\n\n")[0],
        re.MULTILINE,
    )
}


def branches(method: Method) -> str:
    """The branches of the four cases, or the one of all; those of both phases."""
    tables = [dict.fromkeys(phase.routing.branches) for phase in method.phases]
    tables = [
        table if len(table) == 1 else phase.routing.branches for table, phase in zip(tables, method.phases, strict=True)
    ]
    return ", then ".join(" / ".join(table) for table in tables)


def weighting(method: Method) -> str:
    parts = ["entropy"] * (method.entropy_beta > 0) + ["group"] * (method.group_weight == "spread")
    parts += ["equal loss scale"] * method.preserve_loss_scale
    return ", ".join(parts) if method.distils and parts else "1" if method.distils else ""


def test_every_method_file_has_a_row() -> None:
    assert sorted(ROWS) == FILES


@pytest.mark.parametrize("name", FILES)
def test_a_row_says_what_the_file_does(name: str) -> None:
    method = load_method(name)
    assert ROWS[name][:3] == [
        branches(method),
        weighting(method),
        method.teacher.text if method.needs_teacher else "",
    ]
    assert len(ROWS[name]) == 5
    assert all(ROWS[name][3:])
