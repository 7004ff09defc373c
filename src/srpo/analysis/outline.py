"""The report's sections (``reports/outline.yaml``): one list for the workflow's outputs and the page's layout."""

from functools import cache
from typing import Literal

import yaml

from srpo.experiment.config import Experiment
from srpo.repository import REPORTS
from srpo.schema import Config

Block = Literal["primary", "questions", "mechanism", "time", "ablations"]
"""A part of the report that shows claims."""


class Section(Config):
    """A part of the report.

    Attributes:
        block: the claims that the section shows, by their ``block``.
        open: whether the page shows the section; otherwise it is folded.
        only: the kind of experiment that has it: one with ``tuned`` hyperparameters, or with a measured ``gap``.
    """

    id: str
    title: str
    tables: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    block: Block | None = None
    open: bool = False
    only: Literal["tuned", "gap"] | None = None

    @property
    def template(self) -> str | None:
        """The section's own template, if it has one."""
        name = f"sections/{self.id}.html.j2"
        return name if (REPORTS / name).is_file() else None


def sections_of(experiment: Experiment, gaps: bool = True) -> tuple[Section, ...]:
    """The sections of an experiment's report.

    Args:
        gaps: whether a gap was, or will be, measured.
    """
    there = {None: True, "tuned": experiment.tuned is not None, "gap": gaps}
    return tuple(section for section in all_sections() if there[section.only])


@cache
def all_sections() -> tuple[Section, ...]:
    """The sections of any experiment's report, in order."""
    return tuple(Section.model_validate(raw) for raw in yaml.safe_load((REPORTS / "outline.yaml").read_text()))


COST_TABLES = ("clocks_measured", "cost")
"""Tables of measured seconds, which differ by machine; the section ``cost`` shows them."""


def tables_of(experiment: Experiment, gaps: bool = True) -> list[str]:
    return [table for section in sections_of(experiment, gaps) for table in section.tables]


def figures_of(experiment: Experiment) -> list[str]:
    return [figure for section in sections_of(experiment) for figure in section.figures]
