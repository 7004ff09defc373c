"""Runs that ended below the untrained model or far below their best, by benchmark."""

import pandas as pd

from srpo.analysis.numbers import CLEAR, DROP, ENDS
from srpo.analysis.results import AVERAGE, MISSING, Results, records
from srpo.analysis.tables.table import Bold, Table, View, interval
from srpo.analysis.verdicts import share_of


def table(results: Results) -> Table:
    frame = results.in_order(_counts(results))
    shown = [b for b in (AVERAGE, *results.experiment.benchmarks) if b in set(frame["benchmark"])]
    texts = {(row["model"], row["method"], row["benchmark"]): _share(row) for row in records(frame)}
    body: list[tuple[str, list[str]]] = []
    for model, of_model in frame.groupby("model", sort=False):
        body.append((Bold(results.experiment.models[str(model)].title), []))
        for method in of_model["method"].unique():
            found = [texts.get((str(model), method, benchmark), MISSING) for benchmark in shown]
            body.append((results.method_title(method), found))
    heads = ["All benchmarks" if b == AVERAGE else results.benchmark_title(b) for b in shown]
    notes = [
        f"Finished runs whose last 3 validations lie below the untrained model, or more than {DROP:g} points "
        f"below their best 3 in a row. One half of the questions selects the best, the other half measures it. "
        f"Clear: by more than {CLEAR:g} standard errors over the test questions; noise alone makes some of the others. "
        "In brackets the exact 95 % interval of the share in percent (Clopper and Pearson); runs of one base model "
        "count as many as they are alike, at least as one."
    ]
    digits = dict.fromkeys(["percent", "percent_low", "percent_high"], 1)
    views = [View("Method", heads, body)] if body else []
    return Table("Runs that collapsed", frame, notes if body else [], digits, views)


def _counts(results: Results) -> pd.DataFrame:
    """Runs, and how many ended as each of :data:`ENDS` says, by method and benchmark, and over all benchmarks."""
    rows, ends = [], results.run_ends
    several = [len(results.plans[run["model"]][run["method"]]) > 1 for run in records(ends)]
    parts = pd.concat([ends, ends[several].assign(benchmark=AVERAGE)])
    for place, part in parts.groupby(["model", "method", "benchmark"], sort=False):
        share = share_of(part, "collapsed")
        rows.append([*place, share.runs, *part[ENDS].sum(), share.value, share.low, share.high])
    names = ["model", "method", "benchmark", "runs", *ENDS]
    return pd.DataFrame(rows, columns=[*names, "percent", "percent_low", "percent_high"])


def _share(row: dict) -> str:
    ends = interval(row["percent_low"], row["percent_high"], digits=0)
    clear = f", {row['clear']} clear" if row["clear"] < row["collapsed"] else ""
    return f"{row['collapsed']} of {row['runs']}{clear} {ends}".strip()
