"""How long a training step took in the paper: figure 4b, which the plan and the calibrated clock count by."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from srpo.algorithm.branches import trained
from srpo.repository import REFERENCE

if TYPE_CHECKING:
    from srpo.config import Method

STEP_SECONDS = REFERENCE / "fig4b_step_seconds.csv"

TIMED_METHODS = ("grpo", "sdpo", "srpo")
"""The methods of figure 4b."""


def paper_step_seconds() -> dict[str, dict[float, float]]:
    """Figure 4b (Qwen3-8B, 8 H20): by method and hours of training, the mean seconds a step up to then."""
    seconds: dict[str, dict[float, float]] = {}
    with STEP_SECONDS.open(newline="") as file:
        for row in csv.DictReader(file):
            seconds.setdefault(row["method"], {})[float(row["budget_hours"])] = float(row["seconds_per_step"])
    return seconds


def timed_like(method: Method | None) -> str:
    """The method of figure 4b whose passes a method shares; the untrained model's is GRPO."""
    if method is None or not method.routing.needs_teacher:
        return "grpo"
    every = all(branch.uses_teacher for branch in trained(method.routing.branches))
    return "sdpo" if every else "srpo"


def seconds_of_steps(mean_seconds: Mapping[float, float], steps: int) -> float:
    """Seconds that a number of steps takes.

    Args:
        mean_seconds: by hours of training, the mean seconds a step up to then, as in figure 4b. ``h`` hours are
            ``3600 h / mean`` steps; seconds are linear in the steps between these points and after the last.
        steps: how many, from the first.
    """
    points = [(0.0, 0.0), *((3600 * hours / mean, 3600 * hours) for hours, mean in sorted(mean_seconds.items()))]
    for (first, start), (last, end) in pairwise(points):  # noqa: B007  the last stretch goes on
        if steps <= last:
            break
    return start + (steps - first) * (end - start) / (last - first)
