"""Rules that warn of a fall: they compare a run with its own earlier steps.

:data:`RULES` are the rules, as data. :class:`Watch` takes a run's logs event by event, :func:`signals_of` at once;
neither reads a file. Limits that fit every model do not exist: a healthy run of one ends where another breaks.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

Event = Mapping[str, Any]
Level = Literal["warn", "alarm"]

LEVELS: tuple[Level, Level] = ("alarm", "warn")
"""The worse one first."""

STEPS = 5
"""The number of a step is the median of this many steps, so that one odd batch is no signal."""

SHORTEST_WARM_UP = 2
"""A run with a shorter warm-up has the reference of this one."""


def reference_steps(warmup_steps: int) -> range:
    """The own early steps that a run is compared with: from twice to five times its warm-up.

    With the paper's warm-up of 10 these are steps 21 to 50; with the toys' of 5, steps 11 to 25.
    """
    warm_up = max(warmup_steps, SHORTEST_WARM_UP)
    return range(2 * warm_up + 1, 5 * warm_up + 1)


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: its name in logs, tags and tables.
        of: a metric of steps; of a rule against ``best``, a key of validations.
        against: what is judged. The median of the last steps: as a ratio to the median over :func:`reference_steps`
            (``early``) or to the ``least`` since then, or alone (``median``). Of a validation, the points (of 100) that
            it lies under the ``best`` before. Or the ``value`` of one step, which shows a bug and no trend.
        warn, alarm: the level is reached above this limit, and by what is not a number; None: never.
        times: how often in a row, for ``warn`` and for ``alarm``.
    """

    name: str
    of: str
    against: Literal["early", "least", "median", "best", "value"]
    warn: float | None = None
    alarm: float | None = None
    times: tuple[int, int] = (1, 1)


DIVERGENCE = "loss/divergence"
SECONDS = "seconds"
WITHOUT_DISTILLATION = "routing/mini_batches_without_distillation"

RULES = (
    # a model that learns grows sure, in nats per token: what counts is a rise from there
    Rule("entropy", "student/entropy", "least", warn=1.6, alarm=2.5),
    Rule("length", "response_length/mean", "least", warn=1.6, alarm=2.5),
    Rule("format", "format_fraction", "best", warn=1.5, alarm=5, times=(2, 2)),
    Rule("validation", "avg_at_k", "best", warn=5, alarm=10, times=(3, 2)),
    Rule("distillation", WITHOUT_DISTILLATION, "median", warn=0.5),
    Rule("seconds", SECONDS, "early", warn=2, alarm=4),
    # sampler and trainer differ by 0.02 to 0.07 in bfloat16, and by 0.3 to 1 if the sampler lacks weights
    Rule("sampler", "rollout_corr/log_prob_rms", "value", warn=0.15, alarm=0.3),
    Rule("skipped", "actor/skipped_updates", "value", warn=0),
    Rule("divergence", DIVERGENCE, "value", alarm=1e-3),  # with the other sign: a divergence is no less than 0
)


@dataclass(frozen=True)
class Signal:
    """A rule that reached a level for the first time in a run.

    Attributes:
        value: the number; None if it is not finite.
        reference: what it was compared with; None if the rule compares with nothing.
    """

    step: int
    rule: str
    level: Level
    value: float | None
    reference: float | None

    def __str__(self) -> str:
        against = "" if self.reference is None else f" (from {self.reference:.3g})"
        value = "not finite" if self.value is None else f"{self.value:.3g}"
        return f"{self.level} {self.rule} {value}{against} at step {self.step}"

    def event(self) -> dict[str, Any]:
        """Its line in ``watch.jsonl``."""
        return asdict(self)


