"""The watch for falls: every rule on logs made by hand, those that trip it and those that do not."""

import json
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest

from srpo.training.watch import (
    RULES,
    STEPS,
    Signal,
    reference_steps,
    signals_of,
    summary_of,
    watched,
)

WARM_UP = 10  # the reference is steps 21 to 50
LAST = 80
Values = Mapping[str, Callable[[int], float | None]]

HEALTHY: Values = {
    "student/entropy": lambda step: 0.5 + 0.05 * (step % 3),
    "response_length/mean": lambda step: 300 - step,
    "reward/mean": lambda step: 0.7,
    "routing/mini_batches_without_distillation": lambda step: 0.0 if step % 3 else 1.0,
    "loss/divergence": lambda step: 0.01 if step % 3 else None,
    "seconds": lambda step: 40.0 + step % 2,
    "avg_at_k": lambda step: 0.65 + 0.001 * (step % 10),
    "format_fraction": lambda step: 0.99,
}


def logs(changes: Values | None = None, last: int = LAST) -> tuple[list[dict], list[dict]]:
    """The logs of a healthy run with these changes; a validation every five steps."""
    values = {**HEALTHY, **(changes or {})}
    steps, validations = [], []
    for step in range(1, last + 1):
        found: dict[str, Any] = {name: of(step) for name, of in values.items()}
        there = {name: value for name, value in found.items() if value is not None}
        phases = {"generate": there["seconds"] / 2, "update": there["seconds"] / 2}
        metrics = {name: value for name, value in there.items() if "/" in name}
        steps.append({"step": step, "phase_seconds": phases, "metrics": metrics})
        if step % 5 == 0:
            score = {name: there[name] for name in ("avg_at_k", "format_fraction") if name in there}
            validations.append({"step": step, **score})
    return steps, validations


def found(changes: Values | None = None, last: int = LAST, warm_up: int = WARM_UP) -> dict[tuple[str, str], Signal]:
    """The signals by rule and level."""
    signals = signals_of(*logs(changes, last), warm_up)
    assert len({(signal.rule, signal.level) for signal in signals}) == len(signals)
    return {(signal.rule, signal.level): signal for signal in signals}


def from_step(start: int, then: float, before: float) -> Callable[[int], float]:
    return lambda step: then if step >= start else before


def test_a_healthy_run_has_no_signal():
    assert found() == {}
    assert {rule.name for rule in RULES} == {rule for rule, *_ in TRIPPED}, "every rule has logs that trip it"


@pytest.mark.parametrize(("warm_up", "first", "last"), [(10, 21, 50), (5, 11, 25), (2, 5, 10), (1, 5, 10), (0, 5, 10)])
def test_the_reference_follows_the_warm_up(warm_up, first, last):
    steps = reference_steps(warm_up)
    assert (steps[0], steps[-1]) == (first, last)


# the median of five steps passes a limit in the third step after a change
TRIPPED: list[tuple[str, str, Values, int, float, float | None]] = [
    ("entropy", "warn", {"student/entropy": from_step(60, 0.85, 0.5)}, 62, 0.85, 0.5),
    ("entropy", "alarm", {"student/entropy": from_step(60, 1.3, 0.5)}, 62, 1.3, 0.5),
    # 0.5 in the reference, 0.2 after it, then 1.7 times that
    ("entropy", "warn", {"student/entropy": lambda s: 0.5 if s <= 50 else 0.2 if s < 70 else 0.34}, 72, 0.34, 0.2),
    ("length", "warn", {"response_length/mean": from_step(60, 500, 300)}, 62, 500, 300),
    ("length", "alarm", {"response_length/mean": from_step(60, 800, 300)}, 62, 800, 300),
    # 300 in the reference, 250 after it, then 1.64 times that
    ("length", "warn", {"response_length/mean": lambda s: 300 if s <= 50 else 250 if s < 70 else 410}, 72, 410, 250),
    ("format", "warn", {"format_fraction": from_step(60, 0.98, 0.999)}, 65, 0.98, 0.999),
    ("format", "alarm", {"format_fraction": from_step(60, 0.9, 0.999)}, 65, 0.9, 0.999),
    ("validation", "warn", {"avg_at_k": from_step(60, 0.64, 0.7)}, 70, 0.64, 0.7),
    ("validation", "alarm", {"avg_at_k": from_step(60, 0.59, 0.7)}, 65, 0.59, 0.7),
    ("distillation", "warn", {"routing/mini_batches_without_distillation": from_step(60, 0.75, 0)}, 62, 0.75, None),
    ("seconds", "warn", {"seconds": from_step(60, 90, 40)}, 62, 90, 40),
    ("seconds", "alarm", {"seconds": from_step(60, 170, 40)}, 62, 170, 40),
    ("sampler", "warn", {"rollout_corr/log_prob_rms": from_step(3, 0.2, 0.05)}, 3, 0.2, None),
    ("sampler", "alarm", {"rollout_corr/log_prob_rms": from_step(2, 0.36, 0.05)}, 2, 0.36, None),
    ("skipped", "warn", {"actor/skipped_updates": lambda step: float(step == 7)}, 7, 1, None),
    ("divergence", "alarm", {"loss/divergence": from_step(2, -0.002, 0.01)}, 2, -0.002, None),
]


