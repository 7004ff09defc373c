"""What others measured, beside this experiment's numbers and the paper's."""

from typing import Any

import pandas as pd

from srpo.analysis.results.load import Results, records
from srpo.analysis.results.matrix import AVERAGE, BASE
from srpo.analysis.results.paper import paper_scores
from srpo.analysis.results.reproductions import NUMBERS, averages, reproductions_for
from srpo.analysis.results.scores import Scores
from srpo.analysis.results.titles import benchmark_title, method_title
from srpo.analysis.tables.grid import Cell, Grid, Row, number
from srpo.analysis.tables.table import Table

_OURS, _PAPER = "this experiment", "the paper"
_SERIES = ["source", "reference", "run", "method", "when", "steps", "paper_method", "learning_rate", "updates_per_step"]
_COLUMNS = ["model", *_SERIES, "benchmark", "score", "seeds", "collapse", "caveat"]


def reproductions_table(results: Results) -> Table:
    """In-training maxima of this experiment, the paper and independent groups; an average has all five benchmarks."""
    experiment = results.experiment
    others = reproductions_for(experiment)
    parts = [_ours(results), _papers(results), others] if len(others) else [others]
    texts = {name: "" for name in _COLUMNS if name not in NUMBERS}
    frame = pd.concat([part.reindex(columns=_COLUMNS).astype(NUMBERS) for part in parts], ignore_index=True)
    frame = frame.fillna(texts)
    names = [name for name in (AVERAGE, *experiment.benchmarks) if name in set(frame["benchmark"])]
    heads = ["Run", "Score", "Learning rate", "Updates per step", *(benchmark_title(results, name) for name in names)]
    grids = []
    for model, spec in experiment.models.items():
        rows: list[Row] = []
        of_model = frame[frame["model"] == model]
        for (source, reference), reported in of_model.groupby(["source", "reference"], sort=False):
            rows.append(Row(f"{source} ({reference})" if reference else str(source), heading=True))
            for key, series in reported.groupby(_SERIES, sort=False, dropna=False):
                scores = series.set_index("benchmark")["score"]
                label, *settings = _described(dict(zip(_SERIES, key, strict=True)), results)
                values = [number(scores[name]) if name in scores else "" for name in names]
                rows.append(Row(label, [Cell(text) for text in (*settings, *values)]))
        if rows:
            grids.append(Grid("Method", [("", head) for head in heads], rows, title=spec.title))
    notes = [
        "Percent. A budget or best: the best validation of a run on the test questions (the paper's protocol). The "
        "untrained model's score is not selected. Numbers of this experiment are means over seeds. We have not "
        "repeated the runs of others. Compare methods within a source: steps, learning rates, updates per step and "
        "prompts differ between sources. The CSV has the caveats.",
    ]
    title = "Independent numbers on the paper's benchmarks"
    return Table("reproductions", title, notes if grids else [], frame, {"score": 2}, grids)


def _ours(results: Results) -> pd.DataFrame:
    """This experiment's scores, like the published ones."""
    training = results.experiment.training
    runs = Scores.of(results).runs.rename(columns={"budget": "when"})
    names = ["model", "benchmark", "method", "when"]
    trained = runs.groupby(names, sort=False)["in_training"].agg(score="mean", seeds="count").reset_index()
    rows: list[dict[str, Any]] = []
    for base in records(results.bases):
        score = 100 * base["question_scores"].mean()
        rows.append({name: base[name] for name in ("model", "benchmark", "method")} | {"when": BASE, "score": score})
    for row in records(trained[trained["seeds"] > 0]):
        method = results.experiment.methods[row["method"]]
        updates = training.questions_per_batch // method.mini_batch_questions
        rows.append(row | {"learning_rate": method.learning_rate, "updates_per_step": updates})
    frame = pd.DataFrame(rows, columns=_COLUMNS).assign(source=_OURS, reference="", run="")
    return pd.concat([averages(frame), frame], ignore_index=True)


def _papers(results: Results) -> pd.DataFrame:
    """The paper's scores of the methods that this experiment or others have, like the published ones."""
    scores = paper_scores(results.experiment).rename(columns={"paper": "score", "budget": "when"})
    shown = scores["method"].isin([*_TITLES, *results.experiment.methods])
    return scores[shown].assign(source=_PAPER, reference="arXiv:2604.02288")


_TITLES = {BASE: "Base", "grpo": "GRPO", "sdpo": "SDPO", "srpo": "SRPO"}
"""Methods that others have measured."""


def _described(series: dict[str, Any], results: Results) -> list[str]:
    """A row's method, run, which score it is, learning rate and updates per step."""
    name, when, steps = series["method"], series["when"], series["steps"]
    title = method_title(results, name) if name in results.experiment.methods else _TITLES[name]
    if series["paper_method"] == "no":
        title += " (not the paper's)"
    if when == BASE:
        when = ""
    elif when in ("best", "last") and not pd.isna(steps):
        when += f" of {steps} steps"
    rate, updates = series["learning_rate"], series["updates_per_step"]
    return [
        title,
        series["run"],
        when,
        "" if pd.isna(rate) else f"{rate:.0e}",
        "" if pd.isna(updates) else str(updates),
    ]
