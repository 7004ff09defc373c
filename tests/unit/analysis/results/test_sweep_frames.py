"""The frames of a sweep: every number recomputed from the raw files."""

from __future__ import annotations

import dataclasses
import json
import math

import pandas as pd
import pytest
from sweep_cases import BENCHMARKS, BUDGETS, OF_METHODS, raw, rows_at

from srpo.analysis.results.scores import Scores
from srpo.analysis.results.sweeps import LATE_DROP, sweep_frame, sweep_lines


def test_scores_and_late_drops_are_those_of_the_files(swept):
    results, runs = swept
    frame = sweep_frame(results)
    assert len(frame) == len(runs) * 4 + (1 if results.experiment.sweep.kind == "methods" else 2)
    several = results.experiment.sweep.kind == "methods"
    for (method, value), names in runs.items():
        found = rows_at(frame, method, value)
        for quantity in (*BUDGETS, LATE_DROP):
            assert found.loc[quantity, "score"] == pytest.approx(raw(results, *names, quantity), abs=1e-9), quantity
            low, high = found.loc[quantity, ["score_low", "score_high"]]
            if quantity == LATE_DROP and found.loc[quantity, "score"] == 0:  # every run ended at its best
                assert math.isnan(low)
            else:
                assert low <= found.loc[quantity, "score"] <= high
        for budget in BUDGETS:  # the same score has the same interval everywhere
            estimate = Scores.of(results).estimate(names[0], {(names[1], budget): 1.0}, BENCHMARKS)
            ends = found.loc[budget, ["score_low", "score_high"]]
            assert list(ends) == pytest.approx([estimate.low, estimate.high], nan_ok=True)
        assert found.loc["10h", "score_unit"] == ("seed and question" if several else "question")
        assert found.loc["10h", "seeds"] == (3 if several else 1)


def test_changes_are_differences_from_the_first_value_of_the_file(swept):
    results, runs = swept
    frame = sweep_frame(results)
    first = {}
    for (method, value), names in runs.items():
        first.setdefault(method, names)
        found = rows_at(frame, method, value)
        for quantity in ("10h", LATE_DROP):
            if names == first[method]:
                assert math.isnan(found.loc[quantity, "change"])
                continue
            difference = raw(results, *names, quantity) - raw(results, *first[method], quantity)
            assert found.loc[quantity, "change"] == pytest.approx(difference, abs=1e-9)
            low, high = found.loc[quantity, ["change_low", "change_high"]]
            if quantity == LATE_DROP and found.loc[quantity, "change"] == 0:
                assert math.isnan(low)
            else:
                assert low <= found.loc[quantity, "change"] <= high


def test_a_change_between_models_pairs_their_answers_to_a_question(swept):
    """A difference of equal answers is 0 on every question, without an interval, however spread the questions are."""
    results, _ = swept
    if results.experiment.sweep.kind != "models":
        pytest.skip("models are compared in a sweep of models")
    half = results.evaluations[results.evaluations["model"].str.endswith("-0")]
    twice = pd.concat([half, half.assign(model="miniature-small-brevity-0.3")])
    found = rows_at(sweep_frame(dataclasses.replace(results, evaluations=twice)), "srpo", 0.3).loc["10h"]
    assert (found["change"], found["change_unit"]) == (0, "")
    assert math.isnan(found["change_low"])
    assert found["score_high"] - found["score_low"] > 1


def test_base_models_of_a_sweep_of_models_have_a_point_each(swept):
    results, _ = swept
    base = sweep_frame(results).query("method == 'base'")
    for row in base.itertuples():
        suffix = f"-brevity-{row.setting:g}" if results.experiment.sweep.kind == "models" else ""
        scores = [
            json.loads((results.root / f"base/miniature-small{suffix}/{b}/evaluation.json").read_text())
            for b in BENCHMARKS
        ]
        mean = sum(100 * score["budgets"]["base"]["avg_at_k"] for score in scores) / 2
        assert row.score == pytest.approx(mean)


def test_lines_keep_the_order_of_the_file():
    class Bare:
        experiment = OF_METHODS

    made = [(line.method, [value for value, *_ in line.points]) for line in sweep_lines(Bare())]
    assert [method for method, _ in made] == ["base", "grpo", "srpo"]
    assert made[2][1] == [2, 0, 0.5]
