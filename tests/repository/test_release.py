"""A release: its tag, version and changelog agree, and its two packages are the same."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml
from paths import ROOT

from srpo.errors import SrpoError
from srpo.experiment.compose import experiment_file, load_experiment
from srpo.miniature.stored import STORED
from srpo.models import build_model
from srpo.repository import DATA_FOLDERS

_spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
release = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(release)

CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 1.2.0\n\n### Added\n\n- A thing.\n\n## 1.1.0\n\n- Older.\n"


def test_notes_are_the_section_of_the_version() -> None:
    assert release.notes("v1.2.0", "1.2.0", CHANGELOG) == "### Added\n\n- A thing.\n"
    assert release.notes("v1.1.0", "1.1.0", CHANGELOG) == "- Older.\n"


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "message"),
    [
        ("v1.3.0", "1.2.0", CHANGELOG, "tag v1.2.0"),
        ("", "1.2.0", CHANGELOG, "the tag is missing"),
        ("v1.3.0", "1.3.0", CHANGELOG, "nothing below ## 1.3.0"),
        ("v1.2.0", "1.2.0", CHANGELOG.replace("Unreleased\n", "Unreleased\n\n- New.\n"), "under Unreleased"),
    ],
)
def test_what_does_not_agree_is_refused(tag: str, version: str, changelog: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        release.notes(tag, version, changelog)


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


def test_the_packages_have_all_data_but_the_base_models(built: Path) -> None:
    (wheel,), (archive,) = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as content, tarfile.open(archive) as packed:
        found, sources = set(content.namelist()), {name.partition("/")[2] for name in packed.getnames()}
    data = {path.relative_to(ROOT) for folder in DATA_FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
    models = {path for path in data if path.suffix == ".safetensors"}
    assert {ROOT / path for path in models} == {*STORED.iterdir()} != set()  # a clone has them
    assert {f"srpo/{path}" for path in data - models} <= found
    assert {str(path) for path in data - models} <= sources
    assert not [name for name in found | sources if name.endswith(".safetensors")]
    assert max(wheel.stat().st_size, archive.stat().st_size) < 1_000_000


def test_a_base_model_that_the_package_does_not_hold_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("srpo.miniature.stored.STORED", tmp_path / "stored")
    model = load_experiment(experiment_file("demo")).models["miniature-large"].base_model(1)
    with pytest.raises(SrpoError, match=r"stored\.1: the installed package has no base models; work in a clone"):
        build_model(model, tmp_path / "model", {})


def test_the_page_on_an_index_has_no_link_into_the_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        page = content.read(next(name for name in content.namelist() if name.endswith("/METADATA"))).decode()
    links = re.findall(r"\]\(([^)]*)\)", page)
    assert "https://example.org/lab/srpo/blob/HEAD/docs/method.md" in links
    assert "https://example.org/lab/srpo/raw/HEAD/docs/dag.svg" in links
    assert "https://example.org/lab/srpo/blob/HEAD/LICENSE" in links
    assert not [link for link in links if "://" not in link]
    assert "git clone https://example.org/lab/srpo srpo" in page
    assert "Project-URL: Source, https://example.org/lab/srpo" in page


def test_only_the_job_that_publishes_gets_a_token_of_the_index() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    jobs = workflow["jobs"]
    assert workflow["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["index"]
    assert jobs["index"]["environment"] == "pypi"
    assert [jobs[name]["needs"] for name in ("index", "github")] == ["build", "index"]
    # an expression within a command would run what a tag's name says
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert not [command for command in commands if "${{" in command]
    made = re.search(r"^dist:.*?\n\n", (ROOT / "Makefile").read_text(), re.MULTILINE | re.DOTALL)[0]
    assert "dist/packages" in made
    assert "dist/notes.md" in made
