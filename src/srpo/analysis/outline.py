"""The report's sections (``reports/outline.yaml``): one list for the workflow's outputs and the page's layout."""

from collections.abc import Iterable
from functools import cache
from typing import Literal, TypeVar

from srpo.experiment.config import Experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_yaml
from srpo.ground.mistakes import validated
from srpo.ground.repository import REPORTS
from srpo.ground.schema import Config

T = TypeVar("T")
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
    return tuple(
        validated(Section, raw, f"reports/outline.yaml: {raw.get('id', number) if isinstance(raw, dict) else number}")
        for number, raw in enumerate(read_yaml(REPORTS / "outline.yaml"), 1)
    )


def by_name(kind: str, entries: Iterable[tuple[str, T]]) -> dict[str, T]:
    """The entries of a registry of figures or tables.

    Raises:
        SrpoError: if two have one name: their files would be, too.
    """
    found: dict[str, T] = {}
    for name, entry in entries:
        if found.setdefault(name, entry) is not entry:
            raise SrpoError(f"{kind} {name}: registered twice; give another name")
    return found


def returned(what: str, value: object, kind: type[T]) -> T:
    """What a function of a figure or table returned.

    Raises:
        SrpoError: if it is of another type.
    """
    if not isinstance(value, kind):
        raise SrpoError(f"{what} is a {type(value).__name__}; return a {kind.__name__}")
    return value


COST_TABLES = ("clocks_measured", "cost")
"""Tables of measured seconds, which differ by machine; the section ``cost`` shows them."""


def tables_of(experiment: Experiment, gaps: bool = True) -> list[str]:
    return [table for section in sections_of(experiment, gaps) for table in section.tables]


def figures_of(experiment: Experiment) -> list[str]:
    return [figure for section in sections_of(experiment) for figure in section.figures]
