"""The report's outline: each table and figure has one place, each experiment its sections."""

from __future__ import annotations

from sweep_cases import OF_METHODS, OF_MODELS, PLAIN

from srpo.analysis.figures.registry import FIGURES
from srpo.analysis.outline import all_sections, sections_of
from srpo.analysis.tables.registry import TABLES


def test_every_table_and_figure_has_one_place_and_every_claim_its_evidence():
    tables = [table for section in all_sections() for table in section.tables]
    figures = [figure for section in all_sections() for figure in section.figures]
    assert sorted(tables) == sorted(TABLES)
    assert sorted(figures) == sorted(FIGURES)


def test_sections_are_those_of_the_experiment():
    sections = {name: {s.id for s in sections_of(e)} for name, e in (("b", OF_METHODS), ("m", OF_MODELS), ("p", PLAIN))}
    assert sections["b"] - sections["p"] == {"sweep", "seeds"}
    assert sections["m"] - sections["p"] == {"sweep", "regimes"}  # two models on two benchmarks
    assert sections["p"] < sections["m"]
