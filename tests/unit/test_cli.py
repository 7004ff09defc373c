"""The command line: one clear line for a mistake, before anything is computed."""

from __future__ import annotations

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

RUN = "runs/miniature-small/physics/srpo/seed1/summary.json"


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


def test_help_is_quick_to_load() -> None:
    code = "import sys, srpo.cli; sys.exit(bool({'torch', 'pydantic', 'yaml', 'pandas', 'rich'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("verb", ["experiment", "split", "model", "train", "evaluate", "report", "track sync"])
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
    ],
)
def test_a_shell_completes_verbs_names_and_values(words: str, expected: set[str]) -> None:
    asked = {"_SRPO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    program = [sys.executable, "-m", "srpo.cli"]
    shown = subprocess.run(program, env=os.environ | asked, capture_output=True, text=True, check=True).stdout
    assert set(shown.split()) == expected


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["trian"], "'trian'"),  # the command line
        (["train"], "'FILE'"),
        (["experiment", "broken.yaml"], "broken.yaml: not valid YAML"),  # a file
        (["experiment", "incomplete.yaml"], "incomplete.yaml: matrix"),  # a key
        (["train", f"results/tiny/{RUN}".replace("srpo", "ppo")], "ppo"),  # a name
        (["train", f"results/tiny/{RUN}"], "parquet"),  # what another verb makes
        (["experiment", "smoke", "--output", "results/tiny/experiment.yaml"], "has the experiment tiny"),
        (["experiment", "smoke", "--output", "broken.yaml/experiment.yaml"], "is not a directory"),  # the system
        (["status", "nowhere"], "nowhere"),
    ],
)
def test_an_error_of_each_family_is_one_line_that_names_file_or_key(
    arguments: list[str],
    named: str,
    layout: Layout,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.yaml").write_text("name: [")
    Path("incomplete.yaml").write_text("name: x\ntitle: X\nextends: smoke\n")
    before = layout.experiment.read_text()
    assert named in fails(capsys, *arguments)
    assert layout.experiment.read_text() == before


def test_an_interrupted_verb_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_job", interrupt)
    assert cli.main(["train", f"results/tiny/{RUN}"]) == 130
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


def test_data_verbs(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRPO_MIRROR", "DIR")  # of the workflow, for all benchmarks
    assert cli.main(["split", str(layout.split("physics", "test"))]) == 0
    assert cli.main(["statistics", str(layout.statistics("physics"))]) == 0
    expected = load_experiment(layout.experiment).benchmarks["physics"].test_questions
    assert json.loads(layout.statistics("physics").read_text())["rows"] == {"test": expected}


def test_a_folder_may_be_given_by_its_file(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for results in (layout.folder.parent, layout.folder, layout.experiment):
        assert cli.main(["status", str(results)]) == 0
        said.append(capsys.readouterr().out)
    assert said == [said[0]] * 3


def test_report_verb(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(layout.folder, load_experiment(layout.experiment))
    assert cli.main(["report", str(layout.folder), "--only", "tables", "--only", "html"]) == 0
    assert "<html" in layout.report.read_text()
    assert (layout.tables / "table1.csv").exists()
    assert not layout.figures.exists()
    layout.report.unlink()
    capsys.readouterr()
    assert cli.main(["report", str(layout.folder), "--only", "html"]) == 0
    assert capsys.readouterr().out == f"{layout.report}\n"
    assert "<html" in layout.report.read_text()


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_locale_without_utf8_changes_nothing(locale: str) -> None:
    """Python itself helps only if nobody has turned its help off."""
    environment = os.environ | {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    program = [sys.executable, "-m", "srpo", "plan", "paper"]
    assert "±" in subprocess.run(program, env=environment, capture_output=True, check=True).stdout.decode()