@dataclass
class Watch:
    """The state of the rules of one run, and its signals so far; it takes events in their order."""

    warmup_steps: int
    signals: list[Signal] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reference = reference_steps(self.warmup_steps)
        self._early: dict[str, list[float]] = {}
        self._last: dict[str, deque[float]] = {}
        self._least: dict[str, float] = {}
        self._best: dict[str, float] = {}
        self._in_a_row: dict[tuple[str, Level], int] = {}

    def add_step(self, event: Event) -> list[Signal]:
        """The signals that a line of ``steps.jsonl`` gives."""
        step, values = event["step"], _step_values(event)
        for name, value in values.items():
            self._last.setdefault(name, deque(maxlen=STEPS)).append(value)
            if step in self._reference:
                self._early.setdefault(name, []).append(value)
        found = []
        for rule in RULES:
            if rule.against == "best" or rule.of not in values:
                continue
            number, last, early = values[rule.of], self._last[rule.of], self._early.get(rule.of)
            if rule.against == "value":
                found += self._judge(rule, step, number, None, -number if rule.of == DIVERGENCE else number)
            elif step >= self._reference.stop and len(last) == STEPS and early:
                number, reference = median(last), median(early)
                if rule.against == "median":
                    found += self._judge(rule, step, number, None, number)
                    continue
                if rule.against == "least":
                    reference = self._least[rule.of] = min(self._least.get(rule.of, reference), number)
                ratio = number / reference if reference else math.nan if number else 1.0
                found += self._judge(rule, step, number, reference, ratio)
        return found

    def add_validation(self, event: Event) -> list[Signal]:
        """The signals that a line of ``validations.jsonl`` gives."""
        found = []
        for rule in RULES:
            if rule.against == "best" and (number := event.get(rule.of)) is not None:
                if (best := self._best.get(rule.of)) is not None:
                    found += self._judge(rule, event["step"], number, best, 100 * (best - number))
                self._best[rule.of] = max(number, self._best.get(rule.of, number))
        return found

    def _judge(self, rule: Rule, step: int, number: float, reference: float | None, judged: float) -> list[Signal]:
        """The signal of the worst level that is reached for the first time, if any."""
        reached: Level | None = None
        for level, limit, times in zip(LEVELS, (rule.alarm, rule.warn), reversed(rule.times), strict=True):
            passed = limit is not None and not judged <= limit  # what is not a number passes
            count = self._in_a_row[rule.name, level] = passed * (self._in_a_row.get((rule.name, level), 0) + 1)
            if reached is None and count >= times:
                reached = level
        known = {signal.level for signal in self.signals if signal.rule == rule.name}
        if reached is None or reached in known or "alarm" in known:
            return []
        signal = Signal(step, rule.name, reached, number if math.isfinite(number) else None, reference)
        self.signals.append(signal)
        return [signal]


def signals_of(steps: Iterable[Event], validations: Iterable[Event], warmup_steps: int) -> list[Signal]:
    return watched(steps, validations, warmup_steps).signals


def watched(steps: Iterable[Event], validations: Iterable[Event], warmup_steps: int) -> Watch:
    """The watch of a run after these lines of its logs."""
    watch, waiting = Watch(warmup_steps), deque(validations)
    for event in steps:
        while waiting and waiting[0]["step"] < event["step"]:
            watch.add_validation(waiting.popleft())
        watch.add_step(event)
    for event in waiting:
        watch.add_validation(event)
    return watch


def _step_values(event: Event) -> dict[str, float]:
    """The numbers of a step; a divergence that the log lacks though the step distilled was not finite."""
    metrics = {name: value for name, value in (event.get("metrics") or {}).items() if value is not None}
    values = {**metrics, SECONDS: sum((event.get("phase_seconds") or {}).values())}
    if metrics.get(WITHOUT_DISTILLATION, 1.0) < 1 and DIVERGENCE not in metrics:
        values[DIVERGENCE] = math.nan
    return values


def summary_of(signals: Iterable[Signal]) -> dict[Level, list[str]]:
    """The rules that reached each level as their worst, alarms first."""
    worst: dict[str, Level] = {}
    for signal in signals:
        if worst.get(signal.rule) != "alarm":
            worst[signal.rule] = signal.level
    return {level: [rule for rule, own in worst.items() if own == level] for level in LEVELS}
