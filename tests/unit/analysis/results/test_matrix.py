"""Which runs can be compared: those with the same questions, of each table of facts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from paths import ROOT

from srpo.analysis.results.load import load_results
from srpo.analysis.results.matrix import mixed_questions, recorded_tests
from srpo.layout import Layout
from srpo.publish.published import unpack


@pytest.fixture(scope="module")
def registered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("registered")
    unpack(ROOT / "published" / "registered", Layout(folder))
    return load_results(folder)


def test_each_table_of_facts_has_its_own_test_split(registered):
    found = recorded_tests(registered)
    assert {name: len(by_data_set) for name, by_data_set in found.items()} == dict.fromkeys(found, 8)
    assert all(len({*map(tuple, by_data_set.values())}) == 8 for by_data_set in found.values())
    assert mixed_questions(registered) == {}


def test_two_splits_of_one_table_of_facts_cannot_be_compared(registered):
    run, record = next(iter(registered.provenance.items()))
    changed = {run: record | {"data": {"train": "0", "test": "0" * 64}}}
    mixed = replace(registered, provenance=registered.provenance | changed)
    assert mixed_questions(mixed) == {run.benchmark: "2 different test files"}
