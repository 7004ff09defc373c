"""How long a training step took in the paper: figure 4b, which the plan and the calibrated clock use."""

import csv
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal, cast

from srpo.algorithm.branches import trained_branches
from srpo.algorithm.method import Method
from srpo.ground.repository import REFERENCE

FIGURE_4B = REFERENCE / "fig4b_step_seconds.csv"

TimedMethod = Literal["grpo", "sdpo", "srpo"]
"""A method of figure 4b."""


def paper_step_seconds() -> dict[TimedMethod, dict[float, float]]:
    """Figure 4b (Qwen3-8B, 8 H20): by method and hours of training, the mean seconds per step up to then."""
    seconds: dict[TimedMethod, dict[float, float]] = {}
    with FIGURE_4B.open(newline="") as file:
        for row in csv.DictReader(file):
            seconds.setdefault(cast(TimedMethod, row["method"]), {})[float(row["budget_hours"])] = float(
                row["seconds_per_step"]
            )
    return seconds


def timed_like(method: Method | None, step: int = 1) -> TimedMethod:
    """The method of figure 4b whose passes a method shares at a step; the untrained model's is GRPO."""
    routing = None if method is None else method.at(step).routing
    if routing is None or not routing.needs_teacher:
        return "grpo"
    every = all(branch.uses_teacher for branch in trained_branches(routing.branches))
    return "sdpo" if every else "srpo"


def seconds_of_steps(mean_seconds: Mapping[float, float], steps: float) -> float:
    """Seconds that a number of steps takes.

    Args:
        mean_seconds: by hours of training, the mean seconds per step up to then, as in figure 4b. ``h`` hours are
            ``3600 h / mean`` steps; seconds are linear in the steps between these points and after the last.
        steps: how many, from the first.
    """
    return _interpolated([(3600 * hours / mean, 3600 * hours) for hours, mean in sorted(mean_seconds.items())], steps)


def steps_in_seconds(mean_seconds: Mapping[float, float], seconds: float) -> float:
    """Steps that a number of seconds is enough for: the inverse of :func:`seconds_of_steps`."""
    return _interpolated([(3600 * hours, 3600 * hours / mean) for hours, mean in sorted(mean_seconds.items())], seconds)


def _interpolated(points: Sequence[tuple[float, float]], x: float) -> float:
    """y at ``x``, linear from (0, 0) through points of increasing x. After the last point the last slope continues."""
    stretches = [*pairwise([(0.0, 0.0), *points])]
    (left, low), (right, high) = next((stretch for stretch in stretches if x <= stretch[1][0]), stretches[-1])
    return low + (x - left) * (high - low) / (right - left)
