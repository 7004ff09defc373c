"""The package finds its data: in the checkout, and in a package that was built from it."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from packaging.requirements import Requirement
from paths import ROOT

from srpo import repository


def test_the_checkout_s_folders_are_used() -> None:
    assert repository.ROOT == ROOT
    for folder in (repository.CONFIGS, repository.REPORTS, repository.REFERENCE):
        assert folder.is_dir()


def test_a_built_package_is_complete(tmp_path: Path) -> None:
    """Unpacked elsewhere, it resolves a shipped experiment, lists the report's tables and says what it requires."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / name, source)
    for name in ("src", *repository.DATA_FOLDERS):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    result = subprocess.run([*wheel, "--wheel-dir", tmp_path, source], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path / "installed")
    (distribution,) = importlib.metadata.distributions(name="srpo", path=[str(tmp_path / "installed")])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *(f'{line}; extra == "{name}"' for name in extras for line in extras[name])]
    assert {*map(Requirement, distribution.requires)} == {*map(Requirement, declared)}
    code = (
        "from srpo.compose import experiment_file, load_experiment; from srpo.analysis.outline import tables_of; "
        "print(*tables_of(load_experiment(experiment_file('smoke'))))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path / "installed")}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "table1" in result.stdout.split()
