"""The same runs under other clocks, as a table."""

from srpo.analysis.clocks import clock_frame, compared_pairs
from srpo.analysis.results import Results
from srpo.analysis.tables.grid import Grid, Row
from srpo.analysis.tables.table import Table, cells_at, grid_of, intervals_note

_DIGITS = dict.fromkeys(["difference", "difference_low", "difference_high"], 1)


def clocks_table(results: Results) -> Table:
    """Differences of methods under every clock that a machine does not change."""
    return _table("clocks", "The same runs under other clocks", results, measured=False)


def measured_clocks_table(results: Results) -> Table:
    """Differences of methods in measured seconds, which differ by machine."""
    return _table("clocks_measured", "The same runs in measured seconds", results, measured=True)


def _table(name: str, title: str, results: Results, measured: bool) -> Table:
    frame, grids = clock_frame(results, measured), []
    for model, spec in results.experiment.models.items():
        here, pairs = frame[frame["model"] == model], compared_pairs(results, model)
        if here["difference"].isna().all():
            continue
        cells = grid_of(here, "clock", ["method", "other"], "difference", sign=True)
        body = [Row(clock, cells_at(cells, clock, pairs)) for clock in dict.fromkeys(here["clock"])]
        heads = [("", " minus ".join(results.method_title(method) for method in pair)) for pair in pairs]
        grids.append(Grid("Clock", heads, body, title=spec.title))
    notes = [
        "Points. Each benchmark is judged at the largest budget that all its runs reach on the clock (on the training "
        "clock, a little more than the last budget of the other tables), by the mean of the last three validations. "
        f" {intervals_note(frame['difference_unit'])}"
    ]
    return Table(name, title, notes if grids else [], frame, _DIGITS, grids)
