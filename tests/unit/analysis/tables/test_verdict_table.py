"""The table of verdicts has what the claims' outcomes have."""

from dataclasses import replace

import null_experiment
import pytest
from null_experiment import Null, by_base_model, with_numbers
from scipy import stats

from srpo.analysis.claims import load_claims
from srpo.analysis.figures import learning_curves, style
from srpo.analysis.figures.learning_curves import clock_curves
from srpo.analysis.results import records
from srpo.analysis.verdicts import findings
from srpo.analysis.write import make_table, table_csv


@pytest.fixture(scope="module", params=[False, True], ids=["seeds", "base models"])
def results(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("verdicts")
    found = null_experiment.results_of(root, Null(gain=(("srpo", 6.0),)))
    return by_base_model(found) if request.param else found


def test_a_row_per_claim_with_the_number_that_decides(results):
    table, found = make_table("verdicts", results), {finding.claim.id: finding for finding in findings(results)}
    frame = table.frame.set_index("claim")
    assert list(frame.index) == [claim.id for claim in load_claims()]
    paired = results.experiment.draws_per_seed("qwen3-8b")
    for name, row in frame.to_dict("index").items():
        (outcome,) = found[name].outcomes
        assert (row["verdict"], row["title"]) == (outcome.verdict, found[name].claim.statement)
        if outcome.estimate is not None and outcome.estimate.has_interval and paired:
            assert row["base_models"] == outcome.estimate.count == 3
    row = frame.loc["srpo_over_grpo_last"]
    assert (row["family"], row["score"], row["benchmarks"]) == ("primary", "cross_fitted", 5)
    assert row["p_holds"] < row["p_holds_adjusted"]
    differences = make_table("differences", results).frame.set_index(["method", "benchmark", "budget"])
    shown = differences.loc[("grpo", "average", "10h")]
    assert (row["estimate"], row["estimate_low"]) == (shown["difference"], shown["difference_low"])
    own = [differences.loc[("grpo", b, "10h"), "difference"] for b in results.experiment.benchmarks]
    ends = stats.ttest_1samp(own, 0).confidence_interval()
    assert (row["over_benchmarks_low"], row["over_benchmarks_high"]) == pytest.approx((ends.low, ends.high))
    lows = [differences.loc[("grpo", b, "10h"), "difference_low"] for b in results.experiment.benchmarks]
    assert row["holding"] == sum(low > 0 for low in lows)


def test_the_files_have_fixed_digits_and_no_untested_rows_for_readers(results):
    table = make_table("verdicts", results)
    text = table_csv(table)
    assert text.splitlines()[0].startswith("claim,title,family,model,verdict,unit,score,estimate,")
    assert "nan" not in text.lower()
    (grid,) = table.shown
    assert len(grid.rows) == table.frame["estimate"].notna().sum() < len(table.frame)


def test_one_run_each_has_no_count_of_benchmarks_on_which_a_claim_holds(tmp_path):
    (grid,) = make_table("verdicts", null_experiment.results_of(tmp_path, Null(seeds=(1,)))).shown
    assert {texts[0]: texts[4] for _, texts in grid.rows}["one seed"] == "–"


def test_untrained_models_beside_trained_ones_are_those_that_were_trained(tmp_path):
    whole = by_base_model(null_experiment.results_of(tmp_path, Null()))
    (first, *_), bases = sorted(whole.runs["seed"].unique()), whole.bases
    scores = [
        (row["question_scores"] * 0 + 1 if row["seed"] == first else row["question_scores"]) for row in records(bases)
    ]
    bases = bases.assign(question_scores=scores, avg_at_k=[row.mean() for row in scores])
    evaluations = whole.evaluations[whole.evaluations["seed"] == first]
    validations = whole.validations[whole.validations["seed"] == first]
    results = with_numbers(replace(whole, bases=bases, evaluations=evaluations, validations=validations))
    figure = learning_curves.draw("Scores", results, clock_curves(results, results.experiment.methods))
    lines = [
        line.get_ydata()[0] for axes in figure.axes for line in axes.lines if line.get_color() == style.BASE_COLOUR
    ]
    assert set(lines) == {100.0}
    frame = make_table("table1", results).frame
    untrained = frame[frame["method"] == "base"]
    assert untrained["resampled"].tolist() == [100.0] * len(untrained)
    assert set(untrained["resampled_seeds"]) == {1}
