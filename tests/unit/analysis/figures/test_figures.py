"""Figures show the logged numbers."""

import dataclasses
import math

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from report_cases import EXPERIMENT, results_of
from synthetic import tiny_experiment, tiny_of

from srpo.analysis.figures import learning_curves, routing, style
from srpo.analysis.figures.learning_curves import clock_curves
from srpo.analysis.figures.lines import Series
from srpo.analysis.figures.panels import FEW_RUNS, MOST_BANDS, budget_marks
from srpo.analysis.outline import all_sections
from srpo.analysis.write import figure_module
from srpo.experiment.compose import load_experiment
from srpo.ground.repository import CONFIGS


def test_score_axes_end_where_scores_do(tmp_path):
    """Although an interval over two seeds goes far beyond 100 %."""
    two = load_experiment(tiny_experiment(matrix=[EXPERIMENT.matrix[0].model_dump() | {"seeds": [1, 2]}]))
    results = results_of(tmp_path, two)
    frame = clock_curves(results, two.methods)
    frame = frame.assign(low=frame["value"] - 90, high=frame["value"] + 90)
    figure = learning_curves.draw("Scores", results, frame)
    assert all(-3 <= axes.get_ylim()[0] < axes.get_ylim()[1] <= 103 for axes in figure.axes)


@pytest.mark.parametrize(("longest", "marks", "end"), [(100.0, ["1", "2"], 100.0), (500.0, ["1", "2", "3"], 800.0)])
def test_a_clock_that_no_run_fills_ends_with_the_longest_run(longest, marks, end, tmp_path):
    """A step limit may end all runs long before the last budget."""
    budgets = {"1h": 50.0, "5h": 100.0, "10h": 800.0}
    results = results_of(
        tmp_path, load_experiment(tiny_experiment(training={"clock": {"kind": "modelled"}, "budget_seconds": budgets}))
    )
    results = dataclasses.replace(results, runs=results.runs.assign(clock=longest))
    found, last = budget_marks(results)
    assert ([name for name, _ in found], last) == (marks, pytest.approx(1.03 * end))


# ---------------------------------------------------------------- common clocks


def _of_unequal_pace(tmp_path):
    """Two seeds, of which the second is half as fast and stops early: validations at 4, 8 .. and 8, 16, 24."""
    experiment = load_experiment(
        tiny_experiment(
            matrix=[{**tiny_experiment()["matrix"][0], "methods": ["grpo"], "seeds": [1, 2]}],
            training={"clock": {"kind": "modelled"}, "budget_seconds": {"1h": 8, "5h": 16, "10h": 32}},
        )
    )
    results = results_of(tmp_path, experiment)
    rows = [
        results.validations[results.validations["benchmark"] == "physics"]
        .iloc[[0]]
        .assign(seed=seed, step=step, clock=clock, avg_at_k=score, question_scores=[np.full(32, score)])
        for seed, pace in ((1, 4.0), (2, 8.0))
        for step in range(1, 9 if seed == 1 else 4)
        for clock, score in [(pace * step, (step if seed == 1 else 10 * step) / 100)]
    ]
    runs = results.runs.copy()
    runs["clock"] = [33.0 if seed == 1 else 25.0 for seed in runs["seed"]]
    return dataclasses.replace(results, validations=pd.concat(rows, ignore_index=True), runs=runs)


@pytest.mark.parametrize(
    ("status", "last", "seeds"),
    [("finished", [18.5, 19], 2), ("training", [7, 8], 1)],
)
def test_a_finished_run_keeps_its_last_score_and_one_that_trains_is_left_out(tmp_path, status, last, seeds):
    results = _of_unequal_pace(tmp_path)
    results = dataclasses.replace(results, runs=results.runs.assign(status=status))
    line = clock_curves(results, ["grpo"]).set_index("clock")
    # seed 1: 1 % at 4, 2 % at 8 ..; seed 2: 10 % at 8, 20 % at 16, 30 % at 24, ends at 25
    assert list(line.index) == [8, 12, 16, 20, 24, 28, 32]
    assert list(line["value"]) == pytest.approx([6, 6.5, 12, 12.5, 18, *last])
    assert list(line["seeds"]) == [2, 2, 2, 2, 2, seeds, seeds]


# ---------------------------------------------------------------- bounds


@pytest.fixture(scope="module")
def wild(tmp_path_factory):
    """Two seeds that differ as much as possible: a t interval over them reaches far beyond any bound."""
    root = tmp_path_factory.mktemp("wild")
    methods = ["grpo", "sdpo", "srpo", "srpo_without_weighting", "advantage_mix", "sdpo_failed_only"]
    results = results_of(root, tiny_of(methods=methods, seeds=[1, 2]))
    steps = results.steps.copy()
    for name in {series.metric for series in _metrics_of_figures()} & {*steps.columns}:
        share = np.where(steps["seed"] == 1, 0.02, 0.97) + 0.001 * (steps["step"] % 7)
        steps[name] = np.where(steps[name].isna(), np.nan, share)
    return dataclasses.replace(results, steps=steps)


