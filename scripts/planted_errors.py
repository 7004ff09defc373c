"""Plants the errors of tests/planted/errors.yaml, one at a time, and says which test finds each.

    python scripts/planted_errors.py                 # all
    python scripts/planted_errors.py --only 3 7      # these, by number from 1

An error is applied to a copy of the package, which the tests import instead of the checkout's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
ERRORS = ROOT / "tests" / "planted" / "errors.yaml"


@dataclass(frozen=True)
class Planted:
    """An error.

    Attributes:
        error: what is wrong.
        made_in: whose code had it.
        file: of the package.
        old, new: what it has in the place of what.
        tests: that have to find it, below ``tests``.
    """

    error: str
    made_in: str
    file: str
    old: str
    new: str
    tests: list[str]

    def planted(self, text: str) -> str:
        """The file with the error.

        Raises:
            ValueError: if ``old`` is not exactly once in it.
        """
        if text.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.file} has {text.count(self.old)} times: {self.old!r}")
        return text.replace(self.old, self.new)


def errors() -> list[Planted]:
    """All of them."""
    return [Planted(**each) for each in yaml.safe_load(ERRORS.read_text(encoding="utf-8"))]


class _Failures:
    """A plugin of pytest: the tests that failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def find(planted: Planted) -> str:
    """The test that finds an error first.

    The tests run in a fork of this process, which has imported those and not srpo.

    Raises:
        SystemExit: if no test does.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        for data in ("configs", "reports"):
            (folder / data).symlink_to(ROOT / data)
        file = folder / "src" / "srpo" / planted.file
        file.write_text(planted.planted(file.read_text(encoding="utf-8")), encoding="utf-8")
        if not (child := os.fork()):
            log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
            os.dup2(log, 1)
            os.dup2(log, 2)
            sys.path.insert(0, str(folder / "src"))
            os.environ["PYTHONPATH"] = str(folder / "src")
            sys.dont_write_bytecode = True
            failures = _Failures()
            arguments = ["-x", "--tb=line", "-p", "no:cacheprovider", "-W", "ignore", f"--rootdir={ROOT}"]
            tests = [str(ROOT / "tests" / test) for test in planted.tests]
            pytest.main([*arguments, "-c", str(ROOT / "pyproject.toml"), *tests], plugins=[failures])
            assert sys.modules["srpo"].__file__.startswith(str(folder))
            (folder / "found").write_text("\n".join(failures.failed), encoding="utf-8")
            os._exit(0)
        os.waitpid(child, 0)
        found = (folder / "found").read_text(encoding="utf-8") if (folder / "found").exists() else ""
        if not found:
            sys.exit(f"not found: {planted.error}\n{(folder / 'log').read_text()[-2000:]}")
    return found.split("\n")[0].partition("[")[0]


def main() -> None:
    """Plant all or some errors."""
    parser = argparse.ArgumentParser(description="Plants errors and says which test finds each.")
    parser.add_argument("--only", nargs="+", type=int, metavar="N", help="these")
    only = parser.parse_args().only
    os.chdir(ROOT)
    for package in ("torch", "numpy", "hypothesis", "jaxtyping", "pydantic"):
        import_module(package)
    for number, planted in enumerate(errors(), 1):
        if only is None or number in only:
            print(f"{number}. {planted.error}: {Path(find(planted)).name}", flush=True)


if __name__ == "__main__":
    main()
