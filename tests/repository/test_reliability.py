"""The table of faults cannot rot: every test that it names is there, and `make test-faults` runs it."""

from __future__ import annotations

import re
import subprocess
import sys

from paths import ROOT

ROWS = [line for line in (ROOT / "docs" / "reliability.md").read_text().splitlines() if line.startswith("| ")][2:]
NAME = r"(test_\w+\.py)::(test_\w+)"


def test_every_row_names_tests_that_are_collected_and_run() -> None:
    assert len(ROWS) > 30
    named = [re.findall(NAME, row.split(" | ")[-1]) for row in ROWS]
    assert [row for row, tests in zip(ROWS, named, strict=True) if not tests] == []
    tests = {test for found in named for test in found}
    assert "pytest -m fault " in (ROOT / "Makefile").read_text().split("test-faults: ")[1].split("\n\n")[0]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-o", "addopts=", "-q", "-m", "fault"]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert tests <= set(re.findall(NAME, collected.stdout)), collected.stdout[-2000:] + collected.stderr[-2000:]
