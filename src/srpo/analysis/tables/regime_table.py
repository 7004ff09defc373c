"""The map of regimes as a table."""

from __future__ import annotations

from srpo.analysis.results.load import Results
from srpo.analysis.results.regimes import RIVALS, differences, regime_frame
from srpo.analysis.results.scores import PROTOCOLS, Scores
from srpo.analysis.results.titles import benchmark_title, budgets_listed, count_range, method_title
from srpo.analysis.tables.grid import Cell, Grid, Row
from srpo.analysis.tables.table import Table, comparability, intervals_note, record_cell
from srpo.text import plural


def regime_table(results: Results) -> Table:
    """A row a point of the map: the base model, the start of SRPO's training, GRPO, and SRPO minus its rivals."""
    frame = regime_frame(results)
    budgets = list(results.experiment.training.budget_seconds)
    records = {(r["model"], r["benchmark"], r["quantity"], r["budget"]): r for r in frame.to_dict("records")}
    rivals = [name for name in RIVALS if f"srpo-{name}" in set(frame["quantity"])]
    body = []
    for model in dict.fromkeys(frame["model"]):
        body.append(Row(results.experiment.models[model].title, heading=True))
        for benchmark in dict.fromkeys(frame.loc[frame["model"] == model, "benchmark"]):
            body.append(Row(benchmark_title(results, benchmark), _cells(records, model, benchmark, rivals, budgets)))
    heads = [
        ("", "Seeds"),
        ("Untrained", "score"),
        ("First tenth of SRPO's training", "routed to SDPO, %"),
        ("First tenth of SRPO's training", "tokens a response"),
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
    """How many of so many differences with an interval would have it on one side of 0 if there were none."""
    return (
        f"Of {plural(number, 'difference')} about {0.05 * number:.0f} would have an interval beside 0 by chance alone."
    )


def _cells(records: dict, model: str, benchmark: str, rivals: list[str], budgets: list[str]) -> list[Cell]:
    def record(quantity: str, budget: str = "") -> dict:
        return records[model, benchmark, quantity, budget]

    cells = [Cell(count_range(record(f"srpo-{name}", budgets[-1])["seeds"] for name in rivals))]
    cells += [record_cell(record(name), "value") for name in ("base", "routed", "length")]
    cells += [record_cell(record(name, budgets[-1]), "value") for name in (*rivals, "srpo")]
    for name in rivals:
        for budget in budgets:
            found = record(f"srpo-{name}", budget)
            cell = record_cell(found, "value", sign=True)
            cells.append(Cell(cell.text, found["value_low"] > 0, found["value_high"] < 0, interval=cell.interval))
    return cells
