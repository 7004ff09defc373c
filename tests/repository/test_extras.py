"""Each extra of the package is enough for its part of the program; the core is for the method and the configuration."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import farm
import pytest
import yaml
from packaging.requirements import Requirement
from paths import ROOT
from synthetic import write_results
from tiny import prepare, tiny_experiment

from srpo.cli import app
from srpo.ground.imports import EXTRAS, NEEDS, missing_extra

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = PROJECT["dependencies"]
CORE_MODULES = {"torch", "jaxtyping", "pydantic", "yaml", "filelock"}

Plant = Callable[[str], Path]


@pytest.fixture(scope="module")
def plant(tmp_path_factory: pytest.TempPathFactory) -> Plant:
    """The folder with the packages of the core and of one extra, or of the core alone for an empty name."""
    folder = tmp_path_factory.mktemp("packages")
    made: dict[str, Path] = {}

    def plant(extra: str) -> Path:
        if extra not in made:
            stated = [*CORE, *(PROJECT["optional-dependencies"][extra] if extra else [])]
            made[extra] = farm.plant(folder / (extra or "core"), stated)
        return made[extra]

    return plant


def modules(*packages: str) -> list[str]:
    """Every module of some packages of srpo."""
    paths = [path for package in packages for path in sorted((ROOT / "src/srpo" / package).rglob("*.py"))]
    parts = [path.relative_to(ROOT / "src").with_suffix("").parts for path in paths]
    return [".".join(part[:-1] if part[-1] == "__init__" else part) for part in parts]


def imported(folder: Path, names: list[str]) -> None:
    code = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    result = farm.run(folder, "-c", code, *names)
    assert result.returncode == 0, result.stderr


def test_the_core_is_enough_for_the_method_and_the_configuration(plant: Plant) -> None:
    imported(
        plant(""),
        [
            "srpo",
            *modules("algorithm", "experiment", "cost"),
            "srpo.hosts.functional",
            "srpo.questions.rewards",
            "srpo.ground.layout",
        ],
    )
    code = (
        "from srpo.experiment.compose import experiment_file, load_experiment, resolved_text; "
        "print(resolved_text(load_experiment(experiment_file('smoke'))))"
    )
    result = farm.run(plant(""), "-c", code)
    assert result.returncode == 0, result.stderr
    assert "name: smoke" in result.stdout.splitlines()


def test_the_loss_alone_is_imported_without_a_word(plant: Plant) -> None:
    """torch without NumPy warns."""
    result = farm.run(
        plant(""), "-c", "import srpo; print(srpo.loss, srpo.totals([2, 3], None, [1, 0], [0, 0], 'grpo'))"
    )
    assert result.returncode == 0, result.stderr
    assert "Totals(tokens=5" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_packages_of_other_extras_are_absent(plant: Plant, extra: str) -> None:
    """So that the other tests here can fail."""
    absent = {"": "numpy", "report": "verl", "workflow": "seaborn", "verl": "seaborn"}[extra]
    result = farm.run(plant(extra), "-c", f"import {absent}")
    assert f"No module named '{absent}'" in result.stderr


def test_workflow_is_enough_to_plan_and_to_read_logs(plant: Plant, tmp_path: Path) -> None:
    experiment = tiny_experiment("srpo", budget_seconds={"1h": 3})
    write_results(tmp_path / "results/tiny", experiment)
    imported(plant("workflow"), ["srpo.training.attempts", *modules("plan", "tracking"), "srpo.analysis.outline"])
    for verb in (["plan", "smoke"], ["status", "results/tiny"], ["experiment", "smoke"]):
        result = farm.run(plant("workflow"), "-m", "srpo", *verb, cwd=tmp_path)
        assert result.returncode == 0, result.stderr


def test_report_is_enough_for_a_report(plant: Plant, tmp_path: Path) -> None:
    write_results(tmp_path / "results/tiny", tiny_experiment("srpo", budget_seconds={"1h": 3}))
    result = farm.run(plant("report"), "-m", "srpo", "report", "results/tiny", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "results/tiny/report.html").stat().st_size > 0


def test_verl_is_enough_for_training(plant: Plant) -> None:
    reports = {"srpo.training.status", "srpo.training.mirror"}
    names = {*modules("questions", "starts", "policy", "rollout", "training")} - reports
    imported(plant("verl"), ["srpo.cli", *sorted(names)])


@pytest.mark.parametrize(
    ("installed", "verb", "said"),
    [
        ("", "plan smoke", r"package typer is missing; run: python -m pip install 'srpo\[workflow\]'"),
        ("workflow", "report results/tiny", r"package \w+ is missing; run: python -m pip install 'srpo\[report\]'"),
        (
            "report",
            "train results/tiny/runs/miniature-tiny/physics/srpo/seed1/summary.json",
            r"package \w+ is missing; run: python -m pip install 'srpo\[verl\]'",
        ),
    ],
)
def test_a_missing_extra_is_one_line(plant: Plant, tmp_path: Path, installed: str, verb: str, said: str) -> None:
    experiment = tiny_experiment("srpo")
    layout = prepare(experiment, tmp_path / "results")[1]
    layout.experiment.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    result = farm.run(plant(installed), "-m", "srpo", *verb.split(), cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(rf"srpo: error: {said}\n", result.stderr)


def test_the_trainer_of_trl_names_its_extra(plant: Plant) -> None:
    result = farm.run(plant(""), "-c", "import srpo.hosts.trl")
    said = r"\nImportError: srpo.hosts.trl needs TRL 1.16 \(No .*\); run: python -m pip install 'srpo\[trl\]'\n$"
    assert re.search(said, result.stderr)


def test_every_verb_names_one_extra() -> None:
    verbs = [command.name for command in app.registered_commands] + [group.name for group in app.registered_groups]
    assert sorted(verbs) == sorted(verb for needs in NEEDS.values() for verb in needs)


def test_another_missing_module_is_no_extra() -> None:
    assert missing_extra(ModuleNotFoundError(name="srpo.nothing")) is None
    assert missing_extra(ModuleNotFoundError()) is None


def test_the_message_knows_every_package_of_the_extras() -> None:
    """By their import names, which are the distributions' but for a hyphen; and every package that the code imports."""
    for extra, names in EXTRAS.items():
        required = {Requirement(line).name.lower() for line in PROJECT["optional-dependencies"][extra]} - {"torch"}
        assert required <= {name.replace("transfer_queue", "transferqueue") for name in names}, extra
    known = CORE_MODULES.union({"trl", "reasoning_gym"}, *EXTRAS.values())
    assert CORE_MODULES < third_party_imports() <= known


def third_party_imports() -> set[str]:
    """The packages that srpo imports: at a module's head or in a function."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"srpo"}
