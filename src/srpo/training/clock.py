"""The training clock, and the best validation within a budget.

The clock counts generation, reward, log-prob, teacher and update. Start-up, validation and checkpoints do not count;
the paper does not say what counts (docs/paper.md). The kinds of clock are in ``srpo.experiment.config``.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from srpo.algorithm.method import Method
from srpo.experiment.config import CalibratedClock, Clock, ModelledClock
from srpo.experiment.flops import modelled_seconds
from srpo.experiment.step_times import seconds_of_steps, timed_like
from srpo.ground.machine import standstill

PHASES = ("generate", "reward", "log_prob", "teacher", "update")


def best_within(validations: Iterable[Mapping[str, Any]], seconds: float) -> Mapping[str, Any] | None:
    """The validation with the highest avg@k whose clock is within a budget; the earliest of equals.

    The untrained model (step 0) is not a candidate. None if no validation fell within the budget.
    """
    candidates = [v for v in validations if v["step"] > 0 and v["clock"] <= seconds]
    return max(candidates, key=lambda v: (v["avg_at_k"], -v["step"]), default=None)


def best_of_budgets(
    validations: Sequence[Mapping[str, Any]], budgets: Mapping[str, float]
) -> dict[str, Mapping[str, Any] | None]:
    """:func:`best_within` for every budget, by label."""
    return {label: best_within(validations, seconds) for label, seconds in budgets.items()}


class PhaseTimer:
    """Measured seconds, tokens and FLOPs of each phase of a step; ``current`` is the latest phase."""

    def __init__(self) -> None:
        self.wall = dict.fromkeys(PHASES, 0.0)
        self.current = PHASES[0]
        self.tokens: dict[str, int] = {}
        self._decode_flops = dict.fromkeys(PHASES, 0.0)
        self._dense_flops = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        self.current = phase
        still, start = standstill().seconds, time.perf_counter()
        yield
        elapsed = time.perf_counter() - start
        self.wall[phase] += elapsed - (standstill().seconds - still)

    def count(self, phase: str, tokens: int, dense_flops: float, decode_flops: float = 0.0) -> None:
        self.tokens[phase] = self.tokens.get(phase, 0) + tokens
        self._dense_flops[phase] += dense_flops
        self._decode_flops[phase] += decode_flops

    def dense_flops(self, phase: str) -> float:
        """FLOPs of a phase, without decoding."""
        return self._dense_flops[phase]

    def seconds(self, clock: Clock) -> dict[str, float]:
        """Seconds by phase: modelled by a modelled clock, measured otherwise."""
        if isinstance(clock, ModelledClock):
            return {p: modelled_seconds(clock, self._decode_flops[p], self._dense_flops[p]) for p in PHASES}
        return dict(self.wall)


def seconds_of_step(clock: Clock, method: Method, step: int, phase_seconds: Mapping[str, float]) -> float:
    """What step number ``step`` adds to the training clock: its phases' seconds, or what the paper's took."""
    if isinstance(clock, CalibratedClock):
        means = clock.step_seconds[timed_like(method, step)]
        return seconds_of_steps(means, step) - seconds_of_steps(means, step - 1)
    return sum(phase_seconds.values())
