"""What budgets hold, and which runs collapsed, recomputed from the raw logs."""

from dataclasses import replace

import null_experiment
import numpy as np
import pandas as pd
import pytest
from null_experiment import Null
from report_cases import EXPERIMENT, MODEL, cell, changed, raw_log, read
from scipy import stats
from synthetic import tiny_experiment, write_results

from srpo.analysis.claims import Rule, load_claims
from srpo.analysis.figures import learning_curves
from srpo.analysis.figures.learning_curves import ALARM, clock_curves
from srpo.analysis.load import load_results
from srpo.analysis.verdicts import findings
from srpo.analysis.write import make_table
from srpo.experiment.compose import load_experiment
from srpo.ground.files import read_events, write_events
from srpo.ground.layout import Layout
from srpo.training.watch import signals_of


def test_steps_validations_and_questions_within_a_budget(finished):
    rows = read(finished / "tables" / "budgets.csv")
    for method in ("grpo", "sdpo", "srpo"):
        for budget, seconds in EXPERIMENT.training.budget_seconds.items():
            counts = {"steps": [], "validations": []}
            for benchmark in ("chemistry", "physics"):
                for name, into in counts.items():
                    log = raw_log(finished, benchmark, method, name)
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
    results = null_experiment.results_of(root, Null(run_sd=0.5))
    validations = results.validations
    falls = (validations["benchmark"] == "physics") & (validations["method"] == "sdpo") & (validations["seed"] < 3)
    falls &= validations["step"] > 2
    scores = validations["question_scores"].where(~falls, validations["question_scores"].map(lambda s: 0.1 * s))
    return changed(results, validations=validations.assign(question_scores=scores))


def test_runs_below_the_untrained_model_are_counted_by_benchmark(collapsed):
    frame = make_table("collapses", collapsed).frame.set_index(["method", "benchmark"])
    assert frame.loc[("sdpo", "physics"), ["runs", "below", "collapsed"]].tolist() == [3, 2, 2]
    assert frame.loc[("sdpo", "average"), ["runs", "below", "collapsed"]].tolist() == [15, 2, 2]
    assert frame.loc[("srpo", "average"), ["runs", "collapsed"]].tolist() == [15, 0]
    exact = stats.binomtest(2, 15).proportion_ci(method="exact")
    found = frame.loc[("sdpo", "average"), ["percent", "percent_low", "percent_high"]].tolist()
    assert found == pytest.approx([200 / 15, 100 * exact.low, 100 * exact.high])
    rows = dict(make_table("collapses", collapsed).shown[0].rows)
    assert rows["SDPO"][0] == "2 of 15 [2, 40]"


def test_a_run_is_judged_against_its_own_base_model(collapsed):
    """Of untrained models at a tenth and at ten times the scores, only the second is above its run."""
    paired = null_experiment.by_base_model(collapsed)
    scale = paired.bases["seed"].map({1: 1.0, 2: 0.1, 3: 10.0}).where(paired.bases["benchmark"] == "chemistry", 1.0)
    scores = [np.clip(own * each, 0, 1) for own, each in zip(paired.bases["question_scores"], scale, strict=True)]
    found = changed(paired, bases=paired.bases.assign(question_scores=scores))
    ends = found.run_ends.query("method == 'grpo' and benchmark == 'chemistry'").set_index("seed")["below"]
    assert ends.to_dict() == {1: False, 2: False, 3: True}


def test_an_unfinished_run_has_no_late_part(collapsed):
    runs = collapsed.runs
    halted = (runs["benchmark"] == "physics") & (runs["method"] == "grpo") & (runs["seed"] == 1)
    found = changed(collapsed, runs=runs.assign(status=runs["status"].where(~halted, "in progress")))
    metric = found.of("qwen3-8b", "reward/mean")
    assert [[*metric["physics", "grpo", when]] for when in ("early", "late", "all")] == [[2, 3]] * 3


def test_a_collapse_on_one_benchmark_is_not_averaged_away(collapsed):
    (finding,) = (f for f in findings(collapsed) if f.claim.id == "sdpo_collapses")
    (outcome,) = finding.outcomes
    assert (outcome.estimate.successes, outcome.estimate.runs) == (2, 15)
    assert (finding.verdict, outcome.benchmarks) == ("undecided", 5)
    (stable,) = (f for f in findings(collapsed) if f.claim.id == "srpo_is_stable")
    assert stable.verdict == "holds"


def test_a_drop_from_the_best_is_a_collapse_above_the_untrained_model(collapsed):
    validations = collapsed.validations
    late = (validations["benchmark"] == "biology") & (validations["method"] == "grpo") & (validations["seed"] == 1)
    late &= validations["step"] > 50
    lower = validations["question_scores"].map(lambda s: np.clip(s - 0.08, 0, 1))
    scores = validations["question_scores"].where(~late, lower)
    results = changed(collapsed, validations=validations.assign(question_scores=scores))
    frame = make_table("collapses", results).frame.set_index(["method", "benchmark"])
    assert frame.loc[("grpo", "biology"), ["below", "dropped", "collapsed"]].tolist() == [0, 1, 1]


