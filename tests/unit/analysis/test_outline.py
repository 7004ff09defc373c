"""The report's outline: each table and figure has one place, and one from outside needs its file and its name there."""

import dataclasses
import re
from pathlib import Path

import pytest
from report_cases import results_of

import srpo
from srpo.analysis import figures, outline, tables
from srpo.analysis.outline import COST_TABLES, Section, all_sections
from srpo.analysis.report import render
from srpo.analysis.write import make_tables, write_figures, write_tables
from srpo.ground.repository import ROOT

SHARED = {"__init__", "table", "style", "panels", "lines", "forest"}
"""What tables and figures have in common."""


def test_every_table_and_figure_has_one_place():
    for folder, names in (
        (tables, [*COST_TABLES, *(table for section in all_sections() for table in section.tables)]),
        (figures, [figure for section in all_sections() for figure in section.figures]),
    ):
        files = {path.stem for path in Path(folder.__file__).parent.glob("*.py")} - SHARED
        assert sorted(names) == sorted(files)


@pytest.fixture
def from_outside(tmp_path, monkeypatch):
    """The table and the figure of docs/extending.md, in a folder of their own, and a section that shows them."""
    text = (ROOT / "docs" / "extending.md").read_text()
    found = {
        m[1]: m[0]
        for m in re.finditer(r"# src/srpo/analysis/((?:tables|figures)/\w+)\.py\n.*?(?=```)", text, re.DOTALL)
    }
    assert [*found] == ["tables/response_lengths", "figures/lengths"]
    for name, code in found.items():
        path = tmp_path / f"{name}.py"
        path.parent.mkdir()
        path.write_text(code)
    for folder in (tables, figures):
        name = folder.__name__.rpartition(".")[2]
        monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path / name)])
    own = Section(id="own", title="Own", figures=("lengths",), tables=("table1", "response_lengths"))
    monkeypatch.setattr(outline, "all_sections", lambda: (own,))


def test_a_table_and_a_figure_from_outside_are_written_and_shown(from_outside, tmp_path):
    results = results_of(tmp_path)
    write_tables(results, tmp_path / "tables")
    write_figures(results, tmp_path / "figures")
    text = (tmp_path / "tables" / "response_lengths.md").read_text()
    assert text.startswith("## Response length\n\n| method | response_length |\n| --- | ---: |\n| GRPO | ")
    lines = (tmp_path / "tables" / "response_lengths.csv").read_text().splitlines()
    assert len(lines) == 1 + results.validations["method"].nunique()
    assert len((tmp_path / "figures" / "lengths.csv").read_text().splitlines()) == 1 + len(results.validations)
    page = render(results, tmp_path / "figures")
    assert 'id="table-response_lengths"' in page
    assert 'id="figure-lengths"' in page


def test_a_table_and_a_figure_from_outside_without_data_are_not_shown(from_outside, tmp_path):
    results = results_of(tmp_path)
    nothing = dataclasses.replace(results, validations=results.validations[:0], steps=results.steps[:0])
    assert not make_tables(nothing)["response_lengths"].shown
    write_figures(nothing, tmp_path / "figures")
    page = render(nothing, tmp_path / "figures")
    assert "response_lengths" not in page
    assert "figure-lengths" not in page


def test_results_in_a_notebook_are_frames_of_scores_steps_and_seconds(tmp_path):
    results_of(tmp_path)
    results = srpo.results(tmp_path)
    counts = {"right": 100, "cut": 5, "unreadable": 6, "wrong": 17}  # as evaluations log them, in any run
    counted = dataclasses.replace(results, validations=results.validations.assign(**counts)).scores
    assert counted.query("measured == 'validation'")["cut"].iloc[0] == 5 / (results.validations["k"] * 32).iloc[0]
    scores = results.scores
    one = scores.query("measured == 'validation' and benchmark == 'physics' and method == 'srpo'")
    log = results.validations.query("benchmark == 'physics' and method == 'srpo'").set_index("step")
    assert one.groupby("step")["right"].mean().to_dict() == pytest.approx(log["avg_at_k"].to_dict())
    assert scores["question"].max() + 1 == log["questions"].max()
    untrained = scores.query("method == 'base'").groupby("benchmark")["right"].mean()
    assert untrained.to_dict() == pytest.approx(results.bases.set_index("benchmark")["avg_at_k"].to_dict())
    phases = results.seconds.filter(like="phase_seconds/").sum(axis=1)
    assert phases.to_numpy() == pytest.approx(results.seconds["step_seconds"].to_numpy())
    assert len(results.steps) == len(results.seconds)
