"""Independent numbers stand beside ours and the paper's, in reports that may compare them."""

from __future__ import annotations

import pandas as pd
import pytest
from report_cases import EXPERIMENT
from synthetic import paper_experiment, write_results

from srpo.analysis.figures.captions import score_caption
from srpo.analysis.figures.curves import ELSEWHERE, curves_of_figure_3, curves_with_alarms
from srpo.analysis.figures.drawing import draw_scores
from srpo.analysis.outline import tables_of
from srpo.analysis.results.load import load_results
from srpo.analysis.results.reproductions import reproductions, reproductions_for
from srpo.analysis.tables.registry import build_tables

AVERAGE = {"model": "qwen3-8b", "benchmark": "average"}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("paper")
    write_results(root, paper_experiment())
    return load_results(root)


@pytest.fixture(scope="module")
def tables(results):
    return build_tables(results)


def found(frame, **key):
    (row,) = [row for row in frame.to_dict("records") if all(row[name] == value for name, value in key.items())]
    return row


def test_ours_are_the_in_training_maxima_of_table_1(tables):
    frame, scores = tables["reproductions"].frame, tables["table1"].frame
    ours = frame[(frame["source"] == "this experiment") & (frame["when"] != "base")]
    assert len(ours) == scores["in_training"].notna().sum() > 0
    for row in ours.itertuples():
        same = found(scores, model=row.model, method=row.method, benchmark=row.benchmark, budget=row.when)
        assert row.score == pytest.approx(same["in_training"])
        assert row.seeds == same["in_training_seeds"]
    grpo = ours[ours["method"] == "grpo"]
    assert ({*grpo["learning_rate"]}, {*grpo["updates_per_step"]}) == ({1e-6}, {4})


def test_the_papers_and_independent_numbers_are_there(tables):
    frame = tables["reproductions"].frame
    assert found(frame, source="the paper", method="srpo", when="10h", **AVERAGE)["score"] == 77.4
    assert found(frame, source="VERPO", method="srpo", **AVERAGE)["score"] == pytest.approx(68.33)
    assert "qwen3-4b" not in {*frame["model"]}
    assert not frame["benchmark"].isin(["mathematics", "logic"]).any()
    (grid,) = tables["reproductions"].grids
    headings = [row.label for row in grid.rows if row.heading]
    assert headings[:3] == ["this experiment", "the paper (arXiv:2604.02288)", "VERPO (arXiv:2609.06100)"]
    assert {len(row.cells) for row in grid.rows if not row.heading} == {len(grid.columns)}
    marked = [row.label for row in grid.rows if row.label.endswith("(not the paper's)")]
    assert len(marked) == 10  # 3 runs with known errors, 5 with forced tokens, 2 scores of the Megatron port


def test_without_all_five_benchmarks_there_are_no_averages(tmp_path):
    experiment = paper_experiment(["chemistry", "physics"])
    assert {*reproductions_for(experiment)["benchmark"]} == {"chemistry", "physics"}
    write_results(tmp_path, experiment)
    assert "average" not in {*build_tables(load_results(tmp_path))["reproductions"].frame["benchmark"]}


def test_figure_3_has_the_published_bests_of_others_without_a_time(results, tmp_path):
    methods = ["grpo", "sdpo", "srpo"]
    frame = curves_of_figure_3(results, methods)
    marks = frame[frame["series"] == ELSEWHERE]
    known = reproductions()
    best = known[(known["model"] == "Qwen3-8B") & (known["when"] == "best") & (known["paper_method"] == "yes")]
    best = best[best["method"].isin(methods) & best["benchmark"].isin(results.experiment.benchmarks)]
    assert sorted(marks["value"]) == sorted(best["score"])
    assert len(marks) == 56
    assert marks["clock"].isna().all()
    curves = frame[frame["series"] != ELSEWHERE].reset_index(drop=True)
    pd.testing.assert_frame_equal(curves, curves_with_alarms(results, methods), check_dtype=False)
    figure = draw_scores("Figure 3", results, frame)
    drawn = [line for axes in figure.axes for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert sorted(value for line in drawn for value in line.get_ydata()) == sorted(best["score"])
    assert {x for line in drawn for x in line.get_xdata()} == {1.0}  # the right edge
    assert "published bests of others" in score_caption("X", results, frame)
    assert "published" not in score_caption("X", results, curves)


def test_only_a_report_that_may_be_compared_has_them(tmp_path):
    assert "reproductions" in tables_of(paper_experiment())
    assert "reproductions" not in tables_of(EXPERIMENT)
    write_results(tmp_path, EXPERIMENT)
    assert ELSEWHERE not in {*curves_of_figure_3(load_results(tmp_path), ["grpo", "srpo"])["series"]}
