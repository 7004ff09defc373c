"""SRPO minus every other method, on each benchmark and on average."""

from typing import Any

import pandas as pd

from srpo.analysis.results import AVERAGE, SCORE_KEY, SCORE_TITLES, Results, estimate_columns
from srpo.analysis.statistics.contrasts import available
from srpo.analysis.tables.table import Table, View, cells, intervals_note


def table(results: Results) -> Table:
    rows: list[dict[str, Any]] = []
    views, budgets = [], list(results.budget_seconds)
    for model, spec in results.experiment.models.items():
        others = [method for method in results.plans[model] if method != "srpo"]
        shared = {other: results.benchmarks(model, ("srpo", other)) for other in others}
        shown = [b for b in results.experiment.benchmarks if any(b in there for there in shared.values())]
        if "srpo" not in results.plans[model] or not others:
            continue
        # as in table 1
        places = [(b, budget) for b in [*([AVERAGE] if len(shown) > 1 else []), *shown] for budget in budgets]
        for other in others:
            for benchmark, budget in places:
                terms = {("srpo", budget): 1.0, (other, budget): -1.0}
                over = shared[other] if benchmark == AVERAGE else [benchmark]
                over = available(results.of(model, results.deciding), terms, over)
                key = dict(zip(SCORE_KEY, (model, other, benchmark, budget), strict=True))
                found = estimate_columns("difference", results.estimate(model, terms, over))
                rows.append({**key, "benchmarks": len(over), **found})
        texts = cells(pd.DataFrame(rows), SCORE_KEY, "difference", sign=True)
        body = [
            (f"SRPO minus {results.method_title(other)}", [texts[model, other, *place] for place in places])
            for other in others
        ]
        heads = [(results.benchmark_title(b), results.experiment.budget_title(budget)) for b, budget in places]
        views.append(View("", heads, body, spec.title))
    names = [*SCORE_KEY, "benchmarks", *estimate_columns("difference", None)]
    frame = results.in_order(pd.DataFrame(rows, columns=names))
    notes = [
        f"Points ({SCORE_TITLES[results.deciding]}), on the same questions. Averages are over the benchmarks that "
        "have both scores. Where two methods are above 95 %, their difference is small whatever the methods do. "
        f"Intervals are not corrected for their number. {intervals_note(frame)}"
    ]
    digits = dict.fromkeys(["difference", "difference_low", "difference_high"], 1)
    return Table("SRPO minus the other methods", frame, notes if views else [], digits, views)
