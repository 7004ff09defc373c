"""The report's outline: each table and figure has one place, each experiment its sections."""

from __future__ import annotations

from srpo.analysis.figures.registry import FIGURES
from srpo.analysis.outline import all_sections
from srpo.analysis.tables.registry import TABLES


def test_every_table_and_figure_has_one_place_and_every_claim_its_evidence():
    tables = [table for section in all_sections() for table in section.tables]
    figures = [figure for section in all_sections() for figure in section.figures]
    assert sorted(tables) == sorted(TABLES)
    assert sorted(figures) == sorted(FIGURES)
