"""A release: its tag, version and changelog agree; its two packages are the same and complete."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import release
from paths import ROOT

from srpo.ground.repository import DATA_FOLDERS
from srpo.starts.stored import STORED

CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.0\n\n### Added\n\n- A thing.\n\n## 1.1.0\n\n- Older.\n"


def test_notes_are_the_section_of_the_version() -> None:
    assert release.notes("v1.2.0", "1.2.0", CHANGELOG) == "### Added\n\n- A thing.\n"
    assert release.notes("v1.1.0", "1.1.0", CHANGELOG) == "- Older.\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the two packages, as `make dist` builds them: the wheel from the sources."""
    tmp_path = tmp_path_factory.mktemp("release")
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    for name in ("src", *DATA_FOLDERS):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "build", "--offline", "--no-build-isolation", "--python", sys.executable, "--out-dir", tmp_path]
    environment = os.environ | {"REPOSITORY": "https://example.org/lab/srpo"}
    result = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return tmp_path


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """The wheel, unpacked elsewhere."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(built / "installed")
    return built / "installed"


def test_the_packages_have_all_data_but_the_base_models(built: Path, installed: Path) -> None:
    (wheel,), (archive,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        sources = {name.partition("/")[2] for name in packed.getnames()}
    data = {path.relative_to(ROOT) for folder in DATA_FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
    models = {path for path in data if path.suffix == ".safetensors"}
    assert {ROOT / path for path in models} == {*STORED.iterdir()} != set()  # a clone has them
    for folder in DATA_FOLDERS:
        assert any(path.parts[0] == folder for path in data)
    assert all((installed / "srpo" / path).read_bytes() == (ROOT / path).read_bytes() for path in data - models)
    assert {str(path) for path in data - models} <= sources
    found = sources | {str(path) for path in installed.rglob("*")}
    assert not [name for name in found if name.endswith(".safetensors")]
    assert max(wheel.stat().st_size, archive.stat().st_size) < 1_000_000
    assert (installed / "srpo/py.typed").is_file()


def test_the_package_resolves_an_experiment_and_lists_the_tables_of_its_report(installed: Path) -> None:
    code = (
        "from srpo.experiment.compose import experiment_file, load_experiment; "
        "from srpo.analysis.outline import tables_of; "
        "print(*tables_of(load_experiment(experiment_file('smoke'))))"
    )
    command, environment = [sys.executable, "-c", code], {"PYTHONPATH": str(installed)}
    assert "table1" in subprocess.run(command, env=environment, capture_output=True, text=True).stdout.split()
