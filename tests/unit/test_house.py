"""The packages of src/srpo: imports run downwards and in no circle, and the picture of them is current."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT


@pytest.fixture(scope="module")
def house() -> ModuleType:
    spec = importlib.util.spec_from_file_location("house", ROOT / "docs" / "house.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_import_runs_from_a_lower_floor_to_a_higher_one(house: ModuleType) -> None:
    assert house.upward(house.modules()) == []


def test_no_module_imports_itself_through_others(house: ModuleType) -> None:
    assert house.circles(house.modules()) == []


def test_the_committed_picture_is_current(house: ModuleType) -> None:
    assert house.PICTURE.read_text() == house.draw(house.modules()), "run: python docs/house.py"


def test_imports_are_found_wherever_they_run(house: ModuleType, tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "errors.py": "",
        "config.py": "import os\nfrom srpo.errors import SrpoError\n",
        "policy/__init__.py": "",
        "policy/loss.py": "from srpo.policy import worker\nfrom . import batches\nfrom ..errors import SrpoError\n",
        "policy/worker.py": "def late():\n    import srpo.config\n",
        "policy/batches.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import srpo.policy.loss\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert house.modules(tmp_path) == {
        "": set(),
        "config": {"errors"},
        "errors": set(),
        "policy": set(),
        "policy.loss": {"policy.worker", "policy.batches", "errors"},
        "policy.worker": {"config"},
        "policy.batches": set(),
    }


def test_an_import_to_a_higher_floor_is_named(house: ModuleType) -> None:
    found = {
        "": set(),
        "config": set(),
        "training.loop": {"policy.worker"},
        "policy.worker": {"config", "training.loop"},
    }
    assert house.upward(found) == ["policy.worker -> training.loop"]
    assert house.circles(found) == [["policy.worker", "training.loop"]]


def test_an_arrow_that_others_imply_is_left_out(house: ModuleType) -> None:
    assert house.shortest([("a", "b"), ("b", "c"), ("a", "c")]) == [("a", "b"), ("b", "c")]


def test_a_new_package_needs_a_floor(house: ModuleType) -> None:
    with pytest.raises(ValueError, match="in no room"):
        house.room_of("serving.http")
