"""The picture of the result in the README: made by a script, from finished runs, whose commit is recorded."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from synthetic import tiny_experiment, write_results

from srpo.analysis.results.load import load_results
from srpo.analysis.tables.score_tables import main_table
from srpo.analysis.tables.table import table_csv
from srpo.experiment.compose import load_experiment
from srpo.layout import Layout
from srpo.repository import CONFIGS

ROOT = CONFIGS.parent
RECORD = ROOT / "docs" / "result.json"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("result", ROOT / "scripts" / "result.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def results(tmp_path: Path) -> Layout:
    layout = Layout(tmp_path / "tiny")
    write_results(layout.folder, load_experiment(tiny_experiment()))
    table = main_table(load_results(layout.folder))
    layout.tables.mkdir()
    layout.table("table1", "csv").write_text(table_csv(table.frame, table.digits))
    layout.figures.mkdir()
    for name in ("primary_differences", "learning_curves"):
        plt.imsave(layout.figure(name, "png"), np.linspace(0, 1, 12).reshape(3, 4))
    return layout


def test_picture_is_deterministic_and_names_its_commit(script, results: Layout, tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        assert script.main([str(results.folder), "--output", str(tmp_path / f"{name}.png")]) == 0
        found.append((tmp_path / f"{name}.png").read_bytes())
    assert found[0] == found[1]
    record = json.loads((tmp_path / "a.json").read_text())
    assert record == {
        "experiment": "tiny",
        "runs": 6,
        "commits": ["13707f0" + "0" * 33],
        "sha256": hashlib.sha256(found[0]).hexdigest(),
    }


def test_table_of_the_picture_begins_with_the_average(script, results: Layout) -> None:
    import pandas as pd

    scores = pd.read_csv(results.table("table1", "csv"))
    heads, rows = script.table_of(load_experiment(results.experiment), scores)
    assert heads == ["Model", "Method", "Average 1h", "Average 5h", "Average 10h", "Chemistry", "Physics"]
    assert [row[1] for row, _ in rows] == ["Base", "GRPO", "SDPO", "SRPO"]
    average = scores[(scores["method"] == "srpo") & (scores["benchmark"] == "average") & (scores["budget"] == "10h")]
    assert rows[-1][0][4] == f"{average['resampled'].item():.1f}"


def test_the_highest_score_of_a_column_is_bold_not_the_untrained_model(script, results: Layout) -> None:
    import pandas as pd

    _, rows = script.table_of(load_experiment(results.experiment), pd.read_csv(results.table("table1", "csv")))
    for column in range(3, 7):
        highest = max(float(row[column]) for row, _ in rows)
        assert [column in best for _, best in rows] == [float(row[column]) == highest for row, _ in rows]
    assert not {3, 4, 5, 6} & rows[0][1]  # the untrained model


def test_an_unfinished_experiment_is_refused(script, results: Layout, tmp_path: Path, capsys) -> None:
    run = load_experiment(results.experiment).runs()[0]
    results.run_files(run).evaluation.unlink()
    assert script.main([str(results.folder), "--output", str(tmp_path / "a.png")]) == 2
    assert "not finished and evaluated" in capsys.readouterr().err
    assert not (tmp_path / "a.png").exists()


@pytest.mark.skipif(not RECORD.exists(), reason="docs/result.png is made from the finished embedded-full experiment")
def test_committed_picture_is_the_one_recorded() -> None:
    record = json.loads(RECORD.read_text())
    assert hashlib.sha256(RECORD.with_suffix(".png").read_bytes()).hexdigest() == record["sha256"]
    assert record["experiment"] == "embedded-full"
    assert record["commits"]
    assert all(re.fullmatch("[0-9a-f]{40}", commit) for commit in record["commits"])
    assert "docs/result.png" in (ROOT / "README.md").read_text()
