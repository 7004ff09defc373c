"""The package finds its data: in the checkout, and in a package that was built from it."""

from __future__ import annotations

import email
import importlib.metadata
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from paths import ROOT

from srpo import repository


def test_the_checkout_s_folders_are_used() -> None:
    assert repository.ROOT == ROOT
    for folder in (repository.CONFIGS, repository.REPORTS, repository.REFERENCE):
        assert folder.is_dir()


def test_a_built_package_is_complete(tmp_path: Path) -> None:
    """Unpacked elsewhere, it resolves a shipped experiment, lists the report's tables and describes itself."""
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
    stated = distribution.metadata
    # read as text: the backport of importlib.metadata, if it is loaded, moves the payload into a header
    described = email.message_from_string(distribution.read_text("METADATA") or "").get_payload()
    assert described.startswith("# SRPO, reproduced")  # its links are those of an index: test_release
    assert stated["Description-Content-Type"] == "text/markdown"
    assert stated.get_all("Provides-Extra") == list(extras)
    assert stated.get_all("Project-URL") == ["Paper, https://arxiv.org/abs/2604.02288"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert [stated["Author"]] == [author["name"] for author in citation["authors"]]
    assert stated["Keywords"].split(",") == citation["keywords"]
    assert stated["License-Expression"] == citation["license"]
    assert (tmp_path / "installed/srpo/py.typed").is_file()
    for folder in repository.DATA_FOLDERS:
        files = {path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file()}
        files = {path for path in files if path.suffix != ".safetensors"}  # base models stay in the clone
        assert files
        assert all((tmp_path / "installed/srpo" / path).read_bytes() == (ROOT / path).read_bytes() for path in files)
    assert not list((tmp_path / "installed").rglob("*.safetensors"))
    code = (
        "from srpo.experiment.compose import experiment_file, load_experiment; "
        "from srpo.analysis.outline import tables_of; "
        "print(*tables_of(load_experiment(experiment_file('smoke'))))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path / "installed")}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "table1" in result.stdout.split()
