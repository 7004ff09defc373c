"""The cost of each run. Wall time and memory depend on the machine and on its load."""

import pandas as pd

from srpo.analysis.results import MISSING, RUN_KEY, Results, records
from srpo.analysis.tables.table import Bold, Table, View, number

_TOKENS = {"phase_tokens/generate": "generated_tokens", "phase_tokens/teacher": "teacher_tokens"}


def table(results: Results) -> Table:
    columns = ["status", "stopped_by", "steps", "clock", "wall_seconds", "evaluation_wall_seconds", "peak_memory_gb"]
    steps = results.steps.reindex(columns=[*RUN_KEY, *_TOKENS]).rename(columns=_TOKENS)
    runs = results.runs[[*RUN_KEY, *columns]].merge(steps.groupby(RUN_KEY, as_index=False).sum(), how="left")
    frame = results.in_order(runs).astype(dict.fromkeys(["steps", *_TOKENS.values()], "Int64"))
    rows: list[tuple[str, list[str]]] = []
    for (model, benchmark), group in frame.groupby(["model", "benchmark"], sort=False):
        rows.append((Bold(results.run_title(model, benchmark)), []))
        for r in records(group):
            texts = [
                r["status"] if pd.isna(r["stopped_by"]) else f"{r['status']} ({r['stopped_by']})",
                *(MISSING if pd.isna(r[count]) else str(r[count]) for count in ("steps", *_TOKENS.values())),
                *(number(r[column]) for column in ("clock", "wall_seconds", "evaluation_wall_seconds")),
                number(r["peak_memory_gb"], 2),
            ]
            rows.append((f"{results.method_title(r['method'])} · seed {r['seed']}", texts))
    heads = ["Status", "Steps", "Generated tokens", "Teacher tokens", "Clock, s"]
    heads += ["Training wall, s", "Evaluation wall, s", "Peak memory, GB"]
    digits = {"clock": 1, "wall_seconds": 1, "evaluation_wall_seconds": 1, "peak_memory_gb": 2}
    notes = [
        "Wall time and memory depend on the machine and on its load. Training alone counts for the "
        "tokens: generated ones include the groups that a method drops, the teacher's include prompts."
    ]
    return Table("Cost of each run", frame, notes, digits, [View("Run", heads, rows)])
