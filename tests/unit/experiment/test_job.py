"""What a job is given on its command line: the same run as the experiment has, and nothing that was changed unseen."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import fails
from tiny import prepare, tiny_experiment

from srpo import cli
from srpo.experiment.compose import load_experiment, resolved_text
from srpo.experiment.config import Experiment
from srpo.experiment.job import Job, job_of, read_job
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_json
from srpo.ground.layout import Layout, RunFiles, model_description
from srpo.ground.repository import CONFIGS

SECTIONS = (*("experiment", "model", "benchmark", "method", "training", "execution", "evaluation", "code", "version"),)


def sections(job: Job) -> list[str]:
    return [job.text(section) for section in SECTIONS]


def described(value: Any) -> Any:
    """Without titles, and without where a model's weights come from."""
    if isinstance(value, dict):
        return {k: described(inner) for k, inner in value.items() if k not in {"title", "path", "shape", "stored"}}
    return value


@pytest.mark.parametrize("file", sorted((CONFIGS / "experiments").glob("*.yaml")), ids=lambda file: file.stem)
def test_sections_read_back_are_the_same_run(file: Path) -> None:
    experiment = load_experiment(file)
    for run in {run.method: run for run in experiment.runs()}.values():
        names = {key: str(value) for key, value in run.model_dump().items()}
        read = read_job(sections(job_of(experiment, names)), names)
        expected = experiment.run(run).model_dump(mode="json")
        assert described(read.spec.model_dump(mode="json")) == described(expected)
        assert read.spec.identity() == experiment.run(run).identity()
        assert read.evaluation == experiment.evaluation


def test_a_title_and_where_a_model_is_change_no_section() -> None:
    experiment = load_experiment(CONFIGS / "experiments" / "paper.yaml")
    run = experiment.runs()[0]
    titled = {
        kind: {name: part.model_copy(update={"title": "Another"}) for name, part in getattr(experiment, kind).items()}
        for kind in ("models", "benchmarks", "methods")
    }
    titled["models"] = {name: model.model_copy(update={"shape": None}) for name, model in titled["models"].items()}
    other = experiment.model_copy(update={"title": "Another", **titled})
    assert sections(job_of(other, run.model_dump())) == sections(job_of(experiment, run.model_dump()))


@pytest.mark.parametrize("line", ["from own_package.helper import score", "divergence = 'own_package.helper:score'"])
@pytest.mark.parametrize("installed", [False, True])
def test_a_changed_file_of_ones_own_code_changes_the_job(
    installed: bool, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if installed:
        tmp_path /= "site-packages"
        tmp_path.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_package", raising=False)
    module = "own_package.reward" if installed else "own_reward"
    file = module.replace(".", "/") + ".py"
    experiment = tiny_experiment("srpo")
    own = {"physics": experiment.benchmarks["physics"].model_copy(update={"reward": f"{module}:score"})}
    found = []
    (tmp_path / "own_package").mkdir()
    (tmp_path / file).write_text(f"import neighbour\n{line}\n")
    (tmp_path / "neighbour.py").touch()
    known = {file, "own_package/helper.py"} | ({"neighbour.py"} if not installed else set())
    for text in ("def score(*_): return 0.0\n", "def score(*_): return 1.0\n"):
        (tmp_path / "own_package" / "helper.py").write_text(text)
        job = job_of(experiment.model_copy(update={"benchmarks": own}), experiment.runs()[0].model_dump())
        assert job.code.keys() == known
        found.append(sections(job))
    code = SECTIONS.index("code")
    assert found[0][code] != found[1][code]
    names = {key: str(value) for key, value in experiment.runs()[0].model_dump().items()}
    assert read_job(found[1], names).code == job.code
    with pytest.raises(SrpoError, match="not the code that"):  # the file is that of the second job
        read_job(found[0], names)


# ---------------------------------------------------------------- commands


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Layout]:
    """A run and its evaluation, made from sections of settings alone."""
    experiment = tiny_experiment("srpo", max_steps=1)
    spec, layout = prepare(experiment, tmp_path_factory.mktemp("trained"))
    given = sections(job_of(experiment, spec.id.model_dump()))
    files = layout.run_files(spec.id)
    for verb, made in (("train", files.summary), ("evaluate", files.evaluation)):
        assert cli.main([verb, str(made), *given]) == 0
    layout.experiment.write_text(resolved_text(experiment))
    return experiment, layout


