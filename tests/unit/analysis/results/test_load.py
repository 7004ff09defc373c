"""Reading results: what is there is read once, what is not there is missing, what is broken is named."""

import json

import pytest
from report_cases import EXPERIMENT, results_of
from synthetic import write_results

from srpo.analysis.load import load_results
from srpo.analysis.report import remarks
from srpo.ground.errors import SrpoError


def test_reads_every_run_and_flattens_its_steps(tmp_path):
    results = results_of(tmp_path)
    assert results.experiment == EXPERIMENT
    assert list(results.runs["status"]) == ["finished"] * 6
    first = json.loads((tmp_path / "runs/miniature-tiny/chemistry/grpo/seed1/steps.jsonl").open().readline())
    row = results.steps.iloc[0]
    assert row["phase_seconds/update"] == first["phase_seconds"]["update"]
    assert row["routing/correct_fraction"] == first["metrics"]["routing/correct_fraction"]
    assert set(results.samples["question"]) == {0, 1, 2}
    assert set(results.samples["sample"]) == {0}


def test_a_metric_that_does_not_apply_is_missing(tmp_path):
    steps = results_of(tmp_path).steps
    assert steps.loc[steps["method"] == "grpo", "teacher/entropy"].isna().all()
    assert steps.loc[steps["method"] == "sdpo", "teacher/entropy"].notna().all()


def test_runs_that_wait_for_a_longer_budget_are_not_finished(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    path = tmp_path / "experiment.yaml"
    path.write_text(path.read_text().replace("  max_steps:", "    30h: 1000000\n  max_steps:"))
    results = load_results(tmp_path)
    assert [*results.runs["status"]] == ["in progress"] * 6
    assert not any("ended before" in remark for remark in remarks(results))


def test_steps_repeated_after_a_resume_replace_the_lost_ones(tmp_path):
    write_results(tmp_path, EXPERIMENT, keep=lambda run: run.method == "grpo")
    path = tmp_path / "runs/miniature-tiny/physics/grpo/seed1/steps.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for name in ("summary.json", "evaluation.json"):  # it has not finished
        path.with_name(name).unlink()
    again = [event | {"clock": event["clock"] + 100} for event in events[2:5]]
    path.write_text("".join(json.dumps(event) + "\n" for event in [*events[:8], *again]) + '{"step": 6, "cl')
    steps = load_results(tmp_path).steps.query("benchmark == 'physics'")
    assert list(steps["step"]) == [1, 2, 3, 4, 5]
    assert list(steps["clock"] > 100) == [False, False, True, True, True]


def test_files_of_another_run_or_of_no_step_are_named(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    folder = tmp_path / "runs/miniature-tiny/physics"
    (folder / "sdpo/seed1/evaluation.json").write_bytes((folder / "grpo/seed1/evaluation.json").read_bytes())
    with pytest.raises(SrpoError, match=r"sdpo/seed1/evaluation\.json: of another run, .*'method': 'grpo'"):
        load_results(tmp_path)
    steps = folder / "grpo/seed1/steps.jsonl"
    steps.write_text("".join(steps.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(SrpoError, match=r"grpo/seed1/steps\.jsonl: not those of the run's 25 steps; restore it"):
        load_results(tmp_path)


@pytest.mark.parametrize("others", [False, True])
def test_validations_of_another_run_or_a_part_of_them_are_named(tmp_path, others):
    write_results(tmp_path, EXPERIMENT)
    log = tmp_path / "runs/miniature-tiny/physics/grpo/seed1/validations.jsonl"
    lines = (log.parents[2] / "sdpo" / "seed1" / log.name if others else log).read_text().splitlines(keepends=True)
    log.write_text("".join(lines if others else lines[:-1]))
    with pytest.raises(SrpoError, match=r"grpo/seed1/validations\.jsonl: not those of the run's 25 steps"):
        load_results(tmp_path)


def test_budgets_may_be_null(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    folder = tmp_path / "runs/miniature-tiny/physics/sdpo/seed1"
    for name in ("summary.json", "evaluation.json"):
        content = json.loads((folder / name).read_text())
        content["budgets"]["1h"] = None
        (folder / name).write_text(json.dumps(content))
    results = load_results(tmp_path)
    assert len(results.evaluations.query("benchmark == 'physics' and method == 'sdpo'")) == 2


@pytest.mark.parametrize("name", ["summary.json", "validations.jsonl", "run.yaml"])
def test_a_broken_file_is_named(tmp_path, name):
    write_results(tmp_path, EXPERIMENT)
    path = tmp_path / "runs/miniature-tiny/chemistry/srpo/seed1" / name
    path.write_text("{not: [valid\n")
    with pytest.raises(SrpoError, match=name):
        load_results(tmp_path)


@pytest.mark.parametrize(
    ("spoilt", "line", "message"),
    [
        ('"question_scores": [', '"other_scores": [', "the score of step 15 has no question_scores"),
        ('"question_scores": [', '"question_scores": [1.2, ', "the score of step 15 has a question outside 0 to 1"),
        ('"question_scores": [', '"question_scores": [NaN, ', "the score of step 15 has a question outside 0 to 1"),
        ('"avg_at_k": 0', '"avg_at_k": 1', "the score of step 15: avg_at_k is not 0"),
        ("{", "{broken", r"validations\.jsonl, line 3: not JSON"),
    ],
)
def test_a_score_that_is_none_is_named(tmp_path, spoilt, line, message):
    """Of the third validation, which is the one of step 15."""
    write_results(tmp_path, EXPERIMENT)
    path = tmp_path / "runs/miniature-tiny/chemistry/srpo/seed1/validations.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], lines[2].replace(spoilt, line, 1), *lines[3:]]))
    with pytest.raises(SrpoError, match=message):
        load_results(tmp_path)
