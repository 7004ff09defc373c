"""Seconds a step, and what depends on the machine."""

import pytest
from report_cases import EXPERIMENT, MODEL, cell, raw_log, results_of
from synthetic import write_results

from srpo.analysis.figures import step_seconds
from srpo.analysis.load import load_results
from srpo.analysis.write import make_table, write_tables
from srpo.experiment.config import CalibratedClock
from srpo.ground.files import read_events, write_events


def test_tables_do_not_depend_on_the_machine(tmp_path):
    """Other wall times and memory, files written in another order: the same bytes but for cost/."""
    roots = tmp_path / "a", tmp_path / "b"
    for root in roots:
        write_results(root, EXPERIMENT)
    for path in (roots[1] / "runs").rglob("*.json*"):
        path.write_text(path.read_text().replace('"wall_seconds": ', '"wall_seconds": 9'))
    for root in roots:
        write_tables(load_results(root), root / "tables")
    names = sorted(path.name for path in (roots[0] / "tables").iterdir())
    assert names == sorted(path.name for path in (roots[1] / "tables").iterdir())
    for name in names:
        content = (roots[0] / "tables" / name).read_bytes()
        assert content == (roots[1] / "tables" / name).read_bytes()
        assert b"\r" not in content
    assert (roots[0] / "cost/cost.csv").read_bytes() != (roots[1] / "cost/cost.csv").read_bytes()


def test_the_cost_of_a_run_has_the_tokens_of_its_steps(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    paths = {name: tmp_path / f"runs/{MODEL}/chemistry/{name}/seed1/steps.jsonl" for name in ("grpo", "srpo")}
    logs = {name: [*read_events(path)] for name, path in paths.items()}
    for event in logs["grpo"]:
        event["phase_tokens"] = {"generate": 7, "update": 30}
    for event in logs["srpo"]:
        event["phase_tokens"] = {"generate": 10 + event["step"], "teacher": 3}
    logs["srpo"][0]["phase_tokens"] = {"generate": 11}  # no rollout had a sibling
    for name, events in logs.items():
        write_events(paths[name], events)
    table = make_table("cost", load_results(tmp_path))
    rows = table.frame.query(f"model == '{MODEL}' and benchmark == 'chemistry' and seed == 1").set_index("method")
    found, steps = rows[["generated_tokens", "teacher_tokens"]], len(logs["srpo"])
    assert found.loc["grpo"].tolist() == [7 * len(logs["grpo"]), 0]
    assert found.loc["srpo"].tolist() == [10 * steps + steps * (steps + 1) // 2, 3 * (steps - 1)]
    assert "Generated tokens" in str(table.shown[0])


def test_a_calibrated_clock_does_not_confirm_the_papers_step_times(tmp_path):
    """It counts them itself, so the seconds a step are the measured ones."""
    training = EXPERIMENT.training.model_copy(update={"clock": CalibratedClock(kind="calibrated")})
    frame = step_seconds.data(results_of(tmp_path, EXPERIMENT.model_copy(update={"training": training})))
    log = [read_events(path) for path in sorted(tmp_path.glob(f"runs/{MODEL}/*/srpo/seed1/steps.jsonl"))]
    means = []
    for events in map(list, log):
        within = [event["wall_seconds"] for event in events if event["clock"] <= 10]
        means.append(sum(within) / len(within))
    (found,) = frame.loc[(frame["method"] == "srpo") & (frame["budget"] == "5h"), "step_seconds"]
    assert found == pytest.approx(sum(means) / len(means))


def test_seconds_a_step_are_means_of_the_log(finished):
    seconds = []
    for benchmark in ("chemistry", "physics"):
        steps = raw_log(finished, benchmark, "srpo", "steps")
        within = [step["step_seconds"] for step in steps if step["clock"] <= 10]
        seconds.append(sum(within) / len(within))
    row = cell(step_seconds.data(load_results(finished)).to_dict("records"), method="srpo", budget="5h")
    assert row["step_seconds"] == pytest.approx(sum(seconds) / 2)
