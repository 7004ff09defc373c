"""Where the repository's folders are, for tests."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent
"""Helpers that several tests import, and the scripts that tests start in processes of their own."""

ROOT = SUPPORT.parents[1]
"""The repository."""

SHARED = ROOT.parent / "shared"
"""Material that is not in the repository; tests that use it are skipped without it."""
