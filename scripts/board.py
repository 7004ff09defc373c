"""The board: what others have measured of the paper's table 1 (docs/reproductions.md): rows, means and differences.

The numbers are ``reports/reference/reproductions.csv``. Others have published one or two runs of a method. So beside a
difference stands the spread between runs that is known from two sources with several: within it, a difference may be
chance.

One row per score. Columns; an empty field is unknown or does not apply:

- ``source``, ``reference`` (arXiv id or repository), ``document``, ``run``: where the number is from.
- ``model``; ``method``: base, grpo, sdpo or srpo, as the source calls it; ``paper_method``: ``no`` if it is not the
  paper's method of this name.
- ``benchmark``: one of the paper's five, or another one that was measured with a method called SRPO.
- ``when``: ``base``; the ``best`` validation of the run, or the best within ``1h`` or ``5h`` of the source's clock;
  or the ``last`` one; ``short``: of a run of less than 150 steps. ``steps`` of the run; ``score`` in percent.
- ``learning_rate``, ``updates_per_step``; ``seeds`` behind the score; ``collapse``: what broke in the run, by its
  source; ``caveat``.
- ``added``: the day when the row was copied; ``read``: in the ``source`` itself, or ``second-hand``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pandas as pd
from scipy.stats import t as student_t

from srpo.analysis.paper import paper_splits
from srpo.analysis.results import AVERAGE
from srpo.ground.repository import REFERENCE

NUMBERS: dict[str, Any] = {
    "steps": "Int64",
    "score": float,
    "learning_rate": float,
    "updates_per_step": "Int64",
    "seeds": "Int64",
}
SERIES = ["source", "reference", "run", "model", "method", "when"]
"""What rows have in common whose mean over the five benchmarks is an average."""


@cache
def reproductions() -> pd.DataFrame:
    """All rows; text that is not there is empty, numbers that are not there are missing."""
    rows = pd.read_csv(REFERENCE / "reproductions.csv", dtype=str, keep_default_na=False)
    return rows.assign(**{name: pd.to_numeric(rows[name]) for name in NUMBERS}).astype(NUMBERS)


def averages(rows: pd.DataFrame) -> pd.DataFrame:
    """The mean score over the paper's five benchmarks of each series that has them all, with ``benchmark`` average."""
    names = set(paper_splits()["benchmark"])
    five = rows[rows["benchmark"].isin(names)]
    complete = five.groupby(SERIES, sort=False).filter(lambda series: set(series["benchmark"]) == names)
    means = complete.groupby(SERIES, sort=False, as_index=False).agg({"score": "mean"})
    settings = ["paper_method", "steps", "learning_rate", "updates_per_step", "seeds"]
    return means.merge(complete.drop_duplicates(SERIES)[[*SERIES, *settings]]).assign(benchmark=AVERAGE)


PAPERS_MODELS = ("Qwen3-8B", "Qwen3-4B")
DIFFERENCES = (
    ("srpo", "grpo", ("1h", "short"), 1),
    ("srpo", "sdpo", ("1h", "short"), 1),
    ("srpo", "grpo", ("best",), 10),
    ("srpo", "sdpo", ("best",), 10),
    ("grpo", "sdpo", ("best",), 10),
)
"""The first method minus the second, in rows with ``when`` of the third, beside the paper's after so many hours."""


@dataclass(frozen=True)
class Comparison:
    """One source's difference of two methods on one model.

    Attributes:
        value: percentage points, the mean over the benchmarks that the source has of both methods.
        chance: a difference up to this size, points, may be chance alone.
        benchmarks: number of them.
        runs: of the method with fewer.
        second_hand: whether the numbers were not read in the source itself.
    """

    source: str
    model: str
    value: float
    chance: float
    benchmarks: int
    runs: int
    second_hand: bool

    def __str__(self) -> str:
        of = (
            "all five benchmarks"
            if self.benchmarks == 5
            else f"{self.benchmarks} benchmark{'s' * (self.benchmarks > 1)}"
        )
        runs = "" if self.runs == 1 else f", {self.runs} runs of each method"
        size = self.model.removeprefix("Qwen3-")
        return (
            f"{self.source} {size}, {of}{runs}: {self.value:+.1f}, chance ± {self.chance:.1f}"
            f"{' (second-hand)' * self.second_hand}"
        )


def papers(rows: pd.DataFrame) -> pd.DataFrame:
    """Those of the paper's methods and models."""
    return rows[(rows["paper_method"] != "no") & rows["model"].isin(PAPERS_MODELS)]


def run_spread(rows: pd.DataFrame) -> tuple[float, int]:
    """Points: the standard deviation between two runs of a method on a benchmark, and its degrees of freedom.

    From the sources that have several runs: TASD's seeds, and I-SDPO's runs of SRPO, whose top K alone differs.
    """
    several = rows[(rows["seeds"] == 1) & rows["run"].str.match("seed |top ")]
    runs = several.groupby(["source", "model", "method", "benchmark"])["score"]
    variances, dofs = runs.var(ddof=1).dropna(), runs.count() - 1
    dof = int(dofs.sum())
    return math.sqrt((variances * dofs[variances.index]).sum() / dof), dof


def comparisons(rows: pd.DataFrame, methods: Sequence[str], when: Sequence[str]) -> list[Comparison]:
    """The difference of two methods in each source and model, on the benchmarks that it has of both."""
    (spread, dof), found = run_spread(reproductions()), []
    rows = rows[rows["when"].isin(when)]
    for (source, model), of_source in rows.groupby(["source", "model"], sort=False):
        means = of_source.pivot_table(index="benchmark", columns="method", values="score", aggfunc="mean")
        if not {*methods} <= {*means.columns}:
            continue
        means = means[list(methods)].dropna()
        if means.empty:
            continue
        runs = of_source.pivot_table(index="benchmark", columns="method", values="score", aggfunc="count").loc[
            means.index
        ]
        variance = sum((spread**2 / runs[method]).sum() for method in methods) / len(means) ** 2
        found.append(
            Comparison(
                source=str(source),
                model=str(model),
                value=float((means[methods[0]] - means[methods[1]]).mean()),
                chance=student_t.ppf(0.975, dof) * math.sqrt(variance),
                benchmarks=len(means),
                runs=int(runs[list(methods)].min().min()),
                second_hand=bool((of_source["read"] != "source").any()),
            )
        )
    return found


def papers_average(model: str, method: str, hours: int) -> float:
    """The paper's average over the five benchmarks, percent; NaN if table 1 has none."""
    table = pd.read_csv(REFERENCE / "table1_main.csv")
    key = {"model": model, "method": method, "benchmark": AVERAGE, "budget_hours": hours}
    found = table[(table[list(key)] == pd.Series(key)).all(axis=1)]["avg_at_16"]
    return float(found.iloc[0]) if len(found) else math.nan
