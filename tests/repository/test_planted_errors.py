"""The planted errors still apply to the code, and the page has a row of each (``make planted-errors`` finds them)."""

from __future__ import annotations

import re

import planted_errors
import pytest
from paths import ROOT

ERRORS = planted_errors.errors()


@pytest.mark.parametrize("planted", ERRORS, ids=[each.error for each in ERRORS])
def test_it_applies_and_is_python(planted) -> None:
    text = (ROOT / "src" / "srpo" / planted.file).read_text(encoding="utf-8")
    compile(planted.planted(text), planted.file, "exec")
    for test in planted.tests:
        file, _, name = test.partition("::")
        assert not name or f"def {name.partition('[')[0]}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


def test_the_page_has_all_of_them_and_what_found_each() -> None:
    page = (ROOT / "docs" / "verl.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- planted -->\n\n(.*?)\n\n", page, re.DOTALL)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [row[:2] for row in rows] == [[each.error, each.made_in] for each in ERRORS]
    assert all(re.fullmatch(r"`test_\w+\.py::test_\w+`", row[2]) for row in rows)