def _metrics_of_figures():
    return [*routing._SERIES.values(), Series("response_length/mean"), Series("teacher/entropy")]


FIGURES = {figure for section in all_sections() for figure in section.figures}
OTHER_EXPERIMENTS = {"our_differences"}


@pytest.mark.parametrize("name", sorted(FIGURES - OTHER_EXPERIMENTS))
def test_what_a_figure_draws_stays_within_what_is_possible(wild, name):
    """Percentages within 0 and 100, and other quantities that cannot be negative above 0, bands included."""
    spec = figure_module(name)
    frame = spec.data(wild)
    assert len(frame)
    with mpl.rc_context(style.rc()):
        figure = spec.draw(spec.TITLE, wild, frame)
    label = figure.axes[0].get_ylabel()
    least = -math.inf if name == "primary_differences" else 0.0
    most = 100.0 if "%" in label else math.inf
    drawn = 0
    for axes in figure.axes:
        heights = [line.get_ydata() for line in axes.lines if line.get_transform() == axes.transData]
        heights += [path.vertices[:, 1] for band in axes.collections for path in band.get_paths()]
        for values in heights:
            values = np.asarray(values, dtype=float)
            values = values[~np.isnan(values)]
            assert ((values >= least) & (values <= most + 1e-9)).all(), (name, values.min(), values.max())
            drawn += len(values)
    assert drawn


def test_bands_of_wild_runs_are_there_and_hold_their_line(wild):
    """Staying within bounds by having no band would be easy."""
    for name in ("routing", "teacher_entropy", "response_length"):
        frame = figure_module(name).data(wild)
        assert frame["low"].notna().all(), name
        assert ((frame["low"] <= frame["smooth"]) & (frame["smooth"] <= frame["high"])).all(), name
        assert (frame["high"] - frame["low"] > 0.5 * frame["smooth"].abs()).all(), name


def test_an_interval_of_close_positive_numbers_is_students(wild):
    """Of 10 and 10.2 over two seeds: 10.1 ± 12.706 x 0.1, on the logarithm."""
    steps = wild.steps.copy()
    steps["response_length/mean"] = np.where(steps["seed"] == 1, 10.0, 10.2)
    frame = figure_module("response_length").data(dataclasses.replace(wild, steps=steps))
    assert frame["low"].to_numpy() == pytest.approx(10.1 * math.exp(-12.706 * 0.1 / 10.1), rel=1e-4)
    assert frame["high"].to_numpy() == pytest.approx(10.1 * math.exp(12.706 * 0.1 / 10.1), rel=1e-4)


def test_many_methods_without_a_style_of_their_own_can_be_told_apart():
    methods = ["grpo", "sdpo", "srpo", *(f"method_{number}" for number in range(10))]
    styles = style.method_styles(methods).values()
    assert len({each["color"] for each in styles}) == len(methods)


EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiments").glob("*.yaml"))


@pytest.mark.parametrize(
    "name", [name for name in EXPERIMENTS if not name.startswith("tuning")]
)  # those have 24 trials
def test_methods_of_an_experiment_can_be_told_apart_in_grey_and_from_an_alarm(name):
    experiment = load_experiment(CONFIGS / "experiments" / f"{name}.yaml")
    styles = style.method_styles([*experiment.methods]).values()
    assert len({(each["marker"], each["linestyle"]) for each in styles}) == len(styles)
    assert "X" not in {each["marker"] for each in styles}  # an alarm's


@pytest.mark.parametrize("count", [MOST_BANDS, MOST_BANDS + 1])
def test_bands_that_would_hide_the_lines_are_not_drawn(count, tmp_path):
    names = ["grpo", "sdpo", "srpo", "rlsd", "sc_sdpo", "srpo_frozen_teacher"][:count]
    results = results_of(
        tmp_path, tiny_of(methods=names, benchmarks=["miniature/physics"], seeds=[*range(FEW_RUNS + 1)])
    )
    frame = clock_curves(results, names)
    assert frame["low"].notna().any()
    drawn = learning_curves.draw("Scores", results, frame).axes[0].collections
    assert bool(drawn) is (count == MOST_BANDS)


@pytest.mark.parametrize("seeds", [1, 2, FEW_RUNS, FEW_RUNS + 1])
def test_a_mean_of_few_runs_is_drawn_without_a_band(seeds, tmp_path):
    results = results_of(
        tmp_path, tiny_of(methods=["grpo"], benchmarks=["miniature/physics"], seeds=[*range(1, seeds + 1)])
    )
    frame = learning_curves.data(results)
    assert bool(frame["low"].notna().any()) is (seeds > 1)  # the data have the interval
    assert bool(learning_curves.draw("Scores", results, frame).axes[0].collections) is (seeds > FEW_RUNS)
    spec = figure_module("response_length")
    frame = spec.data(results)
    assert bool(frame["low"].notna().any()) is (seeds > 1)
    assert bool(spec.draw("Length", results, frame).axes[0].collections) is (seeds > FEW_RUNS)
