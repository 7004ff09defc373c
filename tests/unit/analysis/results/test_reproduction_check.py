"""New rows of the board: what is wrong with them in one line each, and which verdicts they change."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import ROOT

from srpo import cli
from srpo.analysis.results import reproduction_check
from srpo.analysis.results.board import board_claims, judge
from srpo.repository import REFERENCE

ROWS = (REFERENCE / "reproductions.csv").read_text()
COLUMNS = ROWS.splitlines()[0]
ROW = "Ours,someone/srpo,docs/log.md,seed 1,Qwen3-8B,srpo,yes,physics,best,474,70.1,5e-6,1,1,,,2026-12-01,source"


def check(tmp_path: Path, *rows: str, columns: str = COLUMNS) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


def test_the_row_of_the_page_can_be_added(tmp_path: Path, capsys) -> None:
    page = (ROOT / "docs" / "reproductions.md").read_text()
    (template,) = (block for block in page.split("```\n") if block.startswith("source,"))
    path = tmp_path / "rows.csv"
    path.write_text(template)
    assert cli.main(["reproduction", "check", str(path)]) == 0
    assert capsys.readouterr().out.startswith(f"{path}: can be added")


def test_the_rows_that_there_are_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    none = reproduction_check.reproductions().iloc[:0]
    monkeypatch.setattr(reproduction_check, "reproductions", lambda: none)
    assert reproduction_check.problems(check(tmp_path, *ROWS.splitlines()[1:])) == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Ours,", ",", "source = : input should be a valid string"),
        ("someone/srpo", "a log", "reference = a log: "),
        ("docs/log.md", "", "document = : "),
        (",srpo,", ",ppo,", "method = ppo: input should be 'base', 'grpo', 'sdpo' or 'srpo'"),
        (",yes,", ",,", "paper_method is empty: yes, or no if routing, teacher or weights are not the paper's"),
        (",yes,", ",no,", "paper_method is no: caveat says what is not the paper's"),
        (",best,", ",final,", "when = final: "),
        (",best,", ",base,", "method base and when base belong together"),
        (",474,", ",,", "steps is empty: how long is the run? If nobody knows, caveat says so"),
        (",70.1,", ",170.1,", "score = 170.1: input should be less than or equal to 100"),
        (",5e-6,", ",,", "learning_rate is empty: is it that of the other methods?"),
        (",1,1,,", ",,1,,", "updates_per_step is empty: the paper takes 4 for GRPO, 1 for the others"),
        (",1,1,,", ",1,,,", "seeds is empty: how many runs are behind the score?"),
        (",1,1,,", ",1,0,,", "seeds = 0: input should be greater than 0"),
        ("2026-12-01", "yesterday", "added = yesterday: "),
        ("Ours,someone/srpo", "VERPO,someone/srpo", "reference = someone/srpo: VERPO has arXiv:2609.06100"),
    ],
)
def test_a_problem_is_one_line(tmp_path: Path, capsys, old: str, new: str, message: str) -> None:
    assert old in ROW
    path = check(tmp_path, ROW.replace(old, new, 1))
    assert cli.main(["reproduction", "check", str(path)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{path}, line 2: {message}")


def test_what_nobody_knows_needs_a_caveat(tmp_path: Path) -> None:
    unknown = ROW.replace(",474,", ",,").replace(",1,1,,,", ",,,,settings are not stated,")
    assert reproduction_check.problems(check(tmp_path, unknown)) == []


def test_a_score_twice_is_named(tmp_path: Path) -> None:
    (line,) = reproduction_check.problems(check(tmp_path, ROW, ROW))
    assert "line 3: a second score of Ours, someone/srpo, seed 1, Qwen3-8B, srpo, best, physics; name its run" in line


@pytest.mark.parametrize(
    ("columns", "row", "message"),
    [
        ("source,score", "Ours,1", "its first line names the columns: source,reference,document"),
        (COLUMNS, ROW + ",more", "line 2: not 18 fields; a field with a comma is quoted"),
        (COLUMNS, ROW.rsplit(",", 1)[0], "line 2: not 18 fields"),
    ],
)
def test_a_file_that_is_no_table_of_rows(tmp_path: Path, capsys, columns: str, row: str, message: str) -> None:
    assert cli.main(["reproduction", "check", str(check(tmp_path, row, columns=columns))]) == 2
    assert message in capsys.readouterr().err


def test_a_changed_verdict_is_said(tmp_path: Path, capsys) -> None:
    """A source whose GRPO is forty points behind decides what is undecided."""
    (claim,) = (each for each in board_claims() if each.claim == "SRPO ends above GRPO")
    assert judge(claim).verdict == "undecided"
    path = check(tmp_path, ROW, ROW.replace("srpo,yes", "grpo,yes").replace("70.1", "30.1"))
    assert cli.main(["reproduction", "check", str(path)]) == 0
    first, *changed = capsys.readouterr().out.splitlines()
    assert first.endswith("can be added to reports/reference/reproductions.csv")
    assert "SRPO ends above GRPO: undecided, with these rows supported" in changed
