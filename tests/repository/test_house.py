"""The picture of the packages of src/srpo and their imports: it is current, and its floors are those of the rules."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import house
import pytest
from paths import ROOT


def test_the_picture_has_the_floors_of_the_rules() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rules, wings, _ = project["tool"]["importlinter"]["contracts"]
    floors = [set(re.split(r" [:|] ", layer)) for layer in reversed(rules["layers"])]
    at = next(number for number, floor in enumerate(floors) if floor == {"analysis"})
    inside = [{f"analysis.{wing}" for wing in re.split(r" [:|] ", layer)} for layer in reversed(wings["layers"])]
    floors[at : at + 1] = inside
    level = {module: number for number, floor in enumerate(floors) for module in floor}
    drawn = house.rooms()
    for lower in level:
        for higher in level:
            if drawn[house.room_of(lower)] < drawn[house.room_of(higher)]:
                assert level[lower] <= level[higher], (lower, higher)


def test_the_committed_picture_is_current() -> None:
    assert house.PICTURE.read_text() == house.draw(house.modules()), "run: python scripts/house.py"


def test_imports_are_found_wherever_they_run(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "errors.py": "",
        "experiment/config.py": "import os\nfrom srpo.errors import SrpoError\n",
        "policy/__init__.py": "",
        "policy/loss.py": "from srpo.policy import worker\nfrom . import batches\nfrom ..errors import SrpoError\n",
        "policy/worker.py": "def late():\n    import srpo.experiment.config\n",
        "policy/batches.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import srpo.policy.loss\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert house.modules(tmp_path) == {
        "": set(),
        "experiment.config": {"errors"},
        "errors": set(),
        "policy": set(),
        "policy.loss": {"policy.worker", "policy.batches", "errors"},
        "policy.worker": {"experiment.config"},
        "policy.batches": {"policy.loss"},
    }


def test_an_arrow_that_others_imply_is_left_out() -> None:
    assert house.shortest([("a", "b"), ("b", "c"), ("a", "c")]) == [("a", "b"), ("b", "c")]


def test_a_new_package_needs_a_floor() -> None:
    with pytest.raises(ValueError, match="in no room"):
        house.room_of("serving.http")
