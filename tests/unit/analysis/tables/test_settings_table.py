"""The settings of table 3 are those of the runs."""

from __future__ import annotations

from report_cases import EXPERIMENT, MODEL
from synthetic import write_results

from srpo.analysis.results.load import load_results
from srpo.analysis.tables.registry import build_tables


def test_settings_are_those_of_the_runs(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    path = tmp_path / f"runs/{MODEL}/chemistry/srpo/seed1/run.yaml"
    path.write_text(path.read_text().replace("learning_rate: 5.0e-06", "learning_rate: 0.25"))
    table = build_tables(load_results(tmp_path))["table3"].frame.set_index("setting")
    assert table.loc["Learning rate", "srpo"] == "2.5e-01"
    assert table.loc["Entropy weighting beta", "grpo"] == "–"
