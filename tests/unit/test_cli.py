"""The command line: one line for a mistake, before anything is computed."""

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
from srpo.experiment.compose import load_experiment, resolved_text
from srpo.ground.layout import Layout
from srpo.ground.repository import CONFIGS

RUN = "runs/miniature-tiny/physics/srpo/seed1"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The results directory of a resolved experiment, still empty."""
    layout = Layout(tmp_path / "results" / "tiny")
    layout.folder.mkdir(parents=True)
    layout.experiment.write_text(resolved_text(load_experiment(tiny_experiment())))
    return layout


def test_help_is_quick_to_load() -> None:
    code = "import sys, srpo.cli; sys.exit(bool({'torch', 'pydantic', 'yaml', 'pandas', 'rich'} & sys.modules.keys()))"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("words", "expected"),
    [("srpo tra", {"train", "track"}), ("srpo plan one-", {"one-gpu", "one-gpu-48gb", "one-node-small"})],
)
def test_a_shell_completes_verbs_and_names(words: str, expected: set[str]) -> None:
    asked = {"_SRPO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    program = [sys.executable, "-m", "srpo.cli"]
    shown = subprocess.run(program, env=os.environ | asked, capture_output=True, text=True, check=True).stdout
    assert set(shown.split()) == expected


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("trian", "trian"),
        ("train", "FILE"),
        ("train results/tiny/summary.json", "results/tiny/summary.json"),
        (f"train results/other/{RUN}/summary.json", "results/other"),
        (f"train {CONFIGS}/{RUN}/summary.json", str(CONFIGS)),
        (f"train results/tiny/{RUN.replace('srpo', 'ppo')}/summary.json", "physics/ppo/seed1"),
        (f"train results/tiny/{RUN}/summary.json", "base.json"),
        (f"train results/tiny/{RUN}/summary.json --stop-at 7", "--stop-at"),
        ("report results/other", "results/other"),
        ("track sync results/other", "results/other"),
        ("plan paper --gpu h101", "--gpu"),
        ("plan nothing", "nothing"),
        ("experiment bad.yaml", "bad.yaml: matrix"),
        ("experiment list.yaml", "list.yaml"),
        ("experiment smoke --output list.yaml", "list.yaml"),
        ("experiment smoke --output list.yaml/experiment.yaml", "list.yaml"),
    ],
)
def test_a_mistake_is_one_line_that_names_where_it_is(
    command: str, named: str, layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(layout.folder.parents[1])
    Path("bad.yaml").write_text("name: x\ntitle: X\nextends: smoke\n")
    Path("list.yaml").write_text("- to do")
    assert named in fails(capsys, *command.split())


def test_an_interrupted_verb_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_job", interrupt)
    assert cli.main(["train", f"results/tiny/{RUN}/summary.json"]) == 130
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


def test_splits_and_their_statistics(layout: Layout) -> None:
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


def test_report(layout: Layout, capsys: pytest.CaptureFixture[str]) -> None:
    write_results(layout.folder, load_experiment(layout.experiment))
    assert cli.main(["report", str(layout.folder)]) == 0
    assert capsys.readouterr().out == f"{layout.report}\n"
    assert "<html" in layout.report.read_text()
    assert (layout.tables / "table1.csv").exists()
    assert layout.figures.is_dir()


@pytest.mark.parametrize("locale", ["C", "POSIX"])
def test_a_locale_without_utf8_changes_nothing(locale: str, tmp_path: Path) -> None:
    """Python itself helps only if nobody has turned its help off."""
    environment = os.environ | {"LC_ALL": locale, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    (own := tmp_path / "own.json").write_text(json.dumps(tiny_experiment(title="± 5"), ensure_ascii=False), "utf-8")
    program = [sys.executable, "-m", "srpo", "plan", str(own)]
    assert "± 5" in subprocess.run(program, env=environment, capture_output=True, check=True).stdout.decode()
