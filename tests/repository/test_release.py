"""A release: its tag, version and changelog agree, and its two packages are the same."""

from __future__ import annotations

import importlib.util
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


def test_the_source_distribution_has_what_the_wheel_needs(tmp_path: Path) -> None:
    """As `make dist` builds them: the wheel from the sources, with every file of both folders."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, source)
    for name in ("src", *DATA_FOLDERS):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    uv = Path(sys.executable).with_name("uv")
    command = [uv, "build", "--offline", "--no-build-isolation", "--python", sys.executable, "--out-dir", tmp_path]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    (wheel,), (archive,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as built, tarfile.open(archive) as packed:
        found, sources = set(built.namelist()), {name.partition("/")[2] for name in packed.getnames()}
    data = {path.relative_to(ROOT) for folder in DATA_FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
    assert {f"srpo/{path}" for path in data} <= found
    assert {str(path) for path in data} <= sources


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
