"""The environments: the locks are what is asked for, still resolve, and are what every way in installs."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import requires
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from srpo.ground.repository import ROOT
from srpo.policy.verl_private import VERL_VERSION

ENVS = ROOT / "envs"
NAMES = ["embedded", "paper"]
# sglang 0.5.12 needs an older torch than CPUs do, and transformers that both sglang and verl work with
DIFFERENT = {"torch", "transformers"}
# the packages whose private names or file formats the training uses
EXACT = {"verl", "ray", "tensordict", "transferqueue"}
NO_INDEX = "client error|Request failed|Failed to fetch|network was disabled"  # what uv says when it reaches none


def lines(path: Path, options: bool = False, development: bool = True) -> list[str]:
    """What a requirements file says: its requirements, with those for development, or its option lines."""
    text = path.read_text() if development else path.read_text().partition("\n# development")[0]
    stated = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [line for line in stated if line and line.startswith("--") == options]


def requirements(path: Path) -> dict[str, Requirement]:
    return {canonicalize_name(requirement.name): requirement for requirement in map(Requirement, lines(path))}


def specifiers(stated: Iterable[str]) -> dict[str, SpecifierSet]:
    return {canonicalize_name(requirement.name): requirement.specifier for requirement in map(Requirement, stated)}


def lock(name: str) -> dict[str, str]:
    return dict(line.split("==") for line in lines(ENVS / f"{name}.txt"))


def test_the_lock_has_all_that_its_packages_require() -> None:
    asked = [Requirement(text) for package in lock("embedded") for text in requires(package) or ()]
    needed = {canonicalize_name(r.name) for r in asked if r.marker is None or r.marker.evaluate({"extra": ""})}
    assert {name for name in needed if not name.startswith(("cuda-", "nvidia-", "triton"))} <= lock("embedded").keys()


@pytest.mark.parametrize("path", sorted(ENVS.iterdir()), ids=lambda path: path.name)
def test_no_file_names_a_host_or_a_folder_of_some_machine(path: Path) -> None:
    inside = r"/(opt/venv|srpo|tmp/(paper|embedded).txt|var/lib/apt)\b"  # the container
    text = re.sub(inside, "", path.read_text())
    assert not re.search(r"://|@ |--(extra-)?index-url|--find-links|\b[\w-]+\.(org|com|net|io)\b", text)
    assert not re.search(
        r"(?<![\w.$/}])/(home|root|work|mnt|opt|tmp|scratch|data|usr)\b", text.replace("/usr/bin/env", "")
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_for_is_pinned_and_locked_as_asked(name: str) -> None:
    locked = lock(name)
    for package, requirement in requirements(ENVS / f"{name}.in").items():
        assert str(requirement.specifier) == f"=={locked[package]}"
    assert lines(ENVS / f"{name}.in", options=True) == lines(ENVS / f"{name}.txt", options=True)


def test_the_extras_require_what_the_environments_are_made_from() -> None:
    """Of torch and transformers both versions will do; pip takes the newest allowed, that of the CPU environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = dict(project["optional-dependencies"])
    embedded, paper = (specifiers(lines(ENVS / f"{name}.in", development=False)) for name in NAMES)
    more = {name: versions for name, versions in paper.items() if embedded.get(name) != versions}
    assert (extras["paper"][0], specifiers(extras.pop("paper")[1:])) == ("srpo[all]", more)
    assert extras.pop("trl") == [f"trl=={lock('peers')['trl']}"]
    assert extras.pop("all") == [f"srpo[{','.join(extras)}]"]

    locked = lock("embedded")
    expected = {name: SpecifierSet(f">={locked[name]},<{int(locked[name].split('.')[0]) + 1}") for name in embedded}
    expected |= {name: SpecifierSet(f">={lock('paper')[name]},<={locked[name]}") for name in DIFFERENT}
    expected |= {name: SpecifierSet(f"=={locked[name]}") for name in EXACT}
    core = specifiers(project["dependencies"])
    for extra, stated in extras.items():
        found = specifiers(stated)
        assert found == {name: expected[name] for name in found}, extra
    assert set(core).union(*map(specifiers, extras.values())) == set(embedded)


