"""The training clock: what a second is, and what a run achieved within a budget.

It counts generation, reward, log-prob, teacher and update; start-up, validation and checkpoints are not
training (section 4.2).
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from srpo.config import Clock

PHASES = ("generate", "reward", "log_prob", "teacher", "update")


@dataclass(frozen=True)
class ModelCost:
    """What a forward pass of a decoder-only transformer costs.

    Attributes:
        matmul_parameters: weights that every token is multiplied with, the output head included, a pure
            embedding lookup excluded.
        attention_width: layers x heads x head dimension.
    """

    matmul_parameters: int
    attention_width: int

    def forward_flops(self, lengths: Iterable[int]) -> float:
        """FLOPs of scoring sequences: 2 N per token and 4 W per token and attended position."""
        return float(sum(2 * self.matmul_parameters * n + 2 * self.attention_width * n * (n + 1) for n in lengths))

    def decode_flops(self, prompt_lengths: Sequence[int], response_lengths: Sequence[int]) -> float:
        """FLOPs of generating responses behind prompts whose keys and values are cached."""
        totals = [p + r for p, r in zip(prompt_lengths, response_lengths, strict=True)]
        return self.forward_flops(totals) - self.forward_flops(prompt_lengths)


def modelled_seconds(clock: Clock, decode_flops: float, dense_flops: float) -> float:
    """Seconds that FLOPs take at the clock's nominal rates."""
    return decode_flops / clock.decode_flops_per_second + dense_flops / clock.dense_flops_per_second


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


class Phases:
    """What one step spent in each phase: measured seconds, tokens and FLOPs; ``current`` is the latest phase."""

    def __init__(self) -> None:
        self.wall = dict.fromkeys(PHASES, 0.0)
        self.current = PHASES[0]
        self.tokens: dict[str, int] = {}
        self._decode_flops = dict.fromkeys(PHASES, 0.0)
        self._dense_flops = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def measure(self, phase: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        self.current = phase
        start = time.perf_counter()
        yield
        self.wall[phase] += time.perf_counter() - start

    def count(self, phase: str, tokens: int, dense_flops: float, decode_flops: float = 0.0) -> None:
        """Add work to a phase."""
        self.tokens[phase] = self.tokens.get(phase, 0) + tokens
        self._dense_flops[phase] += dense_flops
        self._decode_flops[phase] += decode_flops

    def seconds(self, clock: Clock) -> dict[str, float]:
        """Seconds of the training clock by phase."""
        if clock.kind == "wall":
            return dict(self.wall)
        return {p: modelled_seconds(clock, self._decode_flops[p], self._dense_flops[p]) for p in PHASES}
