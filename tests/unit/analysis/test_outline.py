"""The report's outline: each table and figure has one place, each experiment its sections."""

from __future__ import annotations

import pytest
from report_cases import results_of

from srpo.analysis import outline
from srpo.analysis.figures.registry import FIGURES, figure_data
from srpo.analysis.outline import Section, all_sections
from srpo.analysis.tables.registry import TABLES, build_tables
from srpo.errors import SrpoError


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