@pytest.fixture
def copied(trained: tuple[Experiment, Layout], tmp_path: Path) -> tuple[Layout, RunFiles]:
    experiment, layout = trained
    copy = Layout(Path(shutil.copytree(layout.folder, tmp_path / "tiny")))
    return copy, copy.run_files(experiment.runs()[0])


def test_a_command_without_settings_takes_those_of_the_experiment(copied: tuple[Layout, RunFiles]) -> None:
    _, files = copied
    before, samples = read_json(files.evaluation), files.samples.read_bytes()
    assert cli.main(["evaluate", str(files.evaluation)]) == 0
    assert read_json(files.evaluation) | {"wall_seconds": 0} == before | {"wall_seconds": 0}
    assert files.samples.read_bytes() == samples
    selected = {budget["step"] for budget in before["budgets"].values()}
    assert {path.name for path in files.weights.iterdir()} == {f"step{step}" for step in selected}


def test_another_version_is_refused(trained: tuple[Experiment, Layout], capsys: pytest.CaptureFixture[str]) -> None:
    experiment, layout = trained
    run = experiment.runs()[0]
    given = [*sections(job_of(experiment, run.model_dump()))[:-1], json.dumps({"version": "0.1.0"})]
    assert "0.1.0" in fails(capsys, "evaluate", layout.run_files(run).evaluation, *given)


@pytest.mark.parametrize("verb", ["train", "evaluate", "evaluate the base", "gap"])
def test_replaced_weights_are_refused(
    verb: str, copied: tuple[Layout, RunFiles], capsys: pytest.CaptureFixture[str]
) -> None:
    layout, files = copied
    weights = layout.model("miniature-tiny") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\1")
    made = {
        "train": files.summary,
        "evaluate": files.evaluation,
        "evaluate the base": layout.base_files("miniature-tiny", "physics").evaluation,
        "gap": layout.gap("miniature-tiny", "physics"),
    }
    assert str(weights.parent) in fails(capsys, verb.partition(" ")[0], made[verb])


def set_key(layout: Layout, section: str, key: str, value: object) -> None:
    experiment = yaml.safe_load(layout.experiment.read_text())
    experiment[section][key] = value
    layout.experiment.write_text(yaml.safe_dump(experiment))


def copy_questions(layout: Layout) -> None:
    shutil.copy(layout.split("physics", "test"), layout.split("physics", "train"))


def make_another_base_model(layout: Layout) -> None:
    model_description(layout.model("miniature-tiny")).write_text('{"sha256": "ab"}')


def restore_the_run(layout: Layout) -> None:
    """The evaluation alone is of the settings before."""
    set_key(layout, "training", "weight_decay", 0.02)
    for origin in layout.found(layout.any_run.origin):
        origin.write_text(origin.read_text().replace("weight_decay: 0.01", "weight_decay: 0.02"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda layout: set_key(layout, "training", "weight_decay", 0.02), "seed1: made with other settings: training"),
        (restore_the_run, "seed1/evaluation.json: made with other settings: training.weight_decay = 0.01, now 0.02"),
        (lambda layout: set_key(layout, "evaluation", "rollouts", 3), "evaluation.json: made with other settings: eva"),
        (lambda layout: set_key(layout, "execution", "precision", "bfloat16"), "precision = float32, now bfloat16"),
        (copy_questions, "data.train"),
        (make_another_base_model, "base_model"),
    ],
    ids=["settings", "evaluation of old settings", "evaluation", "precision", "data", "base model"],
)
def test_a_report_has_no_numbers_of_another_experiment(
    change: Callable[[Layout], None], said: str, copied: tuple[Layout, RunFiles], capsys: pytest.CaptureFixture[str]
) -> None:
    layout, files = copied
    change(layout)
    assert said in fails(capsys, "report", layout.folder)
    assert not layout.tables.exists()
    if "evaluation" not in said:
        fails(capsys, "evaluate", files.evaluation)


def test_a_report_of_the_results_as_they_are(copied: tuple[Layout, RunFiles]) -> None:
    layout, _ = copied
    assert cli.main(["report", str(layout.folder), "--only-tables"]) == 0
    assert (layout.tables / "table1.csv").is_file()
