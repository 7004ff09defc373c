"""Table 4: the number of questions of each split, and the paper's where the experiment may be compared with it."""

import pandas as pd

from srpo.analysis.paper import paper_splits
from srpo.analysis.results import MISSING, Results
from srpo.analysis.tables.table import Table, View, comparability, number


def table(results: Results) -> Table:
    rows = []
    for name in results.experiment.benchmarks:
        statistics = results.statistics.get(name, {})
        for split in ("train", "test"):
            rows.append((name, statistics.get("kind"), split, statistics.get("rows", {}).get(split)))
    frame = pd.DataFrame(rows, columns=["benchmark", "kind", "split", "rows"]).astype({"rows": "Int64"})
    if results.experiment.comparable_with_paper:
        frame = frame.merge(paper_splits(), how="left").astype({"paper": "Int64"})
    counts_of = frame.set_index(["benchmark", "split"])

    def texts(name: str) -> list[str]:
        statistics = results.statistics.get(name, {})
        lengths = statistics.get("prompt_characters", {})
        values = [column for column in ("rows", "paper") if column in frame]
        counts = [counts_of[value][name, split] for value in values for split in ("train", "test")]
        source = statistics.get("source", {}).get("repository") or statistics.get("kind", MISSING)
        shown = [MISSING if pd.isna(count) else f"{count:,}" for count in counts]
        guess = statistics.get("most_frequent_answer", {}).get("test")
        guessed = number(None if guess is None else 100 * guess, 1)
        return [source, *shown, *(number(lengths.get(key), 0) for key in ("mean", "max")), guessed]

    heads = ["Source", "Train", "Test", *(["Train (paper)", "Test (paper)"] if "paper" in frame else [])]
    heads += ["Prompt characters, mean", "max", "Most frequent answer, % of test"]
    body = [(results.benchmark_title(name), texts(name)) for name in results.experiment.benchmarks]
    title = "Questions (the paper's table 4)"
    return Table(title, frame, comparability(results), views=[View("Benchmark", heads, body)])
