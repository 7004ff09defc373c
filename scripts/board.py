"""The board: what the numbers of others say about the claims of the paper's table 1 (docs/reproductions.md).

The claims are ``reports/reference/board.yaml``, the numbers ``reproductions.csv``. A verdict follows from both; none is
written by hand. Others have published one or two runs of a method. So a difference is judged by the spread between runs
that is known from a source with two: within it, a difference may be chance alone.

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
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import pandas as pd
import yaml

from srpo.analysis.results.matrix import AVERAGE
from srpo.analysis.results.paper import paper_splits
from srpo.ground.repository import REFERENCE
from srpo.ground.schema import Config

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
CHANCE = 1.96
"""Standard deviations within which 95 % of differences between equal methods lie."""

Verdict = Literal["agrees", "supported", "disputed", "undecided", "contradicted", "never tested"]


class BoardClaim(Config):
    """An entry of ``board.yaml``; its comment explains the keys."""

    claim: str
    kind: Literal["difference", "untrained", "collapses"]
    methods: tuple[str, ...] = ()
    when: tuple[str, ...] = ()
    hours: int = 0
    changes: str


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

    @property
    def side(self) -> int:
        """1: in favour of the first method, -1: of the second, 0: within chance."""
        return 0 if abs(self.value) <= self.chance else int(math.copysign(1, self.value))

    def __str__(self) -> str:
        of = (
            "all five benchmarks"
            if self.benchmarks == 5
            else f"{self.benchmarks} benchmark{'s' * (self.benchmarks > 1)}"
        )
        runs = "" if self.runs == 1 else f", {self.runs} runs"
        size = self.model.removeprefix("Qwen3-")
        return (
            f"{self.source} {size}, {of}{runs}: {self.value:+.1f}, chance ± {self.chance:.1f}"
            f"{' (second-hand)' * self.second_hand}"
        )


@dataclass(frozen=True)
class Judged:
    """A claim with its verdict.

    Attributes:
        paper: the paper's numbers, in words.
        found: what others have, in words, one entry each.
        because: why the verdict is what it is.
        date: when the newest number that it uses was added.
    """

    claim: BoardClaim
    verdict: Verdict
    because: str
    paper: str
    found: list[str] = field(default_factory=list)
    date: str = ""


def board_claims() -> list[BoardClaim]:
    return [BoardClaim.model_validate(entry) for entry in yaml.safe_load((REFERENCE / "board.yaml").read_text("utf-8"))]


def judge(claim: BoardClaim, rows: pd.DataFrame | None = None) -> Judged:
    """The verdict on a claim, from rows of :func:`reproductions`."""
    rows = reproductions() if rows is None else rows
    rows = rows[(rows["paper_method"] != "no") & rows["model"].isin(PAPERS_MODELS)]
    kinds = {"difference": _difference, "untrained": _untrained, "collapses": _collapses}
    return kinds[claim.kind](claim, rows)


def run_spread(rows: pd.DataFrame) -> float:
    """Points: the standard deviation between two runs of a method on a benchmark, from the sources that have two."""
    best = rows[(rows["when"] == "best") & (rows["seeds"] == 1) & rows["run"].str.startswith("seed")]
    pairs = best.groupby(["source", "model", "method", "benchmark"])["score"].var(ddof=1).dropna()
    return math.sqrt(pairs.mean())


def comparisons(rows: pd.DataFrame, methods: Sequence[str], when: Sequence[str]) -> list[Comparison]:
    """The difference of two methods in each source and model, on the benchmarks that it has of both."""
    spread, found = run_spread(reproductions()), []
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
                chance=CHANCE * math.sqrt(variance),
                benchmarks=len(means),
                runs=int(runs[list(methods)].min().min()),
                second_hand=bool((of_source["read"] != "source").any()),
            )
        )
    return found


def _difference(claim: BoardClaim, rows: pd.DataFrame) -> Judged:
    found = comparisons(rows, claim.methods, claim.when)
    paper = ", ".join(
        f"{model.removeprefix('Qwen3-')} {papers_average(model, claim.methods[0], claim.hours) - rival:+.1f}"
        for model in PAPERS_MODELS
        if not math.isnan(rival := papers_average(model, claim.methods[1], claim.hours))
    )
    sides = [comparison.side for comparison in found]
    verdict: Verdict = "undecided"
    because = "every difference may be chance"
    if not found:
        verdict, because = "never tested", "no source has both methods"
    elif {1, -1} <= {*sides}:
        verdict, because = (
            "disputed",
            f"{sides.count(1)} for it, {sides.count(-1)} against it, {sides.count(0)} within chance",
        )
    elif 1 in sides:
        verdict, because = "supported", f"by {sides.count(1)} of {len(sides)} comparisons"
    elif -1 in sides:
        verdict, because = "contradicted", f"by {sides.count(-1)} of {len(sides)} comparisons"
    used = rows[rows["method"].isin(claim.methods) & rows["when"].isin(claim.when)]
    return Judged(claim, verdict, because, paper, [*map(str, found)], max(used["added"], default="") if found else "")


def _untrained(claim: BoardClaim, rows: pd.DataFrame) -> Judged:
    base = averages(rows[rows["method"] == "base"])
    papers = {model: papers_average(model, "base", 0) for model in PAPERS_MODELS}
    scores = [
        (str(source), str(model), float(score)) for source, model, score in base[["source", "model", "score"]].values
    ]
    away = max(abs(score - papers[model]) for _, model, score in scores)
    verdict: Verdict = "agrees" if away <= CHANCE else "disputed"
    said = [f"{source} {model.removeprefix('Qwen3-')}: {score:.1f}" for source, model, score in scores]
    paper = ", ".join(f"{model.removeprefix('Qwen3-')} {score:.1f}" for model, score in papers.items())
    because = f"{len(base)} averages, at most {away:.1f} points away"
    return Judged(claim, verdict, because, paper, said, max(rows.loc[rows["method"] == "base", "added"]))


def _collapses(claim: BoardClaim, rows: pd.DataFrame) -> Judged:
    known = rows[rows["method"].isin(claim.methods) & (rows["when"] == "best") & (rows["run"] != "")]
    known = known.drop_duplicates(["source", "run", "benchmark"])
    broken = {str(s): (int((of["collapse"] != "").sum()), len(of)) for s, of in known.groupby("source", sort=False)}
    said = [f"{source}: {count} of {of} runs ended with broken responses" for source, (count, of) in broken.items()]
    against = sum(count > 0 for count, _ in broken.values())
    verdict: Verdict = "contradicted" if against == len(broken) else "disputed" if against else "supported"
    because = f"by {against} of {len(broken)} sources that say how runs ended"
    return Judged(claim, verdict, because, "no collapse", said, max(known["added"]))


def papers_average(model: str, method: str, hours: int) -> float:
    """The paper's average over the five benchmarks, percent; NaN if table 1 has none."""
    table = pd.read_csv(REFERENCE / "table1_main.csv")
    key = {"model": model, "method": method, "benchmark": AVERAGE, "budget_hours": hours}
    found = table[(table[list(key)] == pd.Series(key)).all(axis=1)]["avg_at_16"]
    return float(found.iloc[0]) if len(found) else math.nan
