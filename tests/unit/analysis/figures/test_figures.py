"""Figures show the logged numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from report_cases import EXPERIMENT
from synthetic import tiny_experiment, write_results

from srpo.analysis.figures.curves import validation_curves
from srpo.analysis.figures.drawing import draw_scores
from srpo.analysis.figures.registry import FIGURES
from srpo.analysis.results.load import load_results
from srpo.compose import load_experiment


@pytest.mark.parametrize(
    ("name", "methods", "metrics"),
    [
        ("branch_norms", {"srpo"}, {"GRPO branch": "grad_norm/grpo", "SDPO branch": "grad_norm/sdpo"}),
        (
            "loss_by_token",
            {"sdpo", "srpo"},
            {
                "reasoning": "distillation_share/reasoning",
                "first answer token": "distillation_share/answer_start",
                "rest of the answer": "distillation_share/answer_rest",
                "format": "distillation_share/format",
            },
        ),
        ("copying", {"sdpo", "srpo"}, {"student": "copying/student", "teacher": "copying/teacher"}),
        ("weights", {"srpo"}, {"largest": "weights/max", "10 % quantile": "weights/p10", "median": "weights/median"}),
        ("rollout_truncated", {"grpo", "sdpo", "srpo"}, {"": "actor/rollout_is_truncated_fraction"}),
    ],
)
def test_diagnostic_figures_show_the_logged_numbers(tmp_path, name, methods, metrics):
    """Every drawn number against the raw log of its run and step: shares as percent, the rest as logged."""
    write_results(tmp_path, EXPERIMENT)
    frame = FIGURES[name].data(load_results(tmp_path))
    factor = 1 if name in ("branch_norms", "weights") else 100
    assert set(frame["method"]) == methods
    assert set(metrics) <= set(frame["series"])
    for method in methods:
        for series, metric in metrics.items():
            path = tmp_path / f"runs/miniature-small/physics/{method}/seed1/steps.jsonl"
            events = [json.loads(line) for line in path.read_text().splitlines()]
            logged = {e["step"]: factor * e["metrics"][metric] for e in events if metric in e["metrics"]}
            drawn = frame[(frame["method"] == method) & (frame["series"] == series)].query("benchmark == 'physics'")
            assert dict(zip(drawn["step"], drawn["value"], strict=True)) == pytest.approx(logged)
    if name == "branch_norms":
        assert (frame["step"] % 5 == 0).all()


def test_lines_of_logarithmic_axes_are_geometric_means(tmp_path):
    """With two seeds whose values are 1 and 4 the line is at 2; its band follows by hand, in powers of 2."""
    matrix = [{**tiny_experiment()["matrix"][0], "seeds": [1, 2]}]
    write_results(tmp_path, load_experiment(tiny_experiment(matrix=matrix)))
    results = load_results(tmp_path)
    results.steps["weights/max"] = 4.0 ** (results.steps["seed"] - 1)
    results.steps["weights/p10"] = 0.0
    frame = FIGURES["weights"].data(results)
    line = frame[frame["series"] == "largest"]
    ends = line[["value", "smooth", "low", "high"]].to_numpy()
    powers = [1, 1, 1 - 12.706, 1 + 12.706]  # Student's t times the SD of 0 and 2, divided by the root of 2 seeds
    assert np.log2(ends) == pytest.approx(np.array([powers] * len(line)), abs=1e-3)
    assert "10 % quantile" not in set(frame["series"])  # no logarithm
    assert "Means over seeds are geometric." in FIGURES["weights"].caption(results, frame)


def test_branches_that_no_method_uses_are_not_drawn(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    results = load_results(tmp_path)
    spec = FIGURES["routing"]
    frame = spec.data(results)
    lines = {"routed to GRPO", "routed to SDPO", "correct", "sibling available"}  # and no anchored branch
    assert set(frame["series"]) == lines
    (legend,) = spec.draw("", results, frame).legends
    assert {text.get_text() for text in legend.get_texts()} == lines


def test_scores_are_drawn_against_steps_too(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    results = load_results(tmp_path)
    spec = FIGURES["scores_by_step"]
    frame = spec.data(results)
    assert "against the training step" in spec.caption(results, frame)
    assert "budgets" not in spec.caption(results, frame)
    figure = spec.draw("", results, frame)
    drawn = {tuple(line.get_xdata()) for line in figure.axes[0].get_lines() if len(line.get_xdata()) > 2}
    grouped = frame[frame["benchmark"] == "chemistry"].groupby("method")["step"]
    assert drawn == {tuple(steps) for _, steps in grouped}
    assert {axes.get_xlabel() for axes in figure.axes} == {"training step"}


def test_score_axes_end_where_scores_do(tmp_path):
    """Although an interval over two seeds goes far beyond 100 %."""
    two = load_experiment(tiny_experiment(matrix=[EXPERIMENT.matrix[0].model_dump() | {"seeds": [1, 2]}]))
    write_results(tmp_path, two)
    results = load_results(tmp_path)
    frame = validation_curves(results, two.methods)
    frame = frame.assign(low=frame["value"] - 90, high=frame["value"] + 90)
    figure = draw_scores("Scores", results, frame)
    assert all(-3 <= axes.get_ylim()[0] < axes.get_ylim()[1] <= 103 for axes in figure.axes)