@pytest.mark.parametrize(("rule", "level", "changes", "step", "value", "reference"), TRIPPED, ids=range(len(TRIPPED)))
def test_a_rule_is_tripped_at_its_step_with_its_number(rule, level, changes, step, value, reference):
    signal = found(changes)[rule, level]
    assert signal.step == step
    assert (signal.value, signal.reference) == (pytest.approx(value), reference and pytest.approx(reference))


@pytest.mark.parametrize(
    "changes",
    [
        {"student/entropy": lambda step: 0.5 - 0.45 * step / LAST},  # a model that learns grows sure
        {"student/entropy": from_step(60, 0.79, 0.5)},
        {"student/entropy": lambda step: 9.0 if step in (60, 70) else 0.5},  # single batches
        {"student/entropy": lambda step: 0.05 if step < 20 else 0.5},  # before the reference
        {"response_length/mean": from_step(60, 470, 300)},
        # a healthy model that thinks less: 693 to 167 tokens (OLMo-3-7B, SDPO)
        {"response_length/mean": lambda step: 693 - 526 * step / LAST},
        {"response_length/mean": from_step(60, 17, 330)},  # answers without reasoning: their score did not fall
        {"format_fraction": from_step(60, 0.985, 0.999)},
        {"format_fraction": lambda step: 0.96 if step == 60 else 0.999},  # one validation
        {"format_fraction": lambda step: min(0.4 + step / 100, 1.0)},  # a model that learns the format
        {"reward/mean": from_step(60, 0.95, 0.7)},  # better on the training questions
        {"avg_at_k": lambda step: 0.6 if step in (55, 60, 70, 75) else 0.66},  # never three times in a row
        {"avg_at_k": lambda step: 0.5 if step == 60 else 0.66},
        {"routing/mini_batches_without_distillation": from_step(60, 0.5, 0), "loss/divergence": lambda step: 0.01},
        {
            "routing/mini_batches_without_distillation": lambda step: 1.0 if step < 40 else 0.25,
            "loss/divergence": lambda step: 0.01,
        },
        {"seconds": from_step(60, 80, 41)},
        {"seconds": lambda step: 400 if step == 1 else 40.0},  # the first step compiles kernels
        {"loss/divergence": lambda step: -1e-7},  # rounding
        {"rollout_corr/log_prob_rms": lambda step: 0.07},  # a real model in bfloat16
    ],
    ids=range(19),
)
def test_what_is_within_the_limits_trips_nothing(changes):
    assert found(changes) == {}


def test_a_run_shorter_than_its_reference_has_no_signal_of_steps():
    assert found({"student/entropy": from_step(30, 9, 0.5)}, last=40) == {}
    # the same fall, of validations, needs no reference
    assert ("validation", "alarm") in found({"avg_at_k": from_step(30, 0.1, 0.6)}, last=40)
    # a shorter warm-up has an earlier reference
    assert ("entropy", "alarm") in found({"student/entropy": from_step(30, 9, 0.5)}, last=40, warm_up=5)


def test_a_divergence_that_is_missing_though_the_step_distilled_was_not_finite():
    changes = {"loss/divergence": lambda step: None if step == 13 else 0.01}
    (signal,) = found({**changes, "routing/mini_batches_without_distillation": lambda step: 0.0}).values()
    assert signal == Signal(13, "divergence", "alarm", None, None)
    assert str(signal) == "alarm divergence not finite at step 13"
    assert json.loads(json.dumps(signal.event(), allow_nan=False))["value"] is None
    # nothing to distil, or a log of an older version: nothing to say
    for share in (1.0, None):
        signals = found({**changes, "routing/mini_batches_without_distillation": lambda step, share=share: share})
        assert ("divergence", "alarm") not in signals