def test_the_lock_is_what_the_overrides_say() -> None:
    locked = lock("paper")
    for package, requirement in requirements(ENVS / "paper.overrides").items():
        if requirement.marker and not requirement.marker.evaluate():
            assert package not in locked
        else:
            assert requirement.specifier.contains(locked[package])


def test_verl_is_the_one_whose_private_names_are_used_and_torch_the_one_of_sglang() -> None:
    assert lock("paper")["verl"] == lock("embedded")["verl"] == VERL_VERSION
    of_sglang = {"sglang": "0.5.12", "torch": "2.11.0", "torchvision": "0.26.0", "torchaudio": "2.11.0"}
    assert of_sglang.items() <= lock("paper").items()


def test_both_environments_have_the_same_versions_but_for_named_exceptions() -> None:
    embedded, paper = lock("embedded"), lock("paper")
    assert {package for package in embedded.keys() & paper.keys() if embedded[package] != paper[package]} == DIFFERENT
    only_for_development = {"ruff", "snakefmt", "uv", "mypy", "pandas-stubs", "import-linter"}
    only_for_development |= {name for name in embedded if name.startswith("types-")}
    assert requirements(ENVS / "embedded.in").keys() - only_for_development <= paper.keys()


def test_sglang_on_a_cpu_has_the_versions_that_ship() -> None:
    """Over the embedded environment, so that nothing stands in both but what differs between the two."""
    embedded, on_cpu = lock("embedded"), lock("sglang-cpu")
    assert on_cpu.items() <= lock("paper").items()
    assert on_cpu["sglang"] == "0.5.12"
    assert on_cpu.keys() & embedded.keys() == DIFFERENT - {"torch"}


@pytest.mark.parametrize("name", [*NAMES, "report"])
def test_conda_environments_install_the_lock_as_it_is_now(name: str) -> None:
    environment = yaml.safe_load((ENVS / f"{name}.yaml").read_text())
    assert "pip" in environment["dependencies"]
    script = (ENVS / f"{name}.post-deploy.sh").read_text()
    digest = hashlib.sha256((ENVS / f"{name}.txt").read_bytes()).hexdigest()
    assert f'"{digest}  envs/{name}.txt"' in script
    assert re.search(rf"pip install .*-r envs/{name}\.txt$", script, re.MULTILINE)


@pytest.mark.parametrize("recipe", ["envs/paper.post-deploy.sh", "envs/paper.Dockerfile", "envs/paper.def"])
def test_the_lock_with_overrides_is_installed_without_resolving_it_again(recipe: str) -> None:
    (command,) = [line for line in (ROOT / recipe).read_text().splitlines() if re.search(r"-r \S*paper\.txt", line)]
    assert " --no-deps " in command


@pytest.mark.parametrize("python", ["3.11", "3.12"])
def test_the_requirements_still_resolve_to_the_lock(python: str, tmp_path: Path) -> None:
    """``make lock-paper`` in a copy of the repository changes nothing; it reads metadata and installs nothing."""
    venv = Path(sys.executable).parent.parent
    if not (venv / "bin/uv").exists():
        pytest.skip("uv is not installed beside this Python: make env")
    shutil.copytree(ENVS, tmp_path / "envs")
    shutil.copy(ROOT / "Makefile", tmp_path)
    command = ["make", "--old-file=env", "lock-paper", f"VENV={venv}", f"PAPER_PYTHON={python}"]
    environment = {**os.environ, "UV_HTTP_RETRIES": "1", "UV_HTTP_TIMEOUT": "60"}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    if result.returncode != 0 and re.search(NO_INDEX, result.stderr):
        pytest.skip(f"the package index does not answer: {result.stderr.strip().splitlines()[0]}")
    assert result.returncode == 0, result.stderr
    for path in ENVS.iterdir():
        assert (tmp_path / "envs" / path.name).read_text() == path.read_text()
