"""The same runs under other clocks, recounted from the raw logs by other code."""

import null_experiment
import numpy as np
import pytest
from null_experiment import Null
from report_cases import EXPERIMENT, MODEL, raw_log

from srpo.analysis import clocks
from srpo.analysis.clocks import clock_frame, compared_pairs, recounted
from srpo.analysis.load import load_results
from srpo.analysis.write import make_table

ADDED = {
    "training clock": lambda event: event["step_seconds"],
    "steps": lambda event: 1,
    "generated tokens": lambda event: event["phase_tokens"]["generate"],
    "generation half as dear": lambda event: (
        sum(event["phase_seconds"].values()) - event["phase_seconds"]["generate"] / 2
    ),
    "generation twice as dear": lambda event: sum(event["phase_seconds"].values()) + event["phase_seconds"]["generate"],
    "measured seconds": lambda event: event["wall_seconds"],
}


def expected(root, clock, one, other):
    """The mean over benchmarks of the difference of end scores, with loops over the raw events."""
    differences = []
    for benchmark in ("chemistry", "physics"):
        clocks = {}
        for method in ("grpo", "sdpo", "srpo"):
            total, times = 0.0, {}
            for event in raw_log(root, benchmark, method, "steps"):
                total += ADDED[clock](event)
                times[event["step"]] = total
            clocks[method] = times
        limit = min(max(times.values()) for times in clocks.values())
        ends = {}
        for method in (one, other):
            log = [v for v in raw_log(root, benchmark, method, "validations") if clocks[method][v["step"]] <= limit]
            ends[method] = 100 * np.mean([v["avg_at_k"] for v in log[-3:]])
        differences.append(ends[one] - ends[other])
    return np.mean(differences)


@pytest.mark.parametrize("clock", ADDED)
def test_every_difference_under_every_clock(finished, clock):
    measured = clock == "measured seconds"
    frame = clock_frame(load_results(finished), measured).set_index(["clock", "method", "other"])
    assert frame["benchmarks"].eq(2).all()
    for pair in (("srpo", "grpo"), ("srpo", "sdpo"), ("grpo", "sdpo")):
        assert frame.loc[(clock, *pair), "difference"] == pytest.approx(expected(finished, clock, *pair))


def test_clocks_that_a_machine_changes_are_apart(finished):
    results = load_results(finished)
    assert {*clocks.ADDED, *clocks.GENERATION} == set(ADDED)
    assert set(make_table("clocks", results).frame["clock"]) == set(ADDED) - {"measured seconds"}
    assert set(make_table("clocks_measured", results).frame["clock"]) == {"measured seconds"}
    assert compared_pairs(results, MODEL) == [("srpo", "grpo"), ("srpo", "sdpo"), ("grpo", "sdpo")]


def test_a_runs_own_clock_is_recounted(finished):
    logs = load_results(finished).step_logs
    assert len(logs) == len(list(EXPERIMENT.runs()))
    for steps in logs.values():
        counted = recounted(steps, "training clock")
        assert counted.to_numpy() == pytest.approx(steps["clock"].to_numpy(), rel=1e-6, abs=1e-3)


def test_without_a_modelled_clock_nothing_is_said_of_flops(tmp_path):
    null_experiment.write(tmp_path, Null())
    frame = clock_frame(load_results(tmp_path))
    assert set(frame["clock"]) == {"training clock", "steps", "generated tokens"}
    steps = frame[frame["clock"] == "steps"]
    assert steps["difference"].notna().all()
    assert (steps["difference_low"] < steps["difference"]).all()
    assert set(steps["difference_unit"]) == {"seed and question"}
