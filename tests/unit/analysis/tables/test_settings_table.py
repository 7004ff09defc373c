"""The settings of table 3 are those of the runs."""

from __future__ import annotations

import yaml
from report_cases import EXPERIMENT, MODEL
from synthetic import write_results

from srpo.analysis.load import load_results
from srpo.analysis.write import make_tables


def test_settings_are_those_of_the_runs(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    path = tmp_path / f"runs/{MODEL}/chemistry/srpo/seed1/run.yaml"
    path.write_text(path.read_text().replace("learning_rate: 5.0e-06", "learning_rate: 0.25"))
    table = make_tables(load_results(tmp_path))["table3"].frame.set_index("setting")
    assert table.loc["Learning rate", "srpo"] == "2.5e-01"
    assert table.loc["Entropy weighting beta", "grpo"] == "–"


def test_the_kind_of_teacher_is_a_row_if_one_is_no_ema(tmp_path):
    """Otherwise the table has the rows that it always had."""
    plain, other = tmp_path / "plain", tmp_path / "other"
    write_results(plain, EXPERIMENT)
    write_results(other, EXPERIMENT)
    path = other / f"runs/{MODEL}/chemistry/srpo/seed1/run.yaml"
    assert "kind: ema" in path.read_text()
    written = path.read_text().replace("kind: ema", "kind: frozen")
    path.write_text("".join(line for line in written.splitlines(True) if "moves_after" not in line))
    tables = [make_tables(load_results(folder))["table3"].frame.set_index("setting") for folder in (plain, other)]
    assert [name for name in tables[1].index if name not in tables[0].index] == ["Teacher"]
    assert tables[0].loc["Teacher EMA rate", ["grpo", "sdpo", "srpo"]].tolist() == ["–", "0.05", "0.05"]
    assert tables[1].loc["Teacher EMA rate", ["grpo", "sdpo", "srpo"]].tolist() == ["–", "0.05", "–"]
    assert tables[1].loc["Teacher", ["grpo", "sdpo", "srpo"]].tolist() == ["–", "EMA", "frozen"]


def test_settings_of_successors_are_rows_if_a_method_has_them(tmp_path):
    plain, other = tmp_path / "plain", tmp_path / "other"
    write_results(plain, EXPERIMENT)
    write_results(other, EXPERIMENT)
    path = other / f"runs/{MODEL}/chemistry/srpo/seed1/run.yaml"
    origin = yaml.safe_load(path.read_text())
    all_grpo = dict.fromkeys(origin["spec"]["method"]["routing"], "grpo")
    origin["spec"]["method"] |= {"success_buffer": 4, "group_weight": "spread"}
    origin["spec"]["method"] |= {"first_phase_steps": 60, "second_routing": all_grpo}
    path.write_text(yaml.safe_dump(origin, sort_keys=False))
    tables = [make_tables(load_results(folder)) for folder in (plain, other)]
    settings = [table["table3"].frame.set_index("setting") for table in tables]
    own = {"Weight by group": "spread", "Steps of the first phase": "60", "Success buffer, responses per question": "4"}
    assert [name for name in settings[1].index if name not in settings[0].index] == list(own)
    assert settings[1].loc[list(own), ["grpo", "srpo"]].values.tolist() == [["–", value] for value in own.values()]
    routing = [table["table7"].frame for table in tables]
    assert "steps" not in routing[0]
    found = routing[1].set_index(["method", "steps"])["wrong_with_sibling"]
    assert found.to_dict() == {
        **routing[0].query("method != 'srpo'").assign(steps="").set_index(["method", "steps"])["wrong_with_sibling"],
        ("srpo", "steps 1 to 60"): "sdpo",
        ("srpo", "from step 61"): "grpo",
    }
