"""Data that are few or odd: one question, scores that are not numbers."""

import json
import math

import pytest
from null_experiment import Null
from null_experiment import write as write_null
from report_cases import EXPERIMENT, report
from synthetic import write_results

from srpo.analysis.results.load import load_results
from srpo.analysis.tables.registry import build_tables
from srpo.errors import SrpoError


def one_question(cell):
    return cell | {"question_scores": cell["question_scores"][:1], "avg_at_k": cell["question_scores"][0]}


def test_one_test_question_gives_a_page(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    for path in [p for p in tmp_path.rglob("*") if "physics" in p.parts]:
        if path.name == "validations.jsonl":
            events = [one_question(json.loads(line)) for line in path.read_text().splitlines()]
            path.write_text("".join(json.dumps(event) + "\n" for event in events))
        elif path.name == "evaluation.json":
            content = json.loads(path.read_text())
            content["budgets"] = {name: one_question(found) for name, found in content["budgets"].items()}
            path.write_text(json.dumps(content))
    assert "Physics" in report(tmp_path)
    table = build_tables(load_results(tmp_path))["table1"].frame.set_index(["method", "benchmark", "budget"])
    assert math.isnan(table.loc[("srpo", "physics", "10h"), "cross_fitted"])
    assert not math.isnan(table.loc[("srpo", "physics", "10h"), "resampled"])
    assert not math.isnan(table.loc[("srpo", "chemistry", "10h"), "cross_fitted"])


def test_a_score_that_is_not_a_number_is_named_as_such(tmp_path):
    made = write_null(tmp_path, Null(seeds=(1,)))
    log = tmp_path / "runs" / next(iter(made.runs())).path / "validations.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    event = json.loads(lines[2])
    event["question_scores"][0] = float("nan")
    log.write_text("".join([*lines[:2], json.dumps(event) + "\n", *lines[3:]]))
    with pytest.raises(SrpoError, match=r"the score of step 6 has a question that is not a number \(NaN\)"):
        load_results(tmp_path)
