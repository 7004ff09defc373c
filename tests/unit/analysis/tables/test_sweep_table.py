"""The tables of a sweep and of training seeds."""

from __future__ import annotations

import math
import statistics

import pandas as pd
import pytest
from sweep_cases import BENCHMARKS, BUDGETS, OF_METHODS, raw, read, rows_at, runs_of
from synthetic import tiny_experiment, write_results

from srpo.analysis.results.load import load_results
from srpo.analysis.results.sweeps import sweep_frame
from srpo.analysis.tables.score_tables import main_table
from srpo.analysis.tables.seed_table import seeds_table
from srpo.analysis.tables.sweep_table import sweep_table
from srpo.experiment.compose import load_experiment


def test_the_table_says_the_same_as_its_data(swept):
    results, runs = swept
    table = sweep_table(results)
    (grid,) = table.grids
    rows = {row.label: row for row in grid.rows if not row.heading}
    titles = {"srpo": "SRPO", "sdpo": "SDPO", "grpo": "GRPO"}
    for (method, value), names in runs.items():
        label = titles[method] + ("" if math.isnan(value) else f", {results.experiment.sweep.label} = {value:g}")
        cells = rows[label].cells
        assert [cell.text for cell in cells[1:4]] == [
            "–" if math.isnan(score := raw(results, *names, budget)) else f"{score:.1f}" for budget in BUDGETS
        ]
    assert all(len(grid.cells_by_group(row)) == len(rows[label].cells) for row in rows.values() if row.label == label)
    assert any("over training seeds" in note for note in table.notes) == (results.experiment.sweep.kind == "methods")


def test_a_missing_run_is_a_dash(tmp_path):
    write_results(
        tmp_path, OF_METHODS, keep=lambda run: (run.method, run.benchmark) != ("srpo-entropy_beta-0", "physics")
    )
    frame = sweep_frame(load_results(tmp_path))
    assert rows_at(frame, "srpo", 0)["score"].isna().all()
    assert rows_at(frame, "srpo", 0.5)["score"].notna().any()
    labels = {row.label: row for row in sweep_table(load_results(tmp_path)).grids[0].rows}
    assert labels["SRPO, β = 0"].cells[3].text == "–"


def test_seeds_table(tmp_path):
    write_results(tmp_path, OF_METHODS)
    results = load_results(tmp_path)
    frame = seeds_table(results).frame.set_index(["method", "benchmark"])
    for method in OF_METHODS.methods:
        for benchmark in BENCHMARKS:
            scores = [
                100 * read(results, run, "evaluation.json")["budgets"]["10h"]["avg_at_k"]
                for run in runs_of(results, "miniature-small", method, benchmark)
            ]
            row = frame.loc[method, benchmark]
            assert [row[f"seed{seed}"] for seed in (1, 2, 3)] == pytest.approx(scores)
            assert row["mean"] == pytest.approx(statistics.mean(scores))
            assert row["spread"] == pytest.approx(statistics.stdev(scores))
            assert row["mean_unit"] == "seed and question"
            assert 0 < row["one_seed_half_width"] < 20


def test_a_mean_over_seeds_has_the_interval_of_table_1(tmp_path):
    """It stays within 0 and 100 %, and a method with one seed borrows the spread of the others."""
    (block,) = tiny_experiment()["matrix"]
    matrix = [block | {"methods": ["grpo", "srpo"], "seeds": [1, 2, 3]}, block | {"methods": ["sdpo"]}]
    write_results(tmp_path, load_experiment(tiny_experiment(matrix=matrix)))
    results = load_results(tmp_path)
    ends = ["", "_low", "_high", "_unit"]
    cells = ["method", "benchmark"]
    table1 = main_table(results).frame.query("budget == '10h' and benchmark != 'average'")
    expected = table1.set_index(cells)[[f"resampled{end}" for end in ends]].set_axis(ends, axis=1)
    found = seeds_table(results).frame.set_index(cells)[[f"mean{end}" for end in ends]].set_axis(ends, axis=1)
    pd.testing.assert_frame_equal(found.sort_index(), expected.sort_index())
    assert set(found["_unit"]) == {"seed and question", "question, run SD"}
