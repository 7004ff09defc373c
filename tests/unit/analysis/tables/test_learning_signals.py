"""The diagnostics table against the raw logs."""

from __future__ import annotations

import math
import re

import pytest
from report_cases import EXPERIMENT, cell, logged, read
from synthetic import tiny_of, write_results

from srpo.analysis.results.load import load_results
from srpo.analysis.tables.registry import write_tables


@pytest.mark.parametrize("part", ["early", "late"])
@pytest.mark.parametrize(
    ("method", "metric", "factor"),
    [
        ("srpo", "grad_norm/grpo", 1),
        ("srpo", "grad_norm/sdpo", 1),
        ("srpo", "weights/p10", 1),
        ("srpo", "weights/loss_scale", 100),
        ("sdpo", "distillation_share/answer_start", 100),
        ("sdpo", "copying/teacher", 100),
        ("grpo", "actor/rollout_is_truncated_fraction", 100),
        ("grpo", "routing/all_correct_groups", 100),
    ],
)
def test_diagnostics_are_means_of_the_first_and_last_tenth_of_the_log(finished, method, metric, factor, part):
    means = []
    for benchmark in ("chemistry", "physics"):
        values = logged(finished, benchmark, method, metric)
        tenth = -(-len(values) // 10)
        chosen = values[:tenth] if part == "early" else values[-tenth:]
        means.append(factor * math.fsum(chosen) / tenth)
    row = cell(read(finished / "tables/diagnostics.csv"), method=method, metric=metric, part=part)
    assert float(row["value"]) == pytest.approx(sum(means) / 2, abs=0.6e-4)
    assert row["unit"] == ("%" if factor == 100 else "")
    assert row["benchmarks"] == "2"


def test_diagnostics_that_do_not_apply_are_dashes(finished):
    rows = read(finished / "tables/diagnostics.csv")
    for method, metric in (("grpo", "copying/teacher"), ("sdpo", "weights/max"), ("sdpo", "grad_norm/grpo")):
        assert cell(rows, method=method, metric=metric, part="late")["value"] == ""
    shares = [r["value"] for r in rows if r["metric"].startswith("distillation_share/q") and r["method"] == "srpo"]
    assert sum(map(float, shares)) == pytest.approx(2 * 100, abs=1e-3)


def test_diagnostics_of_older_logs_are_left_out(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    for path in tmp_path.glob("runs/**/steps.jsonl"):
        path.write_text(re.sub(r', "(weights|copying|distillation_share|grad_norm)/\w+": [^,}]+', "", path.read_text()))
    for path in tmp_path.glob("runs/**/groups.jsonl"):
        path.unlink()
    write_tables(load_results(tmp_path), tmp_path / "tables")
    metrics = {row["metric"] for row in read(tmp_path / "tables/diagnostics.csv")}
    assert "actor/grad_norm" in metrics
    assert not [name for name in metrics if name.startswith(("weights", "copying", "distillation", "grad_norm"))]
    assert "Dynamic weights" not in (tmp_path / "tables/diagnostics.md").read_text()


def test_intervals_of_shares_stay_within_0_and_100_percent(tmp_path):
    """Three seeds whose shares are nearly 0 or 100 %; only the scale of the weighted loss may be above 100 %."""
    write_results(tmp_path, tiny_of(seeds=[1, 2, 3]))
    logged = {
        "actor/clip_fraction": (0, 0, 0.001),
        "teacher/top_k_mass": (1, 1, 0.99),
        "routing/all_wrong_groups": (0, 0.001, 0),
        "weights/loss_scale": (0.9, 1, 1.1),
    }
    for path in tmp_path.glob("runs/**/steps.jsonl"):
        text, seed = path.read_text(), int(path.parent.name.removeprefix("seed"))
        for name, values in logged.items():
            text = re.sub(rf'"{name}": [^,}}]+', f'"{name}": {values[seed - 1]}', text)
        path.write_text(text)
    write_tables(load_results(tmp_path), tmp_path / "tables")
    shares = [row for row in read(tmp_path / "tables/diagnostics.csv") if row["unit"] == "%" and row["value_low"]]
    ends = {(row["metric"], row["value_low"], row["value_high"]) for row in shares}
    assert {*logged} <= {name for name, *_ in ends}
    for name, low, high in ends:
        assert float(low) >= 0, name
        assert float(high) <= 100 or name == "weights/loss_scale"
    assert any(float(high) > 100 for name, _, high in ends if name == "weights/loss_scale")
