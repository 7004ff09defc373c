"""The results of one experiment: frames of its runs, its plan and titles, and estimates of its scores.

:func:`~srpo.analysis.load.load_results` reads them once from a folder; they are passed along as an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import pandas as pd

from srpo.analysis.statistics.contrasts import BASE, Terms, Values, combine
from srpo.analysis.statistics.estimates import PERCENT, Estimate
from srpo.experiment.config import Experiment
from srpo.ground.layout import RunId

if TYPE_CHECKING:
    from srpo.analysis.claims import Claim

SCORE_KEY = ["model", "method", "benchmark", "budget"]
AVERAGE = "average"
MISSING = "–"
RUN_KEY = ["model", "benchmark", "method", "seed"]
RunKey = tuple[str, str, str, int]
"""The values of :data:`RUN_KEY`. Without the seed they are an arm of the experiment."""

_NOT_RIGHT = ("cut", "unreadable", "wrong")

# Table 2 of the paper: the variant each ablation is compared with.
ABLATIONS = {"srpo_without_weighting": "srpo", "advantage_mix": "srpo_without_weighting"}


@dataclass(frozen=True, eq=False)
class Results:
    """The results of one experiment, each frame with the columns model, benchmark, method and seed.

    Per-question scores (``question_scores``) are arrays of one float per question, in the order of the split. A run,
    evaluation or budget that does not exist (yet) is a missing value. Frames for a notebook: :attr:`scores`,
    :attr:`steps`, :attr:`seconds`.

    Attributes:
        runs: one row per run of the matrix, started or not; ``clock`` in seconds of the training clock.
        steps: one row per training step; phases and every logged metric as flat columns (``phase_seconds/generate``,
            ``phase_tokens/generate``).
        validations: one row per in-training validation.
        evaluations: the resampled score of each selected checkpoint.
        bases: the same for the untrained models (method ``base``).
        signals: the alarms and warnings that ``srpo/training/watch.py`` finds in each run's logs; one row per signal.
        samples: the first sample of the first few test questions.
        statistics: ``statistics.json`` by benchmark.
        gaps: ``gap.json`` by model, benchmark and seed, as in ``bases``.
        specs, provenance: the halves of ``run.yaml`` by run.
        trained: the day or days on which runs ended.
        routed_group: the run and the logged group that table 6 shows; None if there is none.
        paper_scores: the paper's scores (column ``paper``, percent), if the experiment may be compared with them.
        claims: what is decided, see :mod:`~srpo.analysis.registered`.
        numbers: every number of the runs by (model, name), see :mod:`~srpo.analysis.numbers`.
        run_ends: how each finished run ended, see :func:`~srpo.analysis.numbers.run_ends`.
        deciding: the score of comparisons and verdicts: ``cross_fitted``, unless all runs have too few questions.
        incomparable: benchmarks whose runs have different test questions, each with what differs.
    """

    root: Path
    experiment: Experiment
    runs: pd.DataFrame
    steps: pd.DataFrame
    validations: pd.DataFrame
    evaluations: pd.DataFrame
    bases: pd.DataFrame
    samples: pd.DataFrame
    signals: pd.DataFrame
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)
    gaps: dict[tuple[str, str, int], dict[str, Any]] = field(default_factory=dict)
    specs: dict[RunId, dict[str, Any]] = field(default_factory=dict)
    provenance: dict[RunId, dict[str, Any]] = field(default_factory=dict)
    trained: str = ""
    routed_group: tuple[RunId, dict[str, Any]] | None = None
    paper_scores: pd.DataFrame | None = None
    claims: tuple[Claim, ...] = ()
    numbers: Mapping[tuple[str, str], Values] = field(default_factory=dict)
    run_ends: pd.DataFrame = field(default_factory=pd.DataFrame)
    deciding: Literal["cross_fitted", "in_training"] = "cross_fitted"
    incomparable: dict[str, str] = field(default_factory=dict)

    # ------------------------------------------------------------ frames

    @property
    def scores(self) -> pd.DataFrame:
        """One row per run, time and test question. Question n of a toy's two seeds may have two answers.

        Columns: those of :data:`RUN_KEY`; ``measured`` (``validation`` in training; ``evaluation`` of the checkpoint
        that a ``budget`` selects, and of the untrained model, method ``base``); ``step``; ``clock`` (seconds);
        ``question`` (its place in the test split); ``right``: the share of its responses that are right. Where it is
        logged, of all responses of that time together the shares that are not right: ``cut`` at the length limit,
        ``unreadable`` for the reward, or ``wrong``.
        """
        frames = {"validation": (self.validations,), "evaluation": (self.evaluations, self.bases)}
        rows = pd.concat([f.assign(measured=name) for name, several in frames.items() for f in several])
        shares = {name: rows[name] / rows["k"] / rows["questions"] for name in _NOT_RIGHT if name in rows}
        questions = rows["question_scores"].map(lambda scores: range(len(scores)))
        columns = [*RUN_KEY, "measured", "budget", "step", "clock", "question", "right", *_NOT_RIGHT]
        found = rows.assign(right=rows["question_scores"], question=questions, **shares).reindex(columns=columns)
        return found.explode(["question", "right"], ignore_index=True).astype({"question": int, "right": float})

    @property
    def seconds(self) -> pd.DataFrame:
        """One row per training step: seconds of the training clock, in all and by phase, and measured ones.

        Columns: those of :data:`RUN_KEY`, ``step``, ``clock``, ``step_seconds``, ``wall_seconds``, ``phase_seconds/*``.
        """
        phases = [name for name in map(str, self.steps) if name.startswith("phase_seconds/")]
        return self.steps[[*RUN_KEY, "step", "clock", "step_seconds", "wall_seconds", *phases]]

    @cached_property
    def step_logs(self) -> dict[RunKey, pd.DataFrame]:
        return by_run(self.steps)

    @cached_property
    def validation_logs(self) -> dict[RunKey, pd.DataFrame]:
        return by_run(self.validations)

    @cached_property
    def run_rows(self) -> dict[RunKey, dict[str, Any]]:
        """The row of each run of the matrix."""
        return cast(dict[RunKey, dict[str, Any]], self.runs.set_index(RUN_KEY).to_dict("index"))

    def reached(self, run: RunKey, seconds: float) -> bool:
        """Whether a run has finished or its clock has reached a time: what it has until then stays as it is."""
        return self.run_rows[run]["status"] == "finished" or self.run_rows[run]["clock"] >= seconds

    def has_spent(self, run: RunKey, budget: str) -> bool:
        """Whether a run has all that it will have within a budget.

        ``training.max_steps`` is a planned end: of the last budget, not of one before that the run did not reach.
        """
        row, (*_, last) = self.run_rows[run], self.budget_seconds
        planned = budget == last and self.experiment.training.max_steps is not None and row["status"] == "finished"
        return (planned and row["stopped_by"] == "max_steps") or row["clock"] >= self.budget_seconds[budget]

    # ------------------------------------------------------------ the plan

    @cached_property
    def plans(self) -> dict[str, dict[str, list[str]]]:
        """The methods planned for each model, each with its benchmarks, in the matrix's order."""
        plans: dict[str, dict[str, list[str]]] = {model: {} for model in self.experiment.models}
        for run in self.experiment.runs():
            if run.benchmark not in (benchmarks := plans[run.model].setdefault(run.method, [])):
                benchmarks.append(run.benchmark)
        return plans

    @property
    def budget_seconds(self) -> dict[str, float]:
        """The budgets by name, in seconds of the training clock."""
        return self.experiment.training.budget_seconds

    def main_methods(self, model: str) -> list[str]:
        """The methods of table 1: all of ``model`` that are not ablations."""
        return [m for m in self.experiment.methods if m not in ABLATIONS and m in self.plans[model]]

    def benchmarks(self, model: str, methods: Iterable[str] | None = None) -> list[str]:
        """The benchmarks over which methods of ``model`` are averaged: those planned for every one of ``methods``.

        Without ``methods``, the benchmarks of table 1's methods together, or of the base evaluations.
        """
        plan = self.plans[model]
        bases = [benchmark for name, benchmark in self.experiment.bases() if name == model]
        if methods is not None:
            sets = [bases if m == BASE else plan.get(m, []) for m in methods]
            return [b for b in self.experiment.benchmarks if sets and all(b in s for s in sets)]
        trained = {b for method in self.main_methods(model) for b in plan[method]} or set(bases)
        return [b for b in self.experiment.benchmarks if b in trained]

    def in_order(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Sort rows in the order of the experiment file, whatever the order in which files were read."""
        orders = {
            "model": list(self.experiment.models),
            "benchmark": [*self.experiment.benchmarks, AVERAGE],
            "method": [BASE, *self.experiment.methods],
            "budget": [BASE, *self.budget_seconds],
        }
        keys = [c for c in ("model", "method", "benchmark", "budget", "seed") if c in frame]
        rank = pd.DataFrame({k: frame[k].map(orders[k].index) if k in orders else frame[k] for k in keys})
        return frame.loc[rank.sort_values(keys, kind="stable").index].reset_index(drop=True)

    # ------------------------------------------------------------ estimates

    def estimate(
        self, model: str, terms: Terms, benchmarks: Iterable[str], score: str = "", seeds: set[int] | None = None
    ) -> Estimate | None:
        """A contrast of scores in points; by default of the deciding score, and of all seeds.

        None if runs of a benchmark have different test questions.
        """
        score, benchmarks = score or self.deciding, list(benchmarks)
        if any(benchmark in self.incomparable for benchmark in benchmarks):
            return None
        values, paired = self.of(model, score), self.experiment.draws_per_seed(model)
        if seeds is not None:
            values = {key: {s: of for s, of in runs.items() if s in seeds} for key, runs in values.items()}
        bounds = None if score.endswith("_bias") else PERCENT
        return combine(values, terms, benchmarks, bounds, paired)

    def of(self, model: str, number: str) -> Values:
        """The values of a number for the runs of ``model``."""
        return self.numbers.get((model, number), {})

    # ------------------------------------------------------------ titles

    def method_title(self, name: str) -> str:
        """A method's title, or that of the untrained model."""
        return "Untrained" if name == BASE else self.experiment.methods[name].title

    def benchmark_title(self, name: str) -> str:
        return "Average" if name == AVERAGE else self.experiment.benchmarks[name].title

    def run_title(self, model: object, benchmark: object, *run: object) -> str:
        """The name of a run for readers, or its beginning: ``Miniature-L · Physics · SRPO · seed 3``."""
        names = [self.experiment.models[str(model)].title, self.benchmark_title(str(benchmark))]
        names += [self.method_title(str(method)) for method in run[:1]] + [f"seed {seed}" for seed in run[1:]]
        return " · ".join(names)

    @property
    def budgets_listed(self) -> str:
        listed = ", ".join(f"{self.experiment.budget_title(name)} = {s:g} s" for name, s in self.budget_seconds.items())
        return f"{listed} of the {self.experiment.training.clock.kind} clock"


SCORE_TITLES = {
    "in_training": "in-training maximum",
    "cross_fitted": "cross-fitted",
    "resampled": "selected checkpoint, resampled",
    "end": "mean of the last three validations",
}
"""What readers call a score."""


def estimate_columns(name: str, estimate: Estimate | None) -> dict[str, float | str]:
    """An estimate as columns of a frame."""
    if estimate is None:
        return {name: np.nan, f"{name}_low": np.nan, f"{name}_high": np.nan, f"{name}_unit": ""}
    ends = {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {name: estimate.value, **ends, f"{name}_unit": estimate.meaning if estimate.has_interval else ""}


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], frame.to_dict("records"))


def by_run(log: pd.DataFrame) -> dict[RunKey, pd.DataFrame]:
    """The rows of each run that has any."""
    return cast(dict[RunKey, pd.DataFrame], dict(list(log.groupby(RUN_KEY, sort=False))))
