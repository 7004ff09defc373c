"""The training clock, and the best validation within a budget."""

import signal
import subprocess
import sys
import time

import pytest

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import CalibratedClock, ModelledClock, WallClock
from srpo.experiment.step_times import seconds_of_steps, steps_in_seconds
from srpo.ground import machine
from srpo.ground.repository import CONFIGS
from srpo.training.clock import PhaseTimer, best_within, seconds_of_step

METHODS = load_experiment(CONFIGS / "experiments" / "paper.yaml").methods
CALIBRATED = CalibratedClock(kind="calibrated")


def test_modelled_seconds_of_the_phases():
    clock = ModelledClock(kind="modelled", decode_flops_per_second=10e6, dense_flops_per_second=100e6)
    phases = PhaseTimer()
    phases.count("generate", tokens=3, dense_flops=200e6, decode_flops=50e6)
    phases.count("update", tokens=4, dense_flops=100e6)
    phases.count("update", tokens=5, dense_flops=500e6)
    with phases.measure("reward"):
        pass
    assert phases.seconds(clock) == {"generate": 7.0, "reward": 0.0, "log_prob": 0.0, "teacher": 0.0, "update": 6.0}
    assert phases.tokens == {"generate": 3, "update": 9}


def test_the_wall_clock_is_what_was_measured(monkeypatch):
    machine.standstill()  # its thread has a clock of its own
    ticks = iter([1.0, 3.5, 10.0, 10.25])
    monkeypatch.setattr("srpo.training.clock.time.perf_counter", lambda: next(ticks))
    phases = PhaseTimer()
    for _ in range(2):
        with phases.measure("teacher"):
            pass
    for clock in (WallClock(kind="wall"), CALIBRATED):
        seconds = phases.seconds(clock)
        assert seconds["teacher"] == 2.75
        assert sum(seconds.values()) == 2.75
    assert seconds_of_step(WallClock(kind="wall"), METHODS["srpo"], 7, seconds) == 2.75


STOPPED = """
import time
from srpo.ground import machine
from srpo.training.clock import PhaseTimer
machine.STILL_SECONDS = 1.0
phases = PhaseTimer()
with phases.measure("update"):
    end = time.perf_counter() + 3
    print(flush=True)
    while time.perf_counter() < end:
        time.sleep(0.01)
print(phases.wall["update"])
"""


def test_a_process_that_was_stopped_did_not_train_meanwhile():
    """Ctrl-Z for two of three seconds: they were on the clock, and the run had half of its steps."""
    process = subprocess.Popen([sys.executable, "-c", STOPPED], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.send_signal(signal.SIGSTOP)
    time.sleep(2.2)
    process.send_signal(signal.SIGCONT)
    assert float(process.communicate(timeout=60)[0]) < 1.5


@pytest.mark.parametrize(
    ("method", "steps"),
    [
        ("grpo", [50, 218, 393]),
        ("sdpo", [41, 214, 430]),
        ("srpo", [43, 229, 474]),
        ("srpo_without_weighting", [43, 229, 474]),
        ("advantage_mix", [41, 214, 430]),
    ],
)
def test_a_calibrated_budget_is_the_papers_number_of_steps(method, steps):
    """Figure 4b by hand: 3600 s / 71.0 s = 50.7 steps, 18000 / 82.4 = 218.4, ...; whatever was measured."""
    clock, counts = 0.0, dict.fromkeys((3600, 18000, 36000), 0)
    for step in range(1, 600):
        clock += seconds_of_step(CALIBRATED, METHODS[method], step, {"generate": 1e9 * step})
        for seconds in counts:
            counts[seconds] += clock <= seconds
    assert list(counts.values()) == steps


def test_seconds_of_steps_by_hand():
    means = {1: 72.0, 2: 90.0}  # 50 steps in the first hour, 30 in the second
    found = [seconds_of_steps(means, steps) for steps in (0, 1, 50, 51, 80, 90)]
    assert found == pytest.approx([0, 72, 3600, 3720, 7200, 8400])
    assert [steps_in_seconds(means, seconds) for seconds in found] == pytest.approx([0, 1, 50, 51, 80, 90])


def test_step_seconds_that_are_no_clock():
    with pytest.raises(ValueError, match="more hours must be more steps"):
        CalibratedClock(kind="calibrated", step_seconds={k: {1: 70.0, 2: 140.0} for k in ("grpo", "sdpo", "srpo")})


def validations(*rows: tuple[int, float, float]) -> list[dict]:
    return [{"step": step, "clock": clock, "avg_at_k": score} for step, clock, score in rows]


def test_best_within_a_budget_by_hand():
    log = validations((5, 1.0, 0.3), (10, 2.0, 0.5), (15, 3.0, 0.4), (20, 4.0, 0.6))
    found = [best_within(log, seconds) for seconds in (0.99, 1.0, 2.5, 3.0, 4.0, 99)]
    assert [best and best["step"] for best in found] == [None, 5, 10, 10, 20, 20]


def test_the_earliest_of_equals_is_best():
    log = validations((5, 1.0, 0.5), (10, 2.0, 0.5), (15, 3.0, 0.5))
    assert best_within(log, 10)["step"] == 5
    assert best_within(log[::-1], 10)["step"] == 5


def test_the_untrained_model_is_no_candidate():
    assert best_within(validations((0, 0.0, 0.9)), 10) is None
    assert best_within(validations((0, 0.0, 0.9), (5, 1.0, 0.1)), 10)["step"] == 5
    assert best_within([], 10) is None
