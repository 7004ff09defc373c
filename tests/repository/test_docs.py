"""The documentation's commands name what there is, its links lead somewhere, its examples load.

Every block of shell is run as it stands, by bash, with programs that only note their arguments. So what is
checked is what a reader's shell would pass on, comments, variables and quotation marks included.
"""

import re
import shutil
import subprocess
import tempfile
import textwrap
from functools import cache
from pathlib import Path

import pytest
import torch
import yaml
from command_line import parse
from paths import ROOT

import srpo
from srpo import cli
from srpo.experiment.compose import experiment_file, load_experiment

CONFIGS = ROOT / "configs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
MAKEFILE = (ROOT / "Makefile").read_text()
RULES = {*re.findall(r"^rule (\w+)", "".join(file.read_text() for file in ROOT.glob("rules/*.smk")), re.MULTILINE)}
TARGETS = set(re.search(r"^\.PHONY:(.*)", MAKEFILE, re.MULTILINE)[1].split())

NOTED = """
note() { printf '%s\\0' "$@" '' >> "$LOG"; }
source() { note source "$@"; }
cd() { note cd "$@"; }
command_not_found_handle() { note "$@"; }
"""
"""Shell that notes each command's words, ended by a null, and ends each command by another.

One ``printf`` is one write: the parts of a pipe run at one time, and their words must not mix.
"""


def blocks(page: Path, language: str) -> list[str]:
    """The page's blocks of a language."""
    return re.findall(rf"^ *```{language}\n(.*?)^ *```$", page.read_text(), re.DOTALL | re.MULTILINE)


@cache
def commands_of(block: str) -> tuple[tuple[str, ...], ...]:
    """The words of each command that bash starts for a block."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.touch()
        result = subprocess.run(
            [shutil.which("bash"), "--norc", "-s"],
            input=f"{NOTED}{block}\nwait\n",
            cwd=folder,
            env={"PATH": f"{folder}/nothing", "HOME": folder, "LOG": str(log)},
            capture_output=True,
            text=True,
        )
        assert not result.stderr.strip(), result.stderr
        noted = log.read_text().replace(folder, "FOLDER")
        return tuple(tuple(words.split("\0")) for words in noted.split("\0\0")[:-1])


def experiments_of(page: str) -> set[str]:
    """Names of the experiments that a page tells its reader to write."""
    (path,) = (path for path in PAGES if path.name == page)
    written = map(yaml.safe_load, blocks(path, "yaml"))
    return {content.get("name", "") for content in written if isinstance(content, dict)}


def commands() -> list:
    """Each command of the pages' shell blocks and where it stands. In order: the parts of a pipe run at one time."""
    return [
        pytest.param(page.name, words, id=f"{page.name}-{number}-{part}")
        for page in PAGES
        for number, block in enumerate(blocks(page, "bash"), 1)
        for part, words in enumerate(sorted(commands_of(block)), 1)
    ]


@pytest.mark.parametrize(("page", "words"), commands())
def test_a_command_names_what_there_is(page: str, words: tuple[str, ...]) -> None:
    program, *arguments = words
    if program == "srpo":
        parse([a for a in arguments if a != "--help"] or ["plan", "paper"])
    elif program == "make":
        assert {a for a in arguments if "=" not in a} <= TARGETS, page
    elif program == "snakemake":
        from snakemake.cli import get_argument_parser

        options = get_argument_parser([]).parse_args(arguments)
        for file in options.configfile or []:
            made = f"--output {file}\n" in next(path for path in PAGES if path.name == page).read_text()
            named = "NAME" in str(file) or Path(file).stem in experiments_of(page)
            assert made or named or (ROOT / file).is_file(), page
        for profile in options.profile or []:
            assert (ROOT / profile / "config.yaml").is_file(), page
        assert {*(options.until or [])} <= RULES, page
        for target in {*options.targets} - RULES:
            assert_made(options.configfile, target)
    elif program in ("python", "torchrun"):
        for script in (a for a in arguments if a.endswith((".py", ".in", ".txt"))):
            assert (ROOT / script).is_file(), page
        if "-c" in arguments:
            compile(arguments[arguments.index("-c") + 1], page, "exec")


def assert_made(configfile: list[Path] | None, target: str) -> None:
    """A target below ``runs`` is of a run of the experiment."""
    experiment = load_experiment(ROOT / configfile[0] if configfile else experiment_file("embedded"))
    parts = Path(target).parts
    runs = parts.index("runs")
    assert parts[runs - 1] == experiment.name
    assert "/".join(parts[runs + 1 : runs + 5]) in {run.path for run in experiment.runs()}


