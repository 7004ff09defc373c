"""Step times that others published of the paper's steps on the paper's card, beside those of figure 4b."""

import csv
from dataclasses import dataclass
from typing import cast

from srpo.experiment.step_times import TimedMethod, paper_step_seconds
from srpo.repository import REFERENCE

STEP_SECONDS = REFERENCE / "step_seconds.csv"


@dataclass(frozen=True)
class PublishedSteps:
    """A published run of one method on 8 H20.

    Attributes:
        source: whose.
        method: of figure 4b.
        seconds: mean per step.
        paper: the same of figure 4b, up to its longest budget.
    """

    source: str
    method: TimedMethod
    seconds: float
    paper: float

    @property
    def pace(self) -> float:
        """How many times as long as the paper's step it took."""
        return self.seconds / self.paper


def published_steps() -> list[PublishedSteps]:
    """All of them, from the shortest to the longest in terms of the paper's."""
    figure, found = paper_step_seconds(), []
    with STEP_SECONDS.open(newline="") as file:
        for row in csv.DictReader(file):
            method = cast(TimedMethod, row["method"])
            seconds = 3600 * float(row["hours"]) / float(row["steps"])
            found.append(PublishedSteps(row["source"], method, seconds, figure[method][max(figure[method])]))
    return sorted(found, key=lambda steps: steps.pace)
