"""The same runs in measured seconds, which differ by machine."""

from srpo.analysis.results import Results
from srpo.analysis.tables import clocks
from srpo.analysis.tables.table import Table


def table(results: Results) -> Table:
    return clocks.table(results, "The same runs in measured seconds", measured=True)
