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
class Limits:
    """A level is reached if the number is below ``low`` or above ``high``, or not a number, ``times`` in a row."""

    low: float = -math.inf
    high: float = math.inf
    times: int = 1

    def passed(self, number: float) -> bool:
        """Whether a number is outside; one that is not a number always is."""
        return not self.low <= number <= self.high


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        name: its name in logs, tags and tables.
        what: the number that it watches, in words.
        of: where the number is: a metric of steps, or ``validation/`` and a key of validations.
        against: what the number is compared with: the median over :func:`reference_steps`, the ``least`` since then,
            the ``best`` before, or nothing.
        by: how: ``ratio`` of the two, their difference in ``points`` (of 100), or the ``value`` alone.
        warn, alarm: outside of these limits; None: never.
    """

    name: str
    what: str
    of: str
    against: Literal["early", "least", "best", "nothing"]
    by: Literal["ratio", "points", "value"]
    warn: Limits | None = None
    alarm: Limits | None = None

    @property
    def of_validations(self) -> bool:
        return self.of.startswith(VALIDATION)

    @property
    def limits(self) -> dict[Level, Limits]:
        """By level, the worse one first."""
        both: dict[Level, Limits | None] = {"alarm": self.alarm, "warn": self.warn}
        return {level: limits for level, limits in both.items() if limits is not None}


VALIDATION = "validation/"
DIVERGENCE = "loss/divergence"
SAMPLER = "rollout_corr/log_prob_rms"
SECONDS = "seconds"
SKIPPED_UPDATES = "actor/skipped_updates"
WITHOUT_DISTILLATION = "routing/mini_batches_without_distillation"

RULES = (
    Rule(
        "entropy",
        "student's entropy per token, nats",
        of="student/entropy",
        against="least",  # a model that learns grows sure: what counts is a rise from there
        by="ratio",
        warn=Limits(high=1.6),
        alarm=Limits(high=2.5),
    ),
    Rule(
        "length",
        "response length, tokens",
        of="response_length/mean",
        against="least",
        by="ratio",
        warn=Limits(high=1.6),
        alarm=Limits(high=2.5),
    ),
    Rule(
        "format",
        "validation's responses in the answer's format, share",
        of="validation/format_fraction",
        against="best",
        by="points",
        warn=Limits(low=-1.5, times=2),
        alarm=Limits(low=-5, times=2),
    ),
    Rule(
        "validation",
        "validation's avg@k under its best",
        of="validation/avg_at_k",
        against="best",
        by="points",
        warn=Limits(low=-5, times=3),
        alarm=Limits(low=-10, times=2),
    ),
    Rule(
        "distillation",
        "mini-batches without a distilled token, share",
        of=WITHOUT_DISTILLATION,
        against="nothing",
        by="value",
        warn=Limits(high=0.5),
    ),
    Rule(
        "seconds",
        "seconds per step",
        of=SECONDS,
        against="early",
        by="ratio",
        warn=Limits(high=2),
        alarm=Limits(high=4),
    ),
    Rule(
        "sampler",
        "log-prob of sampler and trainer, RMS difference",
        of=SAMPLER,
        against="nothing",
        by="value",
        warn=Limits(high=0.15),  # bfloat16 gives 0.02 to 0.07
        alarm=Limits(high=0.3),  # weights that the sampler lacks give 0.3 to 1
    ),
    Rule("skipped", "skipped updates", of=SKIPPED_UPDATES, against="nothing", by="value", warn=Limits(high=0)),
    Rule("divergence", "divergence", of=DIVERGENCE, against="nothing", by="value", alarm=Limits(low=-1e-3)),
)
"""All rules."""


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
    """The state of the rules of one run; it takes events in their order.

    Attributes:
        warmup_steps: ``training.warmup_steps``.
        signals: all so far.
    """

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
            if rule.of_validations or rule.of not in values:
                continue
            if rule.of in {DIVERGENCE, SAMPLER, SKIPPED_UPDATES}:  # a bug, not a trend
                found += self._judge(rule, step, values[rule.of], None)
                continue
            last = self._last[rule.of]
            if step < self._reference.stop or len(last) < STEPS or not (early := self._early.get(rule.of)):
                continue
            number = median(last)
            reference = median(early) if rule.against == "early" else None
            if rule.against == "least":
                reference = self._least[rule.of] = min(self._least.get(rule.of, median(early)), number)
            found += self._judge(rule, step, number, reference)
        return found

    def add_validation(self, event: Event) -> list[Signal]:
        """The signals that a line of ``validations.jsonl`` gives."""
        found = []
        values = {rule.of: event.get(rule.of.removeprefix(VALIDATION)) for rule in RULES if rule.of_validations}
        numbers = {name: value for name, value in values.items() if value is not None}
        for rule in (rule for rule in RULES if rule.of in numbers):
            if (best := self._best.get(rule.of)) is not None:
                found += self._judge(rule, event["step"], numbers[rule.of], best)
        for name, number in numbers.items():
            self._best[name] = max(number, self._best.get(name, number))
        return found

    def _judge(self, rule: Rule, step: int, number: float, reference: float | None) -> list[Signal]:
        """The signal of the worst level that is reached for the first time, if any."""
        compared = number
        if reference is not None and rule.by == "ratio":
            compared = number / reference if reference else math.nan if number else 1.0
        elif reference is not None and rule.by == "points":
            compared = 100 * (number - reference)
        reached: Level | None = None
        for level, limits in rule.limits.items():
            passed = limits.passed(compared)
            count = self._in_a_row[rule.name, level] = passed * (self._in_a_row.get((rule.name, level), 0) + 1)
            if reached is None and count >= limits.times:
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
    levels: tuple[Level, ...] = ("alarm", "warn")
    return {level: [rule for rule, own in worst.items() if own == level] for level in levels}
