"""The table "before training": gaps beside gains, worked by hand, and no table without a gap."""

from pathlib import Path

import numpy as np
import pytest
from report_cases import EXPERIMENT, MODEL
from run_files import write_evaluation, write_gap
from synthetic import tiny_of, write_results

from srpo.analysis.load import load_results
from srpo.analysis.report import render
from srpo.analysis.tables.before_training import gain
from srpo.analysis.write import make_tables, write_tables

MEASURED = {
    "student": (30.0, 25.0, 35.0),
    "wrong_with_sibling": (70.0, 60.0, 80.0),
    "student_same": (35.0, 30.0, 40.0),
    "teacher_sibling": (0.0, None, None),
    "gap": (50.0, 40.0, 60.0),
}


@pytest.fixture
def with_gaps(tmp_path: Path) -> Path:
    write_results(tmp_path, EXPERIMENT)
    write_gap(tmp_path / f"base/{MODEL}/chemistry", **MEASURED)
    write_gap(tmp_path / f"base/{MODEL}/physics", **MEASURED | {"gap": (-14.0, -20.0, -8.0)})
    return tmp_path


def test_a_row_has_what_was_measured_and_what_was_gained(with_gaps: Path) -> None:
    results = load_results(with_gaps)
    table = make_tables(results)["before_training"]
    rows = table.frame.set_index("benchmark")
    assert rows.loc["chemistry", [*MEASURED]].tolist() == [value for value, _, _ in MEASURED.values()]
    assert rows["says"].to_dict() == {"chemistry": "better", "physics": "worse"}

    values = results.of(MODEL, results.deciding)
    runs = np.mean([*values["physics", "sdpo", "10h"].values()])
    assert rows.loc["physics", "gain_sdpo"] == pytest.approx(runs - values["physics", "base", "base"][0].mean())
    assert rows.loc["physics", "gain_sdpo_low"] < rows.loc["physics", "gain_sdpo"]

    first, second = (texts for _, texts in table.shown[0].rows if texts)
    assert first[:2] == ["30.0 [25.0, 35.0]", "70.0 [60.0, 80.0]"]
    assert first[3] == "0.0"
    assert (first[-1], second[-1]) == ("+50.0 [+40.0, +60.0]", "-14.0 [-20.0, -8.0]")
    notes = " ".join(table.notes)
    assert "The gap is above 0: a shown right sibling makes the untrained model's answers better. " in notes
    assert 'id="table-before_training"' in render(results, with_gaps / "figures")


def test_gains_wait_for_the_runs(with_gaps: Path) -> None:
    for path in with_gaps.glob("runs/**/*.json*"):
        path.unlink()
    table = make_tables(load_results(with_gaps))["before_training"]
    assert table.frame["gain_srpo"].isna().all()


def test_a_gain_is_that_of_the_runs_of_one_base_model(tmp_path: Path) -> None:
    experiment = tiny_of(models=["miniature-large"], benchmarks=["miniature/physics"], methods=["srpo"], seeds=[1, 2])
    write_results(tmp_path, experiment)
    for seed, score in ((1, 0.25), (2, 0.75)):
        run = {"model": "miniature-large", "benchmark": "physics", "method": "base", "seed": 0}
        scores = {"base": (0, [score] * 31 + [1.0])}
        write_evaluation(tmp_path / f"base/miniature-large-{seed}/physics", run, 16, scores)
        write_gap(tmp_path / f"base/miniature-large-{seed}/physics", **MEASURED)
    results = load_results(tmp_path)
    lookup = results.of("miniature-large", "cross_fitted")["physics", "srpo", "10h"]
    for seed, score in ((1, 25.0), (2, 75.0)):
        untrained = (31 * score + 100) / 32
        found = gain(results, "miniature-large", "physics", "srpo", seed)
        assert found.value == pytest.approx(lookup[seed].mean() - untrained)
    labels = [label for label, _ in make_tables(results)["before_training"].shown[0].rows]
    assert labels == ["Physics", "Miniature-L, base model 1", "Miniature-L, base model 2"]


def test_without_a_gap_there_is_no_table_and_no_section(tmp_path: Path) -> None:
    write_results(tmp_path, EXPERIMENT)
    results = load_results(tmp_path)
    write_tables(results, tmp_path / "tables")
    assert not [*tmp_path.glob("tables/before_training*")]
    assert "before_training" not in render(results, tmp_path / "figures")
