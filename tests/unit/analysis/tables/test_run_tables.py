"""What budgets hold, and which runs collapsed, recomputed from the raw logs."""

import json
from dataclasses import replace

import null_experiment
import numpy as np
import pytest
from null_experiment import Null
from report_cases import EXPERIMENT, MODEL, cell, read
from scipy import stats

from srpo.analysis.results.load import load_results
from srpo.analysis.results.verdicts import findings
from srpo.analysis.tables.run_tables import budgets_table, collapses_table


def test_steps_validations_and_questions_within_a_budget(finished):
    rows = read(finished / "tables" / "budgets.csv")
    for method in ("grpo", "sdpo", "srpo"):
        for budget, seconds in EXPERIMENT.training.budget_seconds.items():
            counts = {"steps": [], "validations": []}
            for benchmark in ("chemistry", "physics"):
                folder = finished / f"runs/{MODEL}/{benchmark}/{method}/seed1"
                for name, into in counts.items():
                    log = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
                    into.append(sum(event["clock"] <= seconds for event in log))
            row = cell(rows, method=method, budget=budget)
            for name, found in counts.items():
                assert [int(row[f"{name}_min"]), int(row[f"{name}_max"])] == [min(found), max(found)]
            batch = EXPERIMENT.training.questions_per_batch
            assert int(row["questions_seen_max"]) == batch * max(counts["steps"])


@pytest.fixture(scope="module")
def collapsed(tmp_path_factory):
    """Two of three physics runs of SDPO fall below the untrained model from the second validation on."""
    root = tmp_path_factory.mktemp("collapsed")
    null_experiment.write(root, Null(run_sd=0.5))
    results = load_results(root)
    validations = results.validations
    falls = (validations["benchmark"] == "physics") & (validations["method"] == "sdpo") & (validations["seed"] < 3)
    falls &= validations["step"] > 2
    scores = validations["question_scores"].where(~falls, validations["question_scores"].map(lambda s: 0.1 * s))
    return replace(results, validations=validations.assign(question_scores=scores))


def test_runs_below_the_untrained_model_are_counted_by_benchmark(collapsed):
    frame = collapses_table(collapsed).frame.set_index(["method", "benchmark"])
    assert frame.loc[("sdpo", "physics"), ["runs", "below", "collapsed"]].tolist() == [3, 2, 2]
    assert frame.loc[("sdpo", "average"), ["runs", "below", "collapsed"]].tolist() == [15, 2, 2]
    assert frame.loc[("srpo", "average"), ["runs", "collapsed"]].tolist() == [15, 0]
    exact = stats.binomtest(2, 15).proportion_ci(method="exact")
    found = frame.loc[("sdpo", "average"), ["percent", "percent_low", "percent_high"]].tolist()
    assert found == pytest.approx([200 / 15, 100 * exact.low, 100 * exact.high])
    rows = {row.label: [str(cell) for cell in row.cells] for row in collapses_table(collapsed).grids[0].rows}
    assert rows["SDPO"][0] == "2 of 15 [2, 40]"


def test_a_collapse_on_one_benchmark_is_not_averaged_away(collapsed):
    (finding,) = (f for f in findings(collapsed) if f.claim.id == "sdpo_collapses")
    (outcome,) = finding.outcomes
    assert (outcome.estimate.successes, outcome.estimate.count) == (2, 15)
    assert (finding.verdict, outcome.agreeing, outcome.benchmarks) == ("undecided", 1, 5)
    (stable,) = (f for f in findings(collapsed) if f.claim.id == "srpo_is_stable")
    assert stable.verdict == "holds"


def test_a_drop_from_the_best_is_a_collapse_above_the_untrained_model(collapsed):
    validations = collapsed.validations
    late = (validations["benchmark"] == "biology") & (validations["method"] == "grpo") & (validations["seed"] == 1)
    late &= validations["step"] > 50
    lower = validations["question_scores"].map(lambda s: np.clip(s - 0.08, 0, 1))
    scores = validations["question_scores"].where(~late, lower)
    results = replace(collapsed, validations=validations.assign(question_scores=scores))
    frame = collapses_table(results).frame.set_index(["method", "benchmark"])
    assert frame.loc[("grpo", "biology"), ["below", "dropped", "collapsed"]].tolist() == [0, 1, 1]


def test_an_empty_experiment_has_neither(tmp_path):
    results = load_results(tmp_path, EXPERIMENT)
    assert not budgets_table(results).grids
    assert not collapses_table(results).grids
