"""Data that are few or odd: one question, a metric that is null, shares near their bounds."""

import json
import math

import pytest
from null_experiment import Null
from null_experiment import write as write_null
from report_cases import EXPERIMENT, report, results_of
from synthetic import tiny_of, write_results

from srpo.analysis.load import load_results
from srpo.analysis.verdicts import findings
from srpo.analysis.write import make_tables
from srpo.ground.files import read_events, write_events


def one_question(cell):
    return cell | {"question_scores": cell["question_scores"][:1], "avg_at_k": cell["question_scores"][0]}


def test_one_test_question_gives_a_page(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    for path in [p for p in tmp_path.rglob("*") if "physics" in p.parts]:
        if path.name == "validations.jsonl":
            write_events(path, [*map(one_question, read_events(path))])
        elif path.name == "evaluation.json":
            content = json.loads(path.read_text())
            content["budgets"] = {name: one_question(found) for name, found in content["budgets"].items()}
            path.write_text(json.dumps(content))
    assert "Physics" in report(tmp_path)
    table = make_tables(load_results(tmp_path))["table1"].frame.set_index(["method", "benchmark", "budget"])
    assert math.isnan(table.loc[("srpo", "physics", "10h"), "cross_fitted"])
    assert not math.isnan(table.loc[("srpo", "physics", "10h"), "resampled"])
    assert not math.isnan(table.loc[("srpo", "chemistry", "10h"), "cross_fitted"])


def test_a_metric_that_is_null_is_a_gap(tmp_path):
    """As a logger writes a number that is not finite: the watch and the tables go on without it."""
    made = write_null(tmp_path, Null(seeds=(1,)))
    for run in made.runs():
        log = tmp_path / "runs" / run.path / "steps.jsonl"
        events = [*read_events(log)]
        for event in events[10:30]:
            event["metrics"]["response_length/mean"] = None
        write_events(log, events)
    results = load_results(tmp_path)
    assert results.steps["response_length/mean"].isna().sum() == 20 * len(results.runs)
    make_tables(results)


@pytest.mark.parametrize("seeds", [(1,), (1, 2)])
def test_no_share_has_an_interval_beyond_0_to_100_percent(tmp_path, seeds):
    """In tables, and of claims in percent; two benchmarks with one seed give a share no interval at all."""
    experiment = tiny_of(seeds=list(seeds))
    results = results_of(tmp_path, experiment)
    for name, table in make_tables(results).items():
        ends = tuple(
            f"{share}{end}" for share in ("percent", "in_training", "resampled") for end in ("", "_low", "_high")
        )
        shares = table.frame.columns.intersection(ends)
        for column in shares:
            assert table.frame[column].dropna().between(0, 100).all(), (name, column)
    checked = 0
    for finding in findings(results):
        for outcome in finding.outcomes:
            if outcome.estimate is None or finding.claim.unit not in ("percent", "percent of runs"):
                continue
            if finding.claim.signed:
                continue
            checked += 1
            ends = outcome.estimate.low, outcome.estimate.high
            if len(seeds) == 1 and finding.claim.quantity.kind == "metric":
                assert not outcome.estimate.has_interval
            else:
                assert 0 <= ends[0] <= outcome.estimate.value <= ends[1] <= 100, finding.claim.id
    assert checked == 3
