"""Table 5: one question of each benchmark with its right answer."""

import pandas as pd

from srpo.analysis.results import MISSING, Results
from srpo.analysis.tables.table import Table, View
from srpo.ground.text import printable
from srpo.questions.rewards import shown_answer

EXCERPT = 400
"""Maximum number of characters of a question that a reader sees."""


def table(results: Results) -> Table:
    rows = []
    for name, benchmark in results.experiment.benchmarks.items():
        example = results.statistics.get(name, {}).get("example", {})
        answer = shown_answer(benchmark.reward, example["answer"]) if example else None
        rows.append((name, example.get("prompt"), answer))
    frame = pd.DataFrame(rows, columns=["benchmark", "question", "answer"])
    body = [
        (results.benchmark_title(name), [printable(" ".join((text or MISSING).split()), EXCERPT) for text in texts])
        for name, *texts in rows
    ]
    note = "The first question of each benchmark, as the model reads it, without the chat template."
    views = [View("Benchmark", ["Question (excerpt)", "Right answer"], body, numeric=False)]
    return Table("One question of each benchmark (the paper's table 5)", frame, [note], views=views)
