"""The paper's published numbers, for experiments that can be compared with them."""

from functools import cache

import pandas as pd

from srpo.analysis.results import AVERAGE, BASE, SCORE_KEY
from srpo.experiment.config import Experiment
from srpo.ground.repository import REFERENCE

_METHODS = {"srpo_no_dynamic_weighting": "srpo_without_weighting"}


def paper_scores(experiment: Experiment) -> pd.DataFrame:
    """Tables 1 and 2 in percent (column ``paper``) for the models, methods and budgets of ``experiment``.

    Table 2 repeats SRPO's averages of table 1 and adds the averages of the ablations. Averages are left out if the
    experiment has other benchmarks.
    """
    main = _read("table1_main")
    ablation = _read("table2_ablation").assign(benchmark=AVERAGE)
    scores = pd.concat([main, ablation]).drop_duplicates(["model", "method", "benchmark", "budget_hours"])
    scores["budget"] = scores["budget_hours"].map(lambda hours: f"{hours:g}h" if hours else BASE)
    if not _same_benchmarks(experiment):
        scores = scores[scores["benchmark"] != AVERAGE]
    return _for_models(scores.rename(columns={"avg_at_16": "paper"}), experiment)[[*SCORE_KEY, "paper"]]


def paper_figure_4b(experiment: Experiment) -> pd.DataFrame:
    """Figure 4b: mean seconds per step up to each budget (column ``paper``), an average over its benchmarks."""
    seconds = _read("fig4b_step_seconds").rename(columns={"seconds_per_step": "paper"})
    if not _same_benchmarks(experiment):
        seconds = seconds.iloc[:0]
    seconds = seconds.assign(budget=seconds["budget_hours"].map(lambda hours: f"{hours:g}h"))
    return _for_models(seconds, experiment)[["model", "method", "budget", "paper"]]


def paper_splits() -> pd.DataFrame:
    """Table 4: rows of each split (column ``paper``)."""
    return _read("splits").rename(columns={"rows": "paper"})[["benchmark", "split", "paper"]]


def _same_benchmarks(experiment: Experiment) -> bool:
    return {*experiment.benchmarks} == {*paper_splits()["benchmark"]}


def _for_models(frame: pd.DataFrame, experiment: Experiment) -> pd.DataFrame:
    """Keep the experiment's models, under the experiment's names."""
    names = {model.title.casefold(): name for name, model in experiment.models.items()}
    names |= {name.casefold(): name for name in experiment.models}
    frame = frame.assign(
        model=frame["model"].str.casefold().map(names), method=frame["method"].map(lambda m: _METHODS.get(m, m))
    )
    return frame.dropna(subset="model")


@cache
def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(REFERENCE / f"{name}.csv")
