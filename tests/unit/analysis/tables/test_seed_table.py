"""The table of seeds, without and with a base model per seed."""

import null_experiment
import numpy as np
import pytest
from null_experiment import Null, by_base_model

from srpo.analysis.results.load import load_results
from srpo.analysis.results.scores import Scores
from srpo.analysis.tables.seed_table import seeds_table


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("seeds")
    null_experiment.write(root, Null(run_sd=3.0))
    return load_results(root)


def test_a_shared_base_model_has_no_differences_by_base_model(results):
    table = seeds_table(results)
    assert len(table.grids) == 1
    assert not table.frame.columns.str.startswith("error").any()


def test_differences_on_each_base_model_with_both_errors(results):
    paired = by_base_model(results)
    table = seeds_table(paired)
    frame = table.frame.set_index("method").query("benchmark == 'average'")
    assert list(frame.index) == ["sdpo-grpo", "srpo-grpo", "srpo-sdpo"]
    row = frame.loc["srpo-sdpo"]
    last = results.evaluations.query("budget == '10h'")
    means = last.assign(score=100 * last["question_scores"].map(np.mean)).pivot_table("score", "seed", "method")
    difference = means["srpo"] - means["sdpo"]  # every benchmark has the same weight
    assert row[["seed1", "seed2", "seed3"]].to_list() == pytest.approx(difference.to_list())
    assert row["mean"] == pytest.approx(difference.mean())
    assert row["spread"] == pytest.approx(difference.std())
    assert row["mean_unit"] == "base model and question"
    assert 0 < row["error_by_base_model"] != row["error_by_benchmark"] > 0
    assert [cell.text for cell in table.grids[1].rows[2].cells][:3] == [f"{value:+.1f}" for value in difference]


def test_the_untrained_model_has_a_score_for_each_base_model(results):
    paired = Scores.of(by_base_model(results))
    assert paired.seeds("qwen3-8b", "physics", "base", "base", "resampled") == 3
    gain = paired.estimate("qwen3-8b", {("srpo", "10h"): 1.0, ("base", "base"): -1.0}, ["physics", "biology"])
    assert (gain.meaning, gain.count) == ("base model and question", 3)