def test_a_log_of_an_older_version_is_judged_by_what_it_has():
    gone = dict.fromkeys(["student/entropy", "routing/mini_batches_without_distillation", "format_fraction"])
    absent: Values = {name: lambda step: None for name in gone}
    assert found(absent) == {}
    assert found({**absent, "avg_at_k": from_step(60, 0.1, 0.6)}).keys() >= {("validation", "alarm")}


def test_a_warning_comes_before_an_alarm_and_never_after():
    signals = signals_of(*logs({"student/entropy": lambda step: 0.5 * 1.1 ** max(0, step - 55)}), WARM_UP)
    assert [(signal.rule, signal.level) for signal in signals] == [("entropy", "warn"), ("entropy", "alarm")]
    assert summary_of(signals) == {"alarm": ["entropy"], "warn": []}
    back = signals_of(*logs({"student/entropy": lambda step: 1.7 if step > 60 else 0.5}), WARM_UP)
    assert [(signal.rule, signal.level) for signal in back] == [("entropy", "alarm")]


def test_event_by_event_is_the_same_as_at_once_and_as_a_resumed_run():
    rising = lambda step: 0.5 * 1.1 ** max(0, step - 55)  # noqa: E731
    changes = {"student/entropy": rising, "avg_at_k": from_step(70, 0.5, 0.65)}
    steps, validations = logs(changes)
    whole = signals_of(steps, validations, WARM_UP)
    assert len(whole) >= 3
    for cut in range(0, LAST + 1, 7):
        watch = watched(steps[:cut], [v for v in validations if v["step"] <= cut], WARM_UP)
        for event in steps[cut:]:
            watch.add_step(event)
            for validation in (v for v in validations if v["step"] == event["step"]):
                watch.add_validation(validation)
        assert watch.signals == whole


# ---------------------------------------------------------------- runs of others, from the numbers that they published


def through(*points: tuple[int, float]) -> Callable[[int], float]:
    """A number that is linear between published points."""

    def at(step: int) -> float:
        for (left, low), (right, high) in pairwise(points):
            if left <= step <= right:
                return low + (high - low) * (step - left) / (right - left)
        return points[-1][1] if step > points[-1][0] else points[0][1]

    return at


def test_an_entropy_that_rises_is_seen_two_hundred_steps_before_the_fall():
    entropy = through((1, 0.51), (100, 0.79), (150, 0.75), (200, 1.21), (250, 1.48), (300, 3.14), (400, 7.26))
    signals = found({"student/entropy": entropy, "response_length/mean": lambda step: 300}, last=450)
    assert signals["entropy", "warn"].step < 220
    assert signals["entropy", "alarm"].step < 290
    assert signals.keys() == {("entropy", "warn"), ("entropy", "alarm")}


def test_a_length_explosion_is_seen():
    length = through((1, 448), (121, 251), (201, 312), (241, 1431), (252, 1734))
    entropy = through((1, 0.515), (121, 0.338), (201, 0.259), (241, 0.066), (252, 0.053))
    signals = found({"response_length/mean": length, "student/entropy": entropy}, last=252)
    assert signals["length", "warn"].step < 215
    assert signals["length", "alarm"].step < 225
    assert {rule for rule, _ in signals} == {"length"}


def test_a_loss_of_the_format_is_seen_ten_steps_before_the_fall():
    share = through((1, 0.9994), (350, 0.9994), (390, 0.9789), (400, 0.7911), (420, 0.6577), (445, 0.1057))
    signals = found({"format_fraction": share, "response_length/mean": lambda step: 300}, last=445)
    assert signals["format", "warn"].step <= 390
    assert signals["format", "alarm"].step <= 400


def test_numbers_that_are_zero_are_compared_without_an_error():
    assert found({"student/entropy": lambda step: 0.0}) == {}
    assert ("entropy", "alarm") in found({"student/entropy": from_step(60, 0.5, 0.0)})
    assert found({"student/entropy": from_step(60, 0.0, 0.5)}) == {}
    assert all((rule.warn, rule.alarm) != (None, None) for rule in RULES)
    assert STEPS % 2 == 1
