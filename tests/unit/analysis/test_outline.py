"""The report's outline: each table and figure has one place, each experiment its sections."""

from __future__ import annotations

import pandas as pd
import pytest
from report_cases import results_of

from srpo.analysis import outline
from srpo.analysis.figures.registry import FIGURES, FigureSpec, figure_data, write_figures
from srpo.analysis.outline import Section, all_sections, by_name
from srpo.analysis.report import render
from srpo.analysis.tables.grid import text_grid
from srpo.analysis.tables.registry import TABLES, build_tables
from srpo.analysis.tables.table import Table
from srpo.ground.errors import SrpoError


def test_every_table_and_figure_has_one_place():
    tables = [table for section in all_sections() for table in section.tables]
    figures = [figure for section in all_sections() for figure in section.figures]
    assert sorted(tables) == sorted(TABLES)
    assert sorted(figures) == sorted(FIGURES)


def test_a_misspelt_name_is_said(tmp_path, monkeypatch):
    results = results_of(tmp_path)
    monkeypatch.setattr(outline, "all_sections", lambda: (Section(id="a", title="A", tables=("t",), figures=("f",)),))
    with pytest.raises(SrpoError, match=r"^reports/outline.yaml: t: no table of "):
        build_tables(results)
    figure_data.cache_clear()
    with pytest.raises(SrpoError, match=r"^reports/outline.yaml: f: no figure of "):
        figure_data(results)


FRAME = pd.DataFrame({"own": [1]})


def own_figure(data=FRAME, drawn=None, caption="Own caption."):
    return FigureSpec("own", "Own", lambda results: data, lambda *_: drawn, lambda *_: caption)


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Results whose report has a figure and a table of the user's in the section of our questions."""
    sections = [
        each.model_copy(update={"tables": ("own",), "figures": (*each.figures, "own")})
        if each.id == "questions"
        else each
        for each in all_sections()
    ]
    monkeypatch.setattr(outline, "all_sections", lambda: sections)
    figure_data.cache_clear()
    return results_of(tmp_path)


def test_a_section_keeps_its_figures_and_tables_if_no_claim_of_it_is_tested(results, tmp_path, monkeypatch):
    grid = text_grid("Own", ["Number"], [("row", ["1"])])
    monkeypatch.setitem(FIGURES, "own", own_figure())
    monkeypatch.setitem(TABLES, "own", lambda results: Table("own", "Own", [], FRAME, {}, [grid]))
    page = render(results, tmp_path / "figures")
    assert 'id="table-own"' in page
    assert 'id="figure-own"' in page


def test_what_a_table_is_made_of_is_checked(results, monkeypatch):
    for made, says in (
        (None, "^table own is a NoneType; return a Table"),
        (Table("other", "Own", [], FRAME, {}, []), "^table own: its Table has the name other"),
    ):
        monkeypatch.setitem(TABLES, "own", lambda results, made=made: made)
        with pytest.raises(SrpoError, match=says):
            build_tables(results)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"data": [1]}, "^figure own: its data is a list; return a DataFrame"),
        ({"caption": None}, "^figure own: its caption is a NoneType; return a str"),
        ({"drawn": 1}, "^figure own: what it draws is a int; return a Figure"),
    ],
)
def test_what_a_figure_is_made_of_is_checked(results, tmp_path, monkeypatch, given, says):
    for name in FIGURES:
        monkeypatch.setitem(FIGURES, name, own_figure(pd.DataFrame()))
    monkeypatch.setitem(FIGURES, "own", own_figure(**given))
    with pytest.raises(SrpoError, match=says):
        write_figures(results, tmp_path)


def test_a_name_is_registered_once():
    assert by_name("table", [("a", 1), ("b", 2)]) == {"a": 1, "b": 2}
    with pytest.raises(SrpoError, match=r"^table a: registered twice"):
        by_name("table", [("a", 1), ("a", 2)])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("- {id: own, title: Own, table: [table4]}", "outline.yaml: own: table: unknown key"),
        ("- {title: Own}", "outline.yaml: 1: id: Field required"),
    ],
)
def test_a_mistake_in_the_outline_is_one_line(tmp_path, monkeypatch, text, says):
    (tmp_path / "outline.yaml").write_text(text)
    monkeypatch.setattr(outline, "REPORTS", tmp_path)
    with pytest.raises(SrpoError) as error:
        all_sections.__wrapped__()
    assert str(error.value) == f"reports/{says}"
