"""The map of regimes as a table."""

from srpo.analysis.results.load import Results
from srpo.analysis.results.regimes import RIVALS, differences, regime_frame
from srpo.analysis.results.scores import PROTOCOLS, Scores
from srpo.analysis.results.titles import MISSING, benchmark_title, budgets_listed, count_range, method_title
from srpo.analysis.tables.grid import Cell, Grid, Row
from srpo.analysis.tables.table import Table, cells_at, comparability, grid_of, intervals_note
from srpo.text import plural


def regime_table(results: Results) -> Table:
    """A row a point of the map: the base model, the start of SRPO's training, GRPO, and SRPO minus its rivals."""
    frame = regime_frame(results)
    budgets = list(results.experiment.training.budget_seconds)
    rivals = [name for name in RIVALS if f"srpo-{name}" in set(frame["quantity"])]
    rows, columns, compared = ["model", "benchmark"], ["quantity", "budget"], differences(frame)
    cells = grid_of(frame.drop(compared.index), rows, columns, "value")
    cells = cells.join(grid_of(compared, rows, columns, "value", sign=True, sided=True))
    shown = [("base", ""), ("routed", ""), ("length", ""), *((name, budgets[-1]) for name in (*rivals, "srpo"))]
    shown += [(f"srpo-{name}", budget) for name in rivals for budget in budgets]
    seeds = compared[compared["budget"] == budgets[-1]].groupby(rows)["seeds"].agg(count_range)
    body = []
    for model, points in frame.groupby("model", sort=False):
        body.append(Row(results.experiment.models[str(model)].title, heading=True))
        for benchmark in points["benchmark"].unique():
            point = (model, benchmark)
            label = benchmark_title(results, benchmark)
            body.append(Row(label, [Cell(seeds.get(point, MISSING)), *cells_at(cells, point, shown)]))
    heads = [
        ("", "Seeds"),
        ("Untrained", "score"),
        ("First tenth of SRPO's training", "routed to SDPO, %"),
        ("First tenth of SRPO's training", "tokens per response"),
        *((f"Score at {budgets[-1]}", method_title(results, name)) for name in (*rivals, "srpo")),
        *((f"SRPO minus {method_title(results, name)}", budget) for name in rivals for budget in budgets),
    ]
    notes = [
        f"Scores in percent ({PROTOCOLS[Scores.of(results).protocol]}), differences in points. Budgets: "
        f"{budgets_listed(results)}. Green: the interval lies above 0; red italics: below 0. "
        f"{chance_note(differences(frame)['value_low'].notna().sum())} {intervals_note(frame['value_unit'])}",
        *comparability(results),
    ]
    grids = [Grid("Point", heads, body)] if body else []
    digits = dict.fromkeys(["value", "value_low", "value_high"], 1)
    return Table("regimes", "Where SRPO is ahead", notes if body else [], frame, digits, grids)


def chance_note(number: int) -> str:
    """How many of this number of differences with an interval would have it on one side of 0 if none were real."""
    return (
        f"Of {plural(number, 'difference')} about {0.05 * number:.0f} would have an interval beside 0 by chance alone."
    )
