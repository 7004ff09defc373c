"""The questions: their number (table 4)."""

import pandas as pd

from srpo.analysis.paper import paper_splits
from srpo.analysis.results import MISSING, Results
from srpo.analysis.tables.grid import number, text_grid
from srpo.analysis.tables.table import Table, comparability


def splits_table(results: Results) -> Table:
    """Rows of each split, and the paper's where the experiment may be compared with it."""
    rows = []
    for name in results.experiment.benchmarks:
        statistics = results.statistics.get(name, {})
        for split in ("train", "test"):
            rows.append((name, statistics.get("kind"), split, statistics.get("rows", {}).get(split)))
    frame = pd.DataFrame(rows, columns=["benchmark", "kind", "split", "rows"]).astype({"rows": "Int64"})
    if results.experiment.comparable_with_paper:
        frame = frame.merge(paper_splits(), how="left").astype({"paper": "Int64"})
    values = [column for column in ("rows", "paper") if column in frame]
    lookup = frame.set_index(["benchmark", "split"])

    def texts(name: str) -> list[str]:
        statistics = results.statistics.get(name, {})
        lengths = statistics.get("prompt_characters", {})
        counts = [lookup[value][name, split] for value in values for split in ("train", "test")]
        source = statistics.get("source", {}).get("repository") or statistics.get("kind", MISSING)
        shown = [MISSING if pd.isna(count) else f"{count:,}" for count in counts]
        guess = statistics.get("most_frequent_answer", {}).get("test")
        guessed = number(None if guess is None else 100 * guess, 1)
        return [source, *shown, *(number(lengths.get(key), 0) for key in ("mean", "max")), guessed]

    heads = ["Source", "Train", "Test", *(["Train (paper)", "Test (paper)"] if "paper" in frame else [])]
    heads += ["Prompt characters, mean", "max", "Most frequent answer, % of test"]
    body = [(results.benchmark_title(name), texts(name)) for name in results.experiment.benchmarks]
    grid = text_grid("Benchmark", heads, body)
    return Table("table4", "Questions (the paper's table 4)", comparability(results), frame, {}, [grid])
