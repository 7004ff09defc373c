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


def test_the_kind_of_teacher_is_a_row_if_one_is_no_ema(tmp_path):
    """Otherwise the table has the rows that it always had."""
    plain, other = tmp_path / "plain", tmp_path / "other"
    write_results(plain, EXPERIMENT)
    write_results(other, EXPERIMENT)
    path = other / f"runs/{MODEL}/chemistry/srpo/seed1/run.yaml"
    assert "kind: ema" in path.read_text()
    path.write_text(path.read_text().replace("kind: ema", "kind: trust_region"))
    tables = [build_tables(load_results(folder))["table3"].frame.set_index("setting") for folder in (plain, other)]
    own = ["Teacher", "Teacher, share of the student"]
    assert [name for name in tables[1].index if name not in tables[0].index] == own
    assert tables[0].loc["Teacher EMA rate", ["grpo", "sdpo", "srpo"]].tolist() == ["–", "0.05", "0.05"]
    assert tables[1].loc["Teacher EMA rate", ["grpo", "sdpo", "srpo"]].tolist() == ["–", "0.05", "–"]
    assert tables[1].loc[own[0], ["grpo", "sdpo", "srpo"]].tolist() == ["–", "EMA", "trust region"]
    assert tables[1].loc[own[1], ["grpo", "sdpo", "srpo"]].tolist() == ["–", "–", "0.05"]
