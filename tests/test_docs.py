"""The documentation's commands name what there is, and its links lead somewhere."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from srpo import cli
from srpo.compose import experiment_file, load_experiment
from srpo.config import CONFIG_ROOT

ROOT = CONFIG_ROOT.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TARGETS = set(re.search(r"^\.PHONY:(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[1].split())


def lines(block: str) -> Iterator[list[str]]:
    """The words of each line of shell; after a backslash or in quotes it goes on in the next."""
    line = ""
    for part in block.splitlines(keepends=True):
        line = line.removesuffix("\\\n") + part
        with contextlib.suppress(ValueError):  # no closing quotation or escaped character
            if not line.endswith("\\\n"):
                yield shlex.split(line, comments=True)
                line = ""


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each simple command of the pages' shell blocks and where it stands; assignments are left out."""
    for page in PAGES:
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
            for name, value in re.findall(r'^(\w+)="(.*)"$', block, re.MULTILINE):
                block = block.replace(f"${name} ", f"{value} ")
            for words in lines(block):
                for operator, part in itertools.groupby(words, lambda word: word in ("&&", ";", "|")):
                    command = list(itertools.dropwhile(lambda word: re.match(r"\w+=", word), part))
                    if command and not operator:
                        yield page.name, command


@pytest.mark.parametrize(("page", "words"), [pytest.param(*each, id=" ".join(each[1])) for each in commands()])
def test_a_command_names_what_there_is(page: str, words: list[str]) -> None:
    program, *arguments = words
    if program == "srpo":
        cli.make_parser().parse_args([a for a in arguments if a != "--help"] or ["plan", "paper"])
    elif program == "make":
        assert {a for a in arguments if "=" not in a} <= TARGETS, page
    elif program == "snakemake":
        from snakemake.cli import get_argument_parser

        options = get_argument_parser([]).parse_args(arguments)
        for file in options.configfile or []:
            assert (ROOT / file).is_file() or "NAME" in str(file), page
        for profile in options.profile or []:
            assert (ROOT / profile / "config.yaml").is_file(), page
        for target in options.targets:
            assert_made(options.configfile, target)
    elif program in ("python", "torchrun"):
        for script in (a for a in arguments if a.endswith((".py", ".in", ".txt"))):
            assert (ROOT / script).is_file(), page


def assert_made(configfile: list[Path] | None, target: str) -> None:
    """A target below ``runs`` is of a run of the experiment."""
    experiment = load_experiment(ROOT / configfile[0] if configfile else experiment_file("embedded"))
    _, name, kind, *rest = Path(target).parts
    assert name == experiment.name
    assert kind == "runs"
    assert "/".join(rest[:4]) in {run.path for run in experiment.runs()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)", file.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}, target


def test_readme_lists_every_experiment() -> None:
    readme = (ROOT / "README.md").read_text()
    for file in (CONFIG_ROOT / "experiments").glob("*.yaml"):
        name = yaml.safe_load(file.read_text())["name"]
        assert f"`{name}`" in readme or f"`-{name.removeprefix('sweep-')}`" in readme, name
