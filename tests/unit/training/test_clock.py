"""The training clock, and the best validation within a budget."""

from __future__ import annotations

from srpo.config import Clock
from srpo.training.clock import PhaseTimer, best_of_budgets, best_within


def test_modelled_seconds_of_the_phases():
    clock = Clock(kind="modelled", decode_flops_per_second=10, dense_flops_per_second=100)
    phases = PhaseTimer()
    phases.count("generate", tokens=3, dense_flops=200, decode_flops=50)
    phases.count("update", tokens=4, dense_flops=100)
    phases.count("update", tokens=5, dense_flops=500)
    with phases.measure("reward"):
        pass
    assert phases.seconds(clock) == {"generate": 7.0, "reward": 0.0, "log_prob": 0.0, "teacher": 0.0, "update": 6.0}
    assert phases.tokens == {"generate": 3, "update": 9}


def test_the_wall_clock_is_what_was_measured(monkeypatch):
    ticks = iter([1.0, 3.5, 10.0, 10.25])
    monkeypatch.setattr("srpo.training.clock.time.perf_counter", lambda: next(ticks))
    phases = PhaseTimer()
    for _ in range(2):
        with phases.measure("teacher"):
            pass
    seconds = phases.seconds(Clock(kind="wall"))
    assert seconds["teacher"] == 2.75
    assert sum(seconds.values()) == 2.75


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


def test_best_of_each_budget():
    best = best_of_budgets(validations((5, 1.5, 0.3), (10, 4.0, 0.2)), {"1h": 1, "5h": 5})
    assert best["1h"] is None
    assert best["5h"]["step"] == 5
