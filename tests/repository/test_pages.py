"""The pages' tables of methods and experiments are those of the files of `configs`."""

from __future__ import annotations

import importlib.util

from paths import ROOT


def test_tables_from_configuration_are_current() -> None:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "scripts" / "pages.py")
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    assert pages.main(["--check"]) == 0
    assert "grpo / grpo / sdpo / grpo" in pages.methods()