@pytest.fixture(scope="module")
def standing_still(collapsed):
    """Two samples of each question; no method learns anything, but SDPO on physics falls to nothing."""
    rng = np.random.default_rng(4)

    def drawn(log: pd.DataFrame, samples: int) -> pd.DataFrame:
        scores = []
        for row in log.to_dict("records"):
            fallen = (row["benchmark"], row.get("method")) == ("physics", "sdpo")
            chance = np.linspace(0.1, 0.5, len(row["question_scores"])) * (0.02 if fallen else 1)
            scores.append(rng.binomial(samples, chance) / samples)
        return log.assign(question_scores=scores)

    return changed(collapsed, validations=drawn(collapsed.validations, 2), bases=drawn(collapsed.bases, 4))


def test_noise_alone_is_no_clear_collapse(standing_still):
    """By hand from the logs: the mean loss of each question, and twice its standard error."""
    frame = make_table("collapses", standing_still).frame.set_index(["method", "benchmark"])
    assert frame.loc[("grpo", "average"), "collapsed"] >= 4
    assert frame.loc[("grpo", "average"), "clear"] <= 2
    assert frame.loc[("sdpo", "physics"), ["runs", "collapsed", "clear"]].tolist() == [3, 3, 3]
    assert (frame["clear"] <= frame["collapsed"]).all()
    validations, bases = standing_still.validations, standing_still.bases
    for benchmark in ("chemistry", "biology"):
        of = validations[(validations["method"] == "grpo") & (validations["benchmark"] == benchmark)]
        untrained = 100 * bases[bases["benchmark"] == benchmark]["question_scores"].iloc[0]
        below = 0
        for _, log in of.groupby("seed"):
            end = 100 * np.mean([*log.sort_values("step")["question_scores"].iloc[-3:]], axis=0)
            below += end.mean() < untrained.mean()
        assert frame.loc[("grpo", benchmark), "below"] == below
    rows = dict(make_table("collapses", standing_still).shown[0].rows)
    row = frame.loc[("grpo", "average")]
    assert f"{row['collapsed']} of 15, {row['clear']} clear" in rows["GRPO"][0]


def test_noise_alone_neither_shows_a_collapse_nor_refutes_that_there_is_none(standing_still):
    """All runs that collapsed are enough for a verdict, the clear ones are not."""
    claims = {claim.id: claim for claim in load_claims()}
    quantity = claims["sdpo_collapses"].quantity.model_copy(update={"terms": [(1.0, "grpo", "end")]})
    above = claims["sdpo_collapses"].model_copy(update={"quantity": quantity, "rule": Rule(above=2)})
    below = above.model_copy(update={"rule": Rule(below=2)})
    (shown,), (refuted,) = findings(standing_still, (above,)), findings(standing_still, (below,))
    assert shown.outcomes[0].estimate.low > 2 > shown.outcomes[0].clear.low
    assert (shown.verdict, refuted.verdict) == ("suggestive", "undecided")
    assert "that collapsed clearly do not" in shown.outcomes[0].reason
    assert "if only clear collapses count" in refuted.outcomes[0].reason
    sdpo = claims["sdpo_collapses"].model_copy(update={"rule": Rule(above=2)})
    assert findings(standing_still, (sdpo,))[0].outcomes[0].clear.successes >= 3


def test_an_empty_experiment_has_neither(tmp_path):
    results = load_results(tmp_path, EXPERIMENT)
    assert not make_table("budgets", results).shown
    assert not make_table("collapses", results).shown


# ---------------------------------------------------------------- the watch


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """The tiny experiment with a short warm-up; SDPO's responses on physics lose the format at step 15."""
    root, raw = tmp_path_factory.mktemp("watched"), tiny_experiment()
    raw["training"]["warmup_steps"] = 2
    write_results(root, load_experiment(raw))
    log = root / f"runs/{MODEL}/physics/sdpo/seed1/validations.jsonl"
    write_events(log, [e | {"format_fraction": 0.5 if e["step"] >= 15 else 1.0} for e in read_events(log)])
    return load_results(root)


def test_signals_are_those_of_the_logs(watched):
    for run in watched.experiment.runs():
        files = Layout(watched.root).run_files(run)
        steps, validations = (list(read_events(path)) for path in (files.steps, files.validations))
        expected = signals_of(steps, validations, watched.experiment.training.warmup_steps)
        key = pd.Series(run.model_dump())
        found = watched.signals[(watched.signals[list(key.index)] == key).all(axis=1)]
        assert [tuple(row) for row in found[["step", "rule", "level"]].to_numpy()] == [
            (signal.step, signal.rule, signal.level) for signal in expected
        ]


def test_the_first_alarm_of_a_run_is_a_point_of_figure_3(watched):
    frame = learning_curves.data(watched)
    marks = frame[frame["series"] == ALARM]
    first = watched.signals[watched.signals["level"] == "alarm"].groupby(["benchmark", "method"])["step"].min()
    assert {(r["benchmark"], r["method"]): r["step"] for r in marks.to_dict("records")} == first.to_dict()
    mark = marks[(marks["benchmark"] == "physics") & (marks["method"] == "sdpo")].iloc[0]
    log = watched.validations.query("benchmark == 'physics' and method == 'sdpo'")
    assert mark["value"] == 100 * log[log["step"] <= mark["step"]]["avg_at_k"].iloc[-1]
    without = replace(watched, signals=watched.signals.iloc[:0])
    methods = ["grpo", "sdpo", "srpo"]
    pd.testing.assert_frame_equal(learning_curves.data(without), clock_curves(without, methods))
    rest = frame[frame["series"] != ALARM].reset_index(drop=True)
    pd.testing.assert_frame_equal(rest, clock_curves(watched, methods), check_dtype=False)
