"""What the report shows and in which order (``reports/outline.yaml``): for the workflow's outputs and the page."""

from functools import cache
from typing import Literal

from srpo.experiment.config import Experiment
from srpo.ground.files import read_yaml
from srpo.ground.mistakes import validated
from srpo.ground.repository import REPORTS
from srpo.ground.schema import Config

COST_TABLES = ("clocks_measured", "cost")
"""Tables of measured seconds, which differ by machine; the section ``cost`` shows them."""


class Section(Config):
    """A part of the report.

    Attributes:
        tables, figures: names of modules in ``analysis/tables`` and ``analysis/figures``.
        block: the claims that the section shows, by their ``block``.
        open: whether the page shows the section; otherwise it is folded.
        only: the kind of experiment that has it: one with ``tuned`` hyperparameters, or with a measured ``gap``.
    """

    id: str
    title: str
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    block: str | None = None
    open: bool = False
    only: Literal["tuned", "gap"] | None = None


def sections_of(experiment: Experiment, gaps: bool = True) -> tuple[Section, ...]:
    """The sections of an experiment's report; ``gaps``: whether a gap was, or will be, measured."""
    there = {None: True, "tuned": experiment.tuned is not None, "gap": gaps}
    return tuple(section for section in all_sections() if there[section.only])


@cache
def all_sections() -> tuple[Section, ...]:
    """The sections of any experiment's report, in order."""
    return tuple(validated(Section, raw, "reports/outline.yaml") for raw in read_yaml(REPORTS / "outline.yaml"))


def tables_of(experiment: Experiment, gaps: bool = True) -> list[str]:
    return [table for section in sections_of(experiment, gaps) for table in section.tables]


def figures_of(experiment: Experiment) -> list[str]:
    return [figure for section in sections_of(experiment) for figure in section.figures]
