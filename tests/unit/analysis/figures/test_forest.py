"""The forest plot of the primary claims: its numbers, its intervals at Holm's level, and what is drawn."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest
from null_experiment import Null, write

from srpo.analysis.figures import style
from srpo.analysis.figures.forest import PAPER, primary_differences
from srpo.analysis.figures.registry import FIGURES
from srpo.analysis.results.load import load_results
from srpo.analysis.results.matrix import AVERAGE
from srpo.analysis.results.scores import Scores
from srpo.analysis.results.verdicts import findings


@pytest.fixture(scope="module", params=[0.0, 4.0, -12.0])
def results(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("forest")
    write(root, Null(gain=(("srpo", request.param),)))
    return load_results(root)


def test_each_row_is_the_claims_estimate_with_the_papers_values(results):
    frame = primary_differences(results)
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


def test_there_is_a_mark_for_each_benchmark_and_their_mean_is_the_average(results):
    frame = primary_differences(results)
    lookup = Scores.of(results).lookup("qwen3-8b", "cross_fitted")
    for name, rows in frame[frame["series"] == "benchmark"].groupby("claim"):
        assert list(rows["name"]) == list(results.experiment.benchmarks)
        whole = frame[(frame["claim"] == name) & (frame["series"] == AVERAGE)]["value"].item()
        assert rows["value"].mean() == pytest.approx(whole)
    row = frame[(frame["claim"] == "srpo_over_grpo_last") & (frame["name"] == "physics")]["value"].item()
    srpo, grpo = (np.mean(list(lookup("physics", method, "10h").values())) for method in ("srpo", "grpo"))
    assert row == pytest.approx(srpo - grpo)


def test_the_interval_at_holms_level_lies_beside_zero_exactly_if_the_claim_is_decided(results):
    """Every primary claim says that a difference is above 0."""
    rows = primary_differences(results)
    rows = rows[rows["series"] == AVERAGE]
    assert ((rows["holm_low"] <= rows["low"]) & (rows["high"] <= rows["holm_high"])).all()
    assert ((rows["holm_low"] > 0) == (rows["verdict"] == "holds")).all()
    assert ((rows["holm_high"] < 0) == (rows["verdict"] == "does not hold")).all()
    assert not (rows["holm_low"] == rows["low"]).all()


def test_the_drawing_has_every_interval_and_every_mark(results):
    spec = FIGURES["primary_differences"]
    frame = spec.data(results)
    with mpl.rc_context(style.rc()):
        figure = spec.draw(spec.title, results, frame)
    (axes,) = figure.axes
    drawn = {tuple(float(x) for x in line.get_xdata()) for line in axes.lines}
    for row in frame.to_dict("records"):
        if row["series"] == AVERAGE:
            assert {(row["low"], row["high"]), (row["holm_low"], row["holm_high"])} <= drawn
        assert (row["value"],) in drawn
    texts = [text.get_text() for text in axes.texts]
    for row in frame[frame["series"] == AVERAGE].to_dict("records"):
        assert f"{row['value']:+.1f} [{row['low']:.1f}, {row['high']:.1f}]  {row['verdict']}" in texts
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[:3] == ["95 % interval", "at Holm's level", "Chemistry"]
    assert names[-2:] == ["the paper's Qwen3-8B", "the paper's Qwen3-4B"]
    assert figure.get_facecolor() == (1.0, 1.0, 1.0, 1.0)  # readable on a dark page


def test_nothing_tested_is_an_empty_frame(results, tmp_path):
    nothing = load_results(tmp_path, results.experiment)
    assert primary_differences(nothing).empty
    assert FIGURES["primary_differences"].caption(nothing, primary_differences(nothing)) == ""
