"""The command line: one clear line for a mistake, before anything is computed."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from command_line import fails
from synthetic import tiny_experiment, write_results

from srpo import cli
from srpo.experiment.compose import load_experiment
from srpo.ground.layout import Layout
from srpo.ground.repository import CONFIGS

OF_A_RUN = ["--experiment", "x", "--model", "m", "--benchmark", "b"]
RUN = ["--model", "miniature-small", "--benchmark", "physics", "--method", "srpo"]


@pytest.fixture(autouse=True)
def _without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The results directory of a resolved experiment, still empty."""
    layout = Layout(tmp_path / "results" / "tiny")
    layout.folder.mkdir(parents=True)
    experiment = load_experiment(tiny_experiment())
    layout.experiment.write_text(yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False))
    return layout


@pytest.mark.parametrize("verb", ["report DIR", "gap --experiment DIR/experiment.yaml --model m --benchmark sums"])
def test_what_to_run_is_not_its_results(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "own"
    source.mkdir()
    (source / "experiment.yaml").write_text("name: own\nextends: real-cpu\nmatrix: []\n")
    assert cli.main(verb.replace("DIR", str(source)).split()) == 2
    said = capsys.readouterr().err
    assert "what to run, not its results; give results/own, with --experiment results/own/experiment.yaml" in said
    assert [each.name for each in source.iterdir()] == ["experiment.yaml"]


def test_help_is_quick_to_load() -> None:
    code = "import sys, srpo.cli; sys.exit(bool({'torch', 'pydantic', 'yaml', 'pandas', 'rich'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("group", [[], ["track"]])
def test_without_a_verb_there_is_help(group: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(group) == cli.main([*group, "--help"]) == 0
    shown = capsys.readouterr().out
    half = len(shown) // 2
    assert shown[:half] == shown[half:]
    assert shown.count("\n") // 2 < 30


@pytest.mark.parametrize("verb", ["", "experiment", "data", "model", "train", "evaluate", "report", "track sync"])
def test_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*verb.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: srpo {verb}".rstrip())
    assert "..." not in shown.partition("\n")[2]  # no sentence is cut


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("srpo tra", {"train", "track"}),
        ("srpo plan one-", {"one-gpu", "one-gpu-48gb", "one-node-small"}),
        (
            "srpo train --method sdpo_",
            {"sdpo_at_srpo_settings", "sdpo_correct_only", "sdpo_failed_only", "sdpo_feedback", "sdpo_then_grpo"},
        ),
        ("srpo data --split t", {"train", "test"}),
    ],
)
def test_a_shell_completes_verbs_names_and_values(words: str, expected: set[str]) -> None:
    asked = {"_SRPO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    program = [sys.executable, "-m", "srpo.cli"]
    shown = subprocess.run(program, env=os.environ | asked, capture_output=True, text=True, check=True).stdout
    assert set(shown.split()) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "No such command 'trian'"),
        (["train"], "Missing option '--experiment'"),
        (["data", "--experiment", "x", "--benchmark", "y"], "one of --split, --statistics and --lengths\n"),
        (["evaluate", *OF_A_RUN, "--seed", "0"], "--seed 0: a base model has none; give --method, or leave it out"),
        (["attempt", "--folder", "x", "--log", "y", "--", "no-such-program"], "no-such-program: no such command"),
        (["experiment", "smoke", "--output", "other.yaml"], "other.yaml has the experiment demo; choose another"),
        (["experiment", "smoke", "--output", "notes.md"], "notes.md is there, and no resolved experiment; choose"),
        (["plan", "paper", "--gpu", "80:8000:2250"], "--gpu 80:8000:2250: unknown; there is"),
    ],
)
def test_a_mistake_in_the_command_is_one_line(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("results").mkdir()
    Path("results/experiment.yaml").touch()
    Path("other.yaml").write_text("name: demo")
    Path("notes.md").write_text("to do")
    block = "{models: [miniature-tiny], benchmarks: [miniature/materials], methods: [srpo]}"
    Path("own.yaml").write_text(f"{{name: own, title: Own, extends: smoke, matrix: [{block}]}}")
    assert message in fails(capsys, *arguments)


def test_what_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cli, "_load", refuse)
    assert "No space left on device" in fails(capsys, "plan", "smoke")


def test_an_interrupted_verb_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_open", interrupt)
    assert cli.main(["train", "--experiment", "x/experiment.yaml", *RUN]) == 130
    assert capsys.readouterr().err == "srpo: interrupted\n"


