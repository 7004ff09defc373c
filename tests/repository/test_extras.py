"""Each extra of the package is enough for its part of the program; the core is for the method and the configuration."""

import tomllib
from collections.abc import Callable
from pathlib import Path

import farm
import pytest
from paths import ROOT
from synthetic import write_results
from tiny import tiny_experiment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = PROJECT["dependencies"]

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
            *modules("algorithm", "experiment"),
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


@pytest.mark.parametrize(
    ("extra", "absent"), {"": "numpy", "report": "verl", "workflow": "seaborn", "verl": "seaborn"}.items()
)
def test_packages_of_other_extras_are_absent(plant: Plant, extra: str, absent: str) -> None:
    """So that the other tests here can fail."""
    result = farm.run(plant(extra), "-c", f"import {absent}")
    assert f"No module named '{absent}'" in result.stderr


def test_workflow_is_enough_to_plan_and_to_read_logs(plant: Plant, tmp_path: Path) -> None:
    experiment = tiny_experiment("srpo", budget_seconds={"1h": 3})
    write_results(tmp_path / "results/tiny", experiment)
    training = ["srpo.training.attempts", "srpo.training.mirror", "srpo.training.status"]
    imported(plant("workflow"), [*training, *modules("plan"), "srpo.analysis.outline"])
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
