"""What a search of hyperparameters has found: the best trial of each method, as a file that experiments read.

A trial's score is avg@k on the questions that were held out from the train split: the highest validation within each
budget, as in table 1, averaged over budgets, benchmarks, models and seeds.
"""

from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from srpo.experiment.config import Experiment, TrialResult, Tuned
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_json, write_text
from srpo.ground.layout import Layout, RunId

HEADER = """\
# Written by srpo tune from results/{search}: the best of {number} trials of each method. An experiment with the key
# `tuned` and this file's name takes the hyperparameters under `methods`; its report shows the search.
"""


def collect(experiment: Experiment, layout: Layout) -> Tuned:
    """The trials of a finished search with their scores, the best of each method, and the search's cost.

    Of equal scores the first in the experiment's order is the best.
    """
    if not experiment.is_search:
        raise SrpoError(f"experiment {experiment.name} is no search: it has no variants.held_out_questions")
    runs = experiment.runs()
    summaries = {run: read_json(layout.run_files(run).summary) for run in runs}
    first, *_ = summaries.values()
    reached = [label for label in first["budgets"] if all(each["budgets"][label] for each in summaries.values())]
    tried = []
    for name, trial in experiment.variants.items():
        scores = [_score(run, summary, reached) for run, summary in summaries.items() if run.method == name]
        tried.append(TrialResult(method=trial.of, values=trial.values, score=round(fmean(scores), 2)))
    best: dict[str, TrialResult] = {}
    for one in tried:
        if one.method not in best or one.score > best[one.method].score:
            best[one.method] = one
    return Tuned(
        search=experiment.name,
        models=list(dict.fromkeys(run.model for run in runs)),
        benchmarks=list(dict.fromkeys(run.benchmark for run in runs)),
        questions=max(benchmark.held_out_questions for benchmark in experiment.benchmarks.values()),
        seeds=sorted({run.seed for run in runs}),
        budget_seconds=experiment.training.budget_seconds,
        runs=len(runs),
        training_steps=sum(summary["steps"] for summary in summaries.values()),
        clock_seconds=round(sum(summary["clock"] for summary in summaries.values()), 1),
        wall_seconds=round(sum(summary["wall_seconds"] for summary in summaries.values()), 1),
        methods={method: one.values for method, one in best.items()},
        trials=tried,
    )


def write(tuned: Tuned, path: Path) -> None:
    content = yaml.safe_dump(tuned.model_dump(mode="json"), sort_keys=False, width=120, default_flow_style=None)
    number = len(tuned.trials) // len(tuned.methods)
    write_text(path, HEADER.format(search=tuned.search, number=number) + content)


def _score(run: RunId, summary: dict[str, Any], reached: list[str]) -> float:
    for label, best in summary["budgets"].items():
        if best is None and summary["stopped_by"] != "max_steps":
            raise SrpoError(f"run {run.path}: no validation within {label}; give longer budgets or validate more often")
    return 100 * fmean(summary["budgets"][label]["avg_at_k"] for label in reached)
