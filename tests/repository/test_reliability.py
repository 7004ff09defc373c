"""The page of faults names the tests that `make test-faults` runs, all of them and no others."""

from __future__ import annotations

import re
import subprocess
import sys

from paths import ROOT


def test_the_page_names_the_files_of_all_fault_tests() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert "pytest -m fault " in (ROOT / "Makefile").read_text().split("test-faults: ")[1].split("\n\n")[0]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-o", "addopts=", "-q", "-m", "fault"]
    collected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    assert set(re.findall(r"`(test_\w+\.py)`", page)) == set(re.findall(r"(test_\w+\.py)::", collected)), collected[
        -2000:
    ]
