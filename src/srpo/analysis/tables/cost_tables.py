"""The cost of training: seconds per step on the training clock, and the wall time and memory of each run."""

import pandas as pd

from srpo.analysis.results.load import RUN_KEY, Results, records
from srpo.analysis.results.matrix import in_matrix_order, planned
from srpo.analysis.results.paper import paper_figure_4b
from srpo.analysis.results.step_seconds import SECONDS, step_seconds
from srpo.analysis.results.titles import MISSING, count_range, method_title, run_title, seconds_per_step
from srpo.analysis.tables.grid import Cell, Grid, Row, number
from srpo.analysis.tables.table import Table, cells_at, comparability, grid_of, intervals_note


def step_seconds_table(results: Results) -> Table:
    """The numbers of figure 4b: mean seconds per step up to each budget."""
    frame = step_seconds(results)
    if results.experiment.comparable_with_paper:
        frame = frame.merge(paper_figure_4b(results.experiment), how="left")
    frame = in_matrix_order(frame, results)
    budgets = list(results.experiment.training.budget_seconds)
    views = {"step_seconds": "Measured", "paper": "Published"} if "paper" in frame else {"step_seconds": ""}
    keys = ["model", "method"]
    grids = [grid_of(frame, keys, "budget", view, digits=3) for view in views]
    counts = frame.groupby(keys)["benchmarks"].agg(count_range)
    rows = []
    for model, spec in results.experiment.models.items():
        rows.append(Row(spec.title, heading=True))
        for method in planned(results, model):
            key = (model, method)
            cells = [cell for view in grids for cell in cells_at(view, key, budgets)]
            rows.append(Row(method_title(results, method), [Cell(counts.get(key, MISSING)), *cells]))
    heads = [
        (head, f"up to {results.experiment.budget_title(budget)}") for head in views.values() for budget in budgets
    ]
    grid = Grid("Method", [("", "Benchmarks"), *heads], rows)
    notes = [
        f"{seconds_per_step(results)}, averaged over the benchmarks on "
        "which every method of the model has reached the budget or its step limit. "
        f"{intervals_note(frame['step_seconds_unit'])}",
        *comparability(results),
    ]
    digits = dict.fromkeys([*SECONDS, "step_seconds_low", "step_seconds_high"], 4) | {"paper": 1}
    return Table("step_seconds", "Mean seconds per training step", notes, frame, digits, [grid])


_TOKENS = {"phase_tokens/generate": "generated_tokens", "phase_tokens/teacher": "teacher_tokens"}


def cost_table(results: Results) -> Table:
    """The cost of each run. Wall time and memory depend on the machine and on its load."""
    columns = ["status", "stopped_by", "steps", "clock", "wall_seconds", "evaluation_wall_seconds", "peak_memory_gb"]
    steps = results.steps.reindex(columns=[*RUN_KEY, *_TOKENS]).rename(columns=_TOKENS)
    runs = results.runs[[*RUN_KEY, *columns]].merge(steps.groupby(RUN_KEY, as_index=False).sum(), how="left")
    frame = in_matrix_order(runs, results).astype(dict.fromkeys(["steps", *_TOKENS.values()], "Int64"))
    rows = []
    for (model, benchmark), group in frame.groupby(["model", "benchmark"], sort=False):
        rows.append(Row(run_title(results, model, benchmark), heading=True))
        for r in records(group):
            texts = [
                r["status"] if pd.isna(r["stopped_by"]) else f"{r['status']} ({r['stopped_by']})",
                *(MISSING if pd.isna(r[count]) else str(r[count]) for count in ("steps", *_TOKENS.values())),
                *(number(r[column]) for column in ("clock", "wall_seconds", "evaluation_wall_seconds")),
                number(r["peak_memory_gb"], 2),
            ]
            rows.append(Row(f"{method_title(results, r['method'])} · seed {r['seed']}", [*map(Cell, texts)]))
    heads = ["Status", "Steps", "Generated tokens", "Teacher tokens", "Clock, s"]
    heads += ["Training wall, s", "Evaluation wall, s", "Peak memory, GB"]
    digits = {"clock": 1, "wall_seconds": 1, "evaluation_wall_seconds": 1, "peak_memory_gb": 2}
    notes = [
        "Wall time and memory depend on the machine and on its load. Training alone counts for the "
        "tokens: generated ones include the groups that a method drops, the teacher's include prompts."
    ]
    return Table("cost", "Cost of each run", notes, frame, digits, [Grid("Run", [("", head) for head in heads], rows)])
