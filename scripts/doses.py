"""When does routing help? The numbers of ``registered-doses`` by dose, and whether dose or gap tells the difference.

A dose is the percentage of the pretraining's examples that show a solution, and a model of the experiment. A pair is
a base model and a benchmark. The questions are those of ``configs/registered-doses.yaml``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from srpo.analysis.figures import style
from srpo.analysis.results import BASE, Results
from srpo.analysis.tables.before_training import gap_frame
from srpo.analysis.verdicts import findings

CLAIMS = {
    "srpo_over_grpo_last": "SRPO - GRPO",
    "srpo_over_sdpo_last": "SRPO - SDPO",
    "grpo_overtakes_sdpo": "GRPO - SDPO",
}
COLOURS = ("#0B6B4A", "#B8860B", "#1F4FA3")
DOSES = ["#D55E00", "#E69F00", "#56B4E9", "#332288"]
DRAWS = 10_000


def dose_of(read: Results, model: str) -> float:
    """The dose of a model's base models, percent."""
    return 100 * next(iter(read.experiment.base_models(model).values())).warm_start.informed_fraction


def by_dose(read: Results) -> pd.DataFrame:
    """A row per dose and claim: ``value``, ``low`` and ``high`` in points, and the ``verdict``."""
    decided = [(found.claim, found.outcomes) for found in findings(read) if found.claim.id in CLAIMS]
    rows = [
        {"dose": dose_of(read, of.model), "model": of.model, "difference": CLAIMS[claim.id], "verdict": of.verdict}
        | {"value": of.estimate.value, "low": of.estimate.low, "high": of.estimate.high}
        for claim, outcomes in decided
        for of in outcomes
        if of.estimate
    ]
    return pd.DataFrame(rows).sort_values("dose", kind="stable", ignore_index=True)


def pairs(read: Results) -> pd.DataFrame:
    """A row per pair with a gap: ``dose``, ``seed``, ``benchmark``, the ``gap`` before training, what it ``says``.

    And at the end ``gain_sdpo`` and ``difference``, SRPO minus GRPO; in points. A pair whose untrained model is never
    right has no sibling and so no gap.
    """
    found = gap_frame(read)
    found = found.assign(
        dose=found["model"].map(lambda model: dose_of(read, model)),
        seed=found["base_model"].str.rsplit("-", n=1).str[-1].astype(int),
        difference=found["gain_srpo"] - found["gain_grpo"],
    )
    columns = ["dose", "seed", "benchmark", "gap", "says", "gain_sdpo", "difference"]
    return found[columns].dropna(ignore_index=True)


class Told(NamedTuple):
    """Spearman's rank correlations with the difference, and the first minus the second with its 95 % interval."""

    gap: float
    dose: float
    lead: float
    low: float
    high: float


def told(found: pd.DataFrame, draws: int = DRAWS) -> Told:
    """Whether the gap tells the difference better than the dose does: above 0 if it does.

    Args:
        found: the columns of :func:`pairs`.
        draws: of the seeds with replacement, all pairs of a seed together; the interval is their percentiles.
    """
    columns = found[["gap", "dose", "difference"]].to_numpy()
    of_seed = [columns[place] for place in found.groupby("seed").indices.values()]
    drawn = np.random.default_rng(0).integers(len(of_seed), size=(draws, len(of_seed)))
    leads = [np.subtract(*_correlations(np.concatenate([of_seed[i] for i in chosen]))) for chosen in drawn]
    gap, dose = _correlations(columns)
    low, high = np.nanpercentile(leads, [2.5, 97.5])
    return Told(gap, dose, gap - dose, float(low), float(high))


def _correlations(columns: np.ndarray) -> tuple[float, float]:
    found = spearmanr(columns).statistic
    return float(found[0, 2]), float(found[1, 2])


def within(found: pd.DataFrame) -> list[float]:
    """Spearman's rank correlation of gap and difference in each dose."""
    return [float(spearmanr(of["gap"], of["difference"]).statistic) for _, of in found.groupby("dose")]


def signs(found: pd.DataFrame) -> tuple[int, int, int]:
    """In how many pairs the difference has the sign of the gap, in how many that of its dose's mean; all pairs."""
    of_dose = found.groupby("dose")["difference"].transform("mean")
    same = [int((np.sign(found["difference"]) == np.sign(of)).sum()) for of in (found["gap"], of_dose)]
    return same[0], same[1], len(found)


def followed(found: pd.DataFrame, says: str) -> tuple[int, int, int]:
    """Of the pairs whose gap, with its interval, is above 0 (``better``) or below (``worse``): after how many SDPO's
    gain has the sign of the gap, after how many SRPO minus GRPO has it, and their number.
    """
    of = found[found["says"] == says]
    same = [int((np.sign(of[name]) == np.sign(of["gap"])).sum()) for name in ("gain_sdpo", "difference")]
    return same[0], same[1], len(of)


def draw(differences: pd.DataFrame, found: pd.DataFrame) -> Figure:
    """Differences against dose with intervals, and SRPO minus GRPO of every pair against the gap before training."""
    figure = style.new_figure(8.5, 3.4, "When does routing help?")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.15])
    for place, (name, colour) in enumerate(zip(CLAIMS.values(), COLOURS, strict=True)):
        rows = differences[differences["difference"] == name]
        ends = [rows["value"] - rows["low"], rows["high"] - rows["value"]]
        at = np.arange(len(rows)) + 0.16 * (place - 1)
        left.errorbar(at, rows["value"], ends, color=colour, marker="osD"[place], linestyle="", label=name)
    doses = differences["dose"].drop_duplicates()
    left.set_xticks(range(len(doses)), [f"{dose:.0f} %" for dose in doses])
    left.set(xlabel="Pretraining examples that show a solution (dose)", ylabel="Difference at the end, points")
    left.legend(loc="lower right")
    hues: dict[str, Any] = {"hue": found["dose"].astype(int), "palette": DOSES[: len(doses)], "legend": "full"}
    sns.scatterplot(found, x="gap", y="difference", s=16, ax=right, **hues)
    right.set(xlabel="Gap before training (teacher - student), points", ylabel="SRPO - GRPO at the end, points")
    right.legend(title="dose, %", loc="lower center")
    for axes in (left, right):
        axes.axhline(0, color="#555555", linewidth=0.8)
        sns.despine(ax=axes)
    return figure


def score(read: Results, model: str, method: str) -> float:
    """The mean over benchmarks and seeds, percent: of the untrained model, or of a method at the end."""
    when = BASE if method == BASE else [*read.budget_seconds][-1]
    found = read.estimate(model, {(method, when): 1.0}, read.benchmarks(model))
    assert found is not None  # published runs are complete
    return found.value
