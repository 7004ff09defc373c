"""The forest plot of the primary claims: its numbers, its intervals, and what is drawn."""

from dataclasses import replace

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from null_experiment import Null, results_of

from srpo.analysis.figures import our_differences, primary_differences, style
from srpo.analysis.figures.forest import OVER, PAPER, _limits, in_words
from srpo.analysis.load import load_results
from srpo.analysis.results import AVERAGE
from srpo.analysis.verdicts import findings
from srpo.analysis.write import figure_module


@pytest.fixture(scope="module", params=[4.0, -12.0])
def results(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("forest")
    return results_of(root, Null(gain=(("srpo", request.param),)))


def test_each_row_is_the_claims_estimate_with_the_papers_values(results):
    frame = primary_differences.data(results)
    primary = {f.claim.id: f for f in findings(results) if f.claim.primary and f.verdict != "not tested"}
    averages = frame[frame["series"] == AVERAGE].set_index("claim")
    assert set(averages.index) == set(primary)
    assert len(primary) == 7  # the control at matched settings is not run here
    for name, finding in primary.items():
        estimate, row = finding.outcomes[0].estimate, averages.loc[name]
        assert (row["value"], row["low"], row["high"]) == (estimate.value, estimate.low, estimate.high)
        assert row["verdict"] == finding.verdict
        paper = frame[(frame["claim"] == name) & (frame["series"] == PAPER)]
        assert dict(zip(paper["name"], paper["value"], strict=True)) == finding.claim.paper
    assert averages.loc["srpo_over_grpo_last", "difference"] == "SRPO − GRPO, 10h"
    assert averages.loc["grpo_overtakes_sdpo", "difference"] == "GRPO − SDPO, 10h"


def test_the_papers_values_are_drawn_only_if_they_may_be_compared(results):
    other = results.experiment.model_copy(update={"comparable_with_paper": False})
    assert PAPER not in set(primary_differences.data(replace(results, experiment=other))["series"])


def test_there_is_a_mark_for_each_benchmark_and_their_mean_is_the_average(results):
    frame = primary_differences.data(results)
    values = results.of("qwen3-8b", "cross_fitted")
    for name, rows in frame[frame["series"] == "benchmark"].groupby("claim"):
        assert list(rows["name"]) == list(results.experiment.benchmarks)
        whole = frame[(frame["claim"] == name) & (frame["series"] == AVERAGE)]["value"].item()
        assert rows["value"].mean() == pytest.approx(whole)
    row = frame[(frame["claim"] == "srpo_over_grpo_last") & (frame["name"] == "physics")]["value"].item()
    srpo, grpo = (np.mean(list(values["physics", method, "10h"].values())) for method in ("srpo", "grpo"))
    assert row == pytest.approx(srpo - grpo)


def test_each_benchmark_has_its_interval_and_the_average_one_over_benchmarks(results):
    frame = primary_differences.data(results)
    outcomes = {f.claim.id: f.outcomes[0] for f in findings(results)}
    for row in frame[frame["series"] == "benchmark"].to_dict("records"):
        estimate = outcomes[row["claim"]].on_each[row["name"]]
        assert (row["value"], row["low"], row["high"]) == (estimate.value, estimate.low, estimate.high)
    for row in frame[frame["series"] == OVER].to_dict("records"):
        over = outcomes[row["claim"]].over_benchmarks
        assert (row["low"], row["high"]) == (over.low, over.high)
    assert (frame["series"] == OVER).sum() == frame["claim"].nunique()


def test_the_drawing_has_every_interval_and_every_mark(results):
    spec = figure_module("primary_differences")
    frame = spec.data(results)
    with mpl.rc_context(style.rc()):
        figure = spec.draw(spec.TITLE, results, frame)
    average, words, *single = figure.axes
    assert [axes.get_title() for axes in single] == [b.title for b in results.experiment.benchmarks.values()]
    panels = dict(zip(results.experiment.benchmarks, single, strict=True)) | {AVERAGE: average}
    drawn = {name: {tuple(float(x) for x in line.get_xdata()) for line in axes.lines} for name, axes in panels.items()}
    for row in frame.to_dict("records"):
        here = drawn[AVERAGE if row["series"] == PAPER else row["name"]]
        if row["series"] != PAPER:
            assert (row["low"], row["high"]) in here
        if row["series"] != OVER:
            assert (row["value"],) in here
    texts = [text.get_text() for text in words.texts]
    averages = frame[frame["series"] == AVERAGE]
    assert texts == [f"{in_words(row)}  {row['verdict']}" for row in averages.to_dict("records")]
    low, high = average.get_xlim()
    marked = frame[frame["series"].isin((AVERAGE, PAPER))]
    assert low < marked[["value", "low"]].min().min()
    assert marked[["value", "high"]].max().max() < high
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[:2] == ["average, 95 % interval", "the same over new benchmarks"]
    assert names[-2:] == ["the paper's Qwen3-8B", "the paper's Qwen3-4B"]
    assert figure.get_facecolor() == (1.0, 1.0, 1.0, 1.0)  # a dark page inverts it


def test_an_interval_over_benchmarks_that_is_much_wider_does_not_set_the_scale():
    frame = pd.DataFrame({"value": [5.0], "low": [-2.0], "high": [10.0]})
    room = 0.06 * 12
    assert _limits(frame) == pytest.approx((-2 - room, 10 + room))
    assert _limits(frame, frame.assign(high=20.0)) == pytest.approx((-2 - 0.06 * 22, 20 + 0.06 * 22))
    assert _limits(frame, frame.assign(high=30.0)) == pytest.approx((-2 - room, 10 + room))


def test_one_run_of_each_method_has_no_interval(tmp_path):
    results = results_of(tmp_path, Null(seeds=(1,)))
    spec = figure_module("primary_differences")
    frame = spec.data(results)
    assert frame["low"].isna().all()
    assert OVER not in set(frame["series"])
    with mpl.rc_context(style.rc()):
        names = [text.get_text() for text in spec.draw("", results, frame).legends[0].get_texts()]
    assert names[0] == "average (one run each: no interval)"


def test_numbers_are_rounded_without_a_sign_of_zero():
    assert in_words({"value": 5.78, "low": -2.04, "high": 11.5}) == "+5.8 [−2.0, 11.5]"
    assert in_words({"value": 5.78, "low": -0.04, "high": 11.5}) == "+5.8 [0.0, 11.5]"
    assert in_words({"value": -3.7, "low": float("nan"), "high": float("nan")}) == "−3.7"


def test_nothing_tested_is_an_empty_frame(results, tmp_path):
    nothing = load_results(tmp_path, results.experiment)
    assert primary_differences.data(nothing).empty


def test_the_axis_of_points_has_no_claim_of_another_unit(tmp_path, monkeypatch):
    results = results_of(tmp_path, Null())
    found = [f for f in findings(results) if f.claim.primary and f.verdict != "not tested"][:2]
    units = ("points", "tokens")
    own = [
        replace(f, claim=f.claim.model_copy(update={"block": "questions", "unit": unit}))
        for f, unit in zip(found, units, strict=True)
    ]
    monkeypatch.setattr("srpo.analysis.figures.forest.findings", lambda results: own)
    assert {*our_differences.data(results)["claim"]} == {found[0].claim.id}