@pytest.mark.parametrize("page", ["README.md", "docs/verl.md"])
def test_the_loop_of_a_page_runs(page: str) -> None:
    """Its first block of Python, with a table of logits for a model, changes the student and then the teacher."""
    student, teacher = (torch.nn.Embedding(3, 5) for _ in range(2))
    prompts = []

    def logits_of(model: torch.nn.Embedding, questions: list, ids: torch.Tensor) -> torch.Tensor:
        prompts.append([question[-1]["content"] for question in questions])
        return model(ids)

    names = {
        "rewards": torch.tensor([1.0, 0, 0, 0]),
        "groups": torch.tensor([0, 0, 1, 1]),
        "questions": [[{"role": "user", "content": "q"}]] * 4,
        "texts": ["a", "b", "c", "d"],
        "response_ids": torch.tensor([[0, 1], [1, 2], [2, 2], [0, 0]]),
        "response_mask": torch.tensor([[1, 1], [1, 0], [1, 1], [1, 1]]),
        "student": student,
        "teacher": teacher,
        "optimizer": torch.optim.SGD(student.parameters(), 0.1),
        "logits_of": logits_of,
    }
    before = teacher.weight.clone()
    exec(textwrap.dedent(blocks(ROOT / page, "python")[0]), names)
    of_teacher, of_student = prompts
    assert [("Correct solution:\n\na" in prompt) for prompt in of_teacher] == [False, True, False, False]
    assert of_student == ["q"] * 4
    assert student.weight.grad.any()
    assert torch.equal(teacher.weight, before) is (page == "README.md")


# ---------------------------------------------------------------- examples of configuration

CONFIGURATION = [(page, block) for page in PAGES for block in blocks(page, "yaml")]
FILES = {
    place[1]: block
    for _, block in CONFIGURATION
    if (place := re.match(r"# configs/((?:methods|models|benchmarks)/\S+)", block))
}
"""Examples that are a file: their first line says which."""
EXPERIMENTS = [
    pytest.param(content, id=f"{page.name}-{content['name']}")
    for page, block in CONFIGURATION
    if isinstance(content := yaml.safe_load(block), dict) and "name" in content
]


@pytest.fixture(scope="module")
def configs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of ``configs`` with the pages' files; none is shipped, and those that the reader has made are replaced."""
    shipped = subprocess.run(["git", "ls-files", "configs"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    copy = Path(shutil.copytree(CONFIGS, tmp_path_factory.mktemp("docs") / "configs"))
    for place, block in FILES.items():
        file = copy / place
        assert f"configs/{place}" not in shipped, place
        file.parent.mkdir(exist_ok=True)
        file.write_text(block)
        content = yaml.safe_load(block)
        if content.get("kind") == "files":
            with_response, question = blocks(ROOT / "docs" / "extending.md", "json")
            of_each = [question.replace("17", str(number)) for number in range(40)]
            (file.parent / content["train_file"]).write_text("".join([with_response, *of_each[8:]]))
            (file.parent / content["test_file"]).write_text("".join(of_each[:8]))
    return copy


@pytest.mark.parametrize("place", FILES)
def test_files_of_the_pages_load(place: str, configs: Path) -> None:
    kind, _, name = place.removesuffix(".yaml").partition("/")
    matrix = {"models": ["qwen3-4b"], "benchmarks": ["sdpo/physics"], "methods": ["grpo"]} | {kind: [name]}
    if kind == "benchmarks":
        del matrix["methods"]  # one that is only evaluated may have few questions
    load_experiment({"name": "example", "title": "Example", "extends": "paper", "matrix": [matrix]}, configs, place)


@pytest.mark.parametrize("content", EXPERIMENTS)
def test_experiments_of_the_pages_load(content: dict, configs: Path) -> None:
    """One whose page leaves the matrix to the reader has that of the experiment that it extends."""
    if "matrix" not in content:
        content = content | {"matrix": yaml.safe_load(experiment_file(content["extends"]).read_text())["matrix"]}
    experiment = load_experiment(content, configs, content["name"])
    for run in experiment.runs():
        experiment.run(run)


# ---------------------------------------------------------------- links, names, pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text()):
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)", file.read_text(), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}, target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_tests_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(
        r"`((?:src/srpo|tests|bench|scripts|rules|reports|configs|envs|docs|examples)/[\w./-]*\w)`", text
    ):
        assert (ROOT / name).exists(), name
    for file, test in re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", text):
        (found,) = (ROOT / "tests").rglob(file)
        assert f"def {test}" in found.read_text(), f"{file}::{test}"


# ---------------------------------------------------------------- make, CI, citation


def test_ci_uses_actions_by_their_commit() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert workflows
    for workflow in workflows:
        jobs = yaml.safe_load(workflow.read_text())["jobs"]
        for step in (step for job in jobs.values() for step in job["steps"]):
            assert re.search("@[0-9a-f]{40}$", step.get("uses", "@" + 40 * "0")), f"{workflow}: {step}"


def test_citation_changelog_and_command_line_name_this_version(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"srpo {srpo.__version__}\n"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == srpo.__version__
    assert f"## {srpo.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert citation["references"][0]["title"] in (ROOT / "README.md").read_text()