def test_experiment_resolves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = CONFIGS / "experiments" / "smoke.yaml"
    from_file, from_input = tmp_path / "a" / "experiment.yaml", tmp_path / "b" / "experiment.yaml"
    assert cli.main(["experiment", str(source), "--output", str(from_file)]) == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(yaml.safe_load(source.read_text()))))
    assert cli.main(["experiment", "-", "--output", str(from_input)]) == 0
    assert from_file.read_bytes() == from_input.read_bytes()
    assert load_experiment(from_file) == load_experiment(source)
    assert cli.main(["experiment", "smoke"]) == 0
    assert capsys.readouterr().out == from_file.read_text()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("name: [", "not valid YAML"),
        ("3", "a mapping of keys"),
        ("name: x\ntitle: X\nextends: smoke\n", "matrix: Field required"),
    ],
)
def test_experiment_from_bad_input(
    text: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert word in fails(capsys, "experiment", "-", "--output", tmp_path / "experiment.yaml")


def test_results_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    source = CONFIGS / "experiments" / "smoke.yaml"
    error = fails(capsys, "experiment", source, "--output", tmp_path / "file" / "experiment.yaml")
    assert "is not a directory" in error


def test_unresolved_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    error = fails(capsys, "train", "--experiment", CONFIGS / "experiments" / "smoke.yaml", *RUN)
    assert "srpo experiment" in error


def test_missing_experiment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "experiment.yaml"
    error = fails(capsys, "train", "--experiment", path, *RUN)
    assert f"{tmp_path}: no experiment.yaml here; srpo experiment NAME --output {path} writes one" in error


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["train", *RUN[:-1], "ppo"], "unknown method 'ppo'; the experiment has grpo, sdpo, srpo"),
        (["train", *RUN, "--seed", "9"], "seed9 is not in the matrix"),
        (["train", *RUN], "train.parquet: missing; make it with srpo data"),
        (["evaluate", *RUN], "test.parquet: missing"),
        (["evaluate", "--model", "huge", "--benchmark", "physics"], "unknown model 'huge'"),
        (["evaluate", "--model", "miniature-small", "--benchmark", "maths"], "unknown benchmark 'maths'"),
        (["data", "--benchmark", "maths", "--split", "test"], "unknown benchmark 'maths'"),
        (["data", "--benchmark", "physics", "--statistics"], "test.parquet: missing"),
        (["model", "--model", "huge"], "unknown model 'huge'"),
        (["data", "--benchmark", "physics", "--lengths", ""], "test.parquet: missing"),
    ],
)
def test_mistakes(arguments: list[str], word: str, layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    error = fails(capsys, *arguments, "--experiment", layout.experiment)
    assert word in error
    assert str(layout.folder) in error or "not in the matrix" in error  # the file to look at is named


def test_training_needs_its_model(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    for split in ("train", "test"):
        path = layout.split("physics", split)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert "base.json: missing; make it with srpo model" in fails(
        capsys, "train", "--experiment", layout.experiment, *RUN
    )


def test_track_sync_needs_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no experiment.yaml" in fails(capsys, "track", "sync", tmp_path)


def test_data_verbs(layout: Layout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shared = ["data", "--experiment", str(layout.experiment), "--benchmark", "physics"]
    for wanted in (["--split", "test"], ["--statistics"]):
        assert "--mirror DIR: not read for this; only --split" in fails(capsys, *shared, *wanted, "--mirror", "DIR")
    monkeypatch.setenv("SRPO_MIRROR", "DIR")  # of the workflow, for all benchmarks
    assert cli.main([*shared, "--split", "test"]) == 0
    assert cli.main([*shared, "--statistics"]) == 0
    expected = load_experiment(layout.experiment).benchmarks["physics"].test_questions
    assert json.loads(layout.statistics("physics").read_text())["rows"] == {"test": expected}


def test_what_is_no_experiment_replaces_none(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    before = layout.experiment.read_text()
    (layout.folder / "notes.yaml").write_text("- to do")
    options = ["--experiment", layout.experiment, "--resolved", layout.folder / "notes.yaml"]
    assert "notes.yaml: a mapping of keys to values is expected, found list" in fails(capsys, "tune", *options)
    assert layout.experiment.read_text() == before


def test_results_of_another_experiment_are_not_given_its_settings(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    before = layout.experiment.read_text()
    (layout.folder / "other.yaml").write_text(before.replace("name: tiny", "name: other", 1))
    options = ["--experiment", layout.experiment, "--resolved", layout.folder / "other.yaml"]
    said = fails(capsys, "data", *options, "--benchmark", "physics", "--split", "test")
    assert f"{layout.experiment} has the experiment tiny; choose another folder" in said
    assert layout.experiment.read_text() == before


def test_a_folder_may_be_given_by_its_file(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for results in (layout.folder.parent, layout.folder, layout.experiment):
        assert cli.main(["status", str(results)]) == 0
        said.append(capsys.readouterr().out)
    assert said == [said[0]] * 3


def test_a_folder_of_another_name_says_which_experiment_it_has(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    other = layout.folder.rename(layout.folder.parent / "copy")
    assert cli.main(["status", str(other)]) == 0
    assert capsys.readouterr().out.startswith(f"{other} has the experiment tiny: 6 runs")


def test_report_verb(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(layout.folder, load_experiment(layout.experiment))
    assert cli.main(["report", "--experiment", str(layout.experiment), "--only", "tables", "--only", "html"]) == 0
    assert "<html" in layout.report.read_text()
    assert (layout.tables / "table1.csv").exists()
    assert not layout.figures.exists()
    layout.report.unlink()
    capsys.readouterr()
    assert cli.main(["report", str(layout.folder), "--only", "html"]) == 0
    assert capsys.readouterr().out == f"{layout.report}\n"
    assert "<html" in layout.report.read_text()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "report needs one folder: srpo report results/NAME"),
        (["nowhere"], "nowhere: does not exist; give results/NAME"),
    ],
)
def test_report_mistakes(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert word in fails(capsys, "report", *arguments)


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_locale_without_utf8_changes_nothing(locale: str) -> None:
    """Python itself helps only if nobody has turned its help off."""
    environment = os.environ | {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    program = [sys.executable, "-m", "srpo", "plan", "paper"]
    assert "±" in subprocess.run(program, env=environment, capture_output=True, check=True).stdout.decode()


def test_a_results_folder_that_cannot_be_written_is_named(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("srpo.ground.layout.os.access", lambda path, mode: not mode & os.W_OK)
    options = ["--experiment", layout.experiment, "--benchmark", "physics", "--split", "test"]
    assert "cannot be written" in fails(capsys, "data", *options)
