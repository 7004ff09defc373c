"""The environments: the locks are what is asked for, still resolve, and are what every way in installs."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Collection, Iterable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

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


@pytest.mark.parametrize("path", sorted(ENVS.iterdir()), ids=lambda path: path.name)
def test_no_file_names_a_host_or_a_folder_of_some_machine(path: Path) -> None:
    inside = r"/(opt/venv|srpo|tmp/(paper|embedded).txt|var/lib/apt)\b"  # the container
    text = re.sub(inside, "", path.read_text())
    assert not re.search(r"://|@ |--(extra-)?index-url|--find-links|\b[\w-]+\.(org|com|net|io)\b", text)
    assert not re.search(
        r"(?<![\w.$/}])/(home|root|work|mnt|opt|tmp|scratch|data|usr)\b", text.replace("/usr/bin/env", "")
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_line_of_a_lock_is_a_package_at_one_version(name: str) -> None:
    stated = lines(ENVS / f"{name}.txt")
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*==[0-9][0-9a-z.]*", line) for line in stated)
    assert len(lock(name)) == len(stated) > 100


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_for_is_pinned_and_locked_as_asked(name: str) -> None:
    locked = lock(name)
    for package, requirement in requirements(ENVS / f"{name}.in").items():
        assert str(requirement.specifier) == f"=={locked[package]}"
    assert lines(ENVS / f"{name}.in", options=True) == lines(ENVS / f"{name}.txt", options=True)


def next_major(version: str) -> int:
    return int(version.partition(".")[0]) + 1


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
    expected = {name: SpecifierSet(f">={locked[name]},<{next_major(locked[name])}") for name in embedded}
    expected |= {name: SpecifierSet(f">={lock('paper')[name]},<={locked[name]}") for name in DIFFERENT}
    expected |= {name: SpecifierSet(f"=={locked[name]}") for name in EXACT}
    core = specifiers(project["dependencies"])
    for extra, stated in extras.items():
        found = specifiers(stated)
        assert found == {name: expected[name] for name in found}, extra
    assert set(core).union(*map(specifiers, extras.values())) == set(embedded)


def test_the_core_leaves_an_environment_its_versions() -> None:
    """Its ranges have both locks' versions, older ones too, and end at the next major version."""
    core = specifiers(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    assert core.keys() == {"torch", "jaxtyping", "pydantic", "pyyaml", "filelock"}
    for name, versions in core.items():
        bounds = {bound.operator: bound.version for bound in versions}
        assert bounds.keys() == {">=", "<"}
        assert bounds["<"] == str(next_major(lock("embedded")[name]))
        assert Version(bounds[">="]) < Version(lock("embedded")[name])
        assert all(lock(environment)[name] in versions for environment in NAMES)


def test_the_lock_is_what_the_overrides_say() -> None:
    locked = lock("paper")
    for package, requirement in requirements(ENVS / "paper.overrides").items():
        if requirement.marker and not requirement.marker.evaluate():
            assert package not in locked
        else:
            assert requirement.specifier.contains(locked[package])


def test_verl_is_the_one_whose_private_names_are_used_and_torch_the_one_of_sglang() -> None:
    assert lock("paper")["verl"] == lock("embedded")["verl"] == VERL_VERSION
    assert {package: lock("paper")[package] for package in ("sglang", "torch", "torchvision", "torchaudio")} == {
        "sglang": "0.5.12",
        "torch": "2.11.0",
        "torchvision": "0.26.0",
        "torchaudio": "2.11.0",
    }


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


@pytest.mark.parametrize("name", NAMES)
def test_conda_environments_install_the_lock_as_it_is_now(name: str) -> None:
    environment = yaml.safe_load((ENVS / f"{name}.yaml").read_text())
    assert "pip" in environment["dependencies"]
    script = (ENVS / f"{name}.post-deploy.sh").read_text()
    digest = hashlib.sha256((ENVS / f"{name}.txt").read_bytes()).hexdigest()
    assert f'"{digest}  envs/{name}.txt"' in script, (
        f"envs/{name}.post-deploy.sh has to name the lock's SHA-256, {digest}"
    )
    assert re.search(rf"pip install .*-r envs/{name}\.txt$", script, re.MULTILINE)


@pytest.mark.parametrize("recipe", ["Makefile", "envs/paper.post-deploy.sh", "envs/paper.Dockerfile", "envs/paper.def"])
def test_the_lock_with_overrides_is_installed_without_resolving_it_again(recipe: str) -> None:
    (command,) = [line for line in (ROOT / recipe).read_text().splitlines() if re.search(r"-r \S*paper\.txt", line)]
    assert " --no-deps " in command


def test_both_containers_start_from_the_same_image() -> None:
    docker = re.search(r"^FROM (\S+)$", (ENVS / "paper.Dockerfile").read_text(), re.MULTILINE)[1]
    assert re.fullmatch(r"nvidia/cuda:\d+\.\d+\.\d+-\S+", docker)
    assert f"\nBootstrap: docker\nFrom: {docker}\n" in (ENVS / "paper.def").read_text()
    assert lock("paper")["cuda-toolkit"] in docker


@pytest.fixture
def silent_index() -> Iterator[str]:
    """The address of an index that accepts a connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def cpu_index(tmp_path: Path) -> Iterator[str]:
    """The address of an index that answers."""
    (tmp_path / "index/torch").mkdir(parents=True)
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def installed_by_make(folder: Path, index: str, broken: str = "nothing is") -> tuple[list[str], str]:
    """Run ``make env`` with a Python that only records what pip is to install; the pip commands and what make says.

    Args:
        broken: pip fails on commands that contain this.
    """
    shutil.copytree(ENVS, folder / "envs")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    python = folder / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f'#!/bin/bash\n[ "$1" = -c ] && exec {sys.executable} "$@"\n'
        f'echo "$@" >> {folder}/log\n[[ "$*" == *"-r "* ]] && printf "Collecting %s\\n" {{1..60}}\n'
        f'[[ "$*" != *"{broken}"* ]]\n'
    )
    python.chmod(0o755)
    command = ["make", "--silent", "env", f"VENV={folder}/venv", f"PYTHON={sys.executable}", f"TORCH_CPU={index}"]
    environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert re.findall(r"make: (\d+) of \d+ packages found", result.stdout) == ["25", "50"]
    # the first asks whether the environment has pip
    asked, *commands = (folder / "log").read_text().splitlines()
    assert asked == "-m pip --version"
    return [re.sub("-m pip install (--quiet )?", "", line) for line in commands], result.stderr


TORCH = f"torch=={lock('embedded')['torch']}"
REST = ["-r envs/embedded.txt", "--no-deps --no-build-isolation -e ."]


def test_torch_and_nothing_else_comes_from_the_index_of_cpu_builds(tmp_path: Path, cpu_index: str) -> None:
    installed, said = installed_by_make(tmp_path, cpu_index)
    assert (installed, said) == ([f"--no-deps --index-url {cpu_index} {TORCH}", *REST], "")


@pytest.mark.parametrize("index", ["http://127.0.0.1:9", "http://no-such-host.invalid", ""])
def test_an_index_that_cannot_be_reached_is_left_aside_with_one_line(tmp_path: Path, index: str) -> None:
    installed, said = installed_by_make(tmp_path, index)
    assert installed == [TORCH, *REST]
    assert re.fullmatch(r"make: no CPU build of torch .*2\.7 GB.*\n", said)


def test_an_index_that_does_not_answer_is_left_aside_in_seconds(tmp_path: Path, silent_index: str) -> None:
    start = time.monotonic()
    installed, said = installed_by_make(tmp_path, silent_index)
    assert time.monotonic() - start < 30
    assert (installed, len(said.splitlines())) == ([TORCH, *REST], 1)


def test_an_index_without_this_torch_is_left_aside(tmp_path: Path, cpu_index: str) -> None:
    installed, said = installed_by_make(tmp_path, cpu_index, broken="--index-url")
    assert installed == [f"--no-deps --index-url {cpu_index} {TORCH}", TORCH, *REST]
    assert len(said.splitlines()) == 1


def paper_python(folder: Path, works: Collection[str], *arguments: str) -> tuple[str, str]:
    """Run ``make env-paper`` where only some of the commands python3.11 and python3.12 run, as with pyenv's shims.

    Args:
        arguments: more of make's.

    Returns:
        The command that made the environment, and what make says.
    """
    shutil.copytree(ENVS, folder / "envs")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    commands = folder / "commands"
    commands.mkdir()
    for name in ("python3.11", "python3.12", "python3", "python"):
        version = name.removeprefix("python3.") if name in works else None
        script = [
            "#!/bin/bash",
            f"echo 'pyenv: {name}: command not found' >&2; exit 127" if version is None else "",
            # it prints its version and installs nothing
            f'[[ "$*" == *print*version_info* ]] && echo 3.{version}',
            f'[ "$1 $2" = "-m venv" ] && echo {name} > {folder}/made_by',
            '[ "$1 $2" = "-m venv" ] && mkdir -p "${!#}/bin" && cp "$0" "${!#}/bin/python"',
            "exit 0",
        ]
        (commands / name).write_text("\n".join(script))
        (commands / name).chmod(0o755)
    environment = os.environ | {"PATH": f"{commands}:/usr/bin:/bin"}
    environment.pop("PYTHON", None)
    command = ["make", "--silent", "env-paper", f"PAPER_VENV={folder}/venv", *arguments]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    made_by = folder / "made_by"
    return made_by.read_text().strip() if made_by.exists() else "", result.stderr


def test_the_environment_for_gpus_has_python_312_if_it_runs(tmp_path: Path) -> None:
    assert paper_python(tmp_path, ["python3.11", "python3.12"]) == ("python3.12", "")


def test_a_shim_of_pyenv_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    made_by, said = paper_python(tmp_path, ["python3.11"])
    assert made_by == "python3.11"
    assert re.search(r"^make: no Python 3\.12 that runs; .*\(make PYTHON=/path/to/python3\.12 env-paper\)$", said, re.M)


def test_without_a_python_that_runs_make_names_the_remedy(tmp_path: Path) -> None:
    made_by, said = paper_python(tmp_path, [])
    assert made_by == ""
    assert "make: Python 3.12 or 3.11 with venv and ensurepip is needed (Debian and Ubuntu: apt install" in said
    assert "or name one: make PYTHON=/path/to/python3.12 env-paper)" in said


def test_a_python_that_is_named_and_does_not_run_has_no_substitute(tmp_path: Path) -> None:
    made_by, said = paper_python(tmp_path, ["python3.11", "python3.12"], "PYTHON=/nonexistent")
    assert made_by == ""
    assert "with venv and ensurepip is needed; PYTHON=/nonexistent is none (Debian" in said


@pytest.mark.parametrize(("pip", "made_by"), [(1, "python3.12"), (0, "")], ids=["without pip", "whole"])
def test_an_environment_that_was_left_half_made_is_made_anew(tmp_path: Path, pip: int, made_by: str) -> None:
    """As ``python -m venv`` leaves it where ensurepip is missing; what has pip is kept."""
    program = tmp_path / "venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    version = "echo 3.12" if made_by == "" else ""
    program.write_text(f'#!/bin/bash\n[ "$1 $2 $3" = "-m pip --version" ] && exit {pip}\n{version}\nexit 0\n')
    program.chmod(0o755)
    assert paper_python(tmp_path, ["python3.12"])[0] == made_by


def test_every_recipe_for_gpus_names_the_library_of_sglangs_kernels() -> None:
    """``libnuma.so.1``, which no wheel has."""
    for recipe, package in (("paper.Dockerfile", "libnuma1"), ("paper.def", "libnuma1"), ("paper.yaml", "- libnuma")):
        assert package in (ENVS / recipe).read_text(), recipe
    page = (ROOT / "docs/environments.md").read_text()
    assert "libnuma.so.1" in page.split("## The CUDA environment")[1].split("### Install it")[0]


def test_the_makefile_names_one_host() -> None:
    assert re.findall(r"https?://\S+", (ROOT / "Makefile").read_text()) == ["https://download.pytorch.org/whl/cpu"]


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
