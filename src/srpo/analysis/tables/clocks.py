"""The same runs under other clocks: differences of methods under every clock that a machine does not change."""

from srpo.analysis.clocks import clock_frame, compared_pairs
from srpo.analysis.results import MISSING, Results
from srpo.analysis.tables.table import Table, View, cells, intervals_note


def table(results: Results, title: str = "The same runs under other clocks", measured: bool = False) -> Table:
    """A row per clock, a column per pair of methods; ``measured`` as in :func:`clock_frame`."""
    frame, views = clock_frame(results, measured), []
    for model, spec in results.experiment.models.items():
        here, pairs = frame[frame["model"] == model], compared_pairs(results, model)
        if here["difference"].isna().all():
            continue
        texts = cells(here, ["clock", "method", "other"], "difference", sign=True)
        clocks = dict.fromkeys(here["clock"])
        body = [(clock, [texts.get((clock, *pair), MISSING) for pair in pairs]) for clock in clocks]
        heads = [" minus ".join(map(results.method_title, pair)) for pair in pairs]
        views.append(View("Clock", heads, body, spec.title))
    notes = [
        "Points. Each benchmark is judged at the largest budget that all its runs reach on the clock (on the training "
        "clock, a little more than the last budget of the other tables), by the mean of the last three validations. "
        f" {intervals_note(frame)}"
    ]
    digits = dict.fromkeys(["difference", "difference_low", "difference_high"], 1)
    return Table(title, frame, notes if views else [], digits, views)
