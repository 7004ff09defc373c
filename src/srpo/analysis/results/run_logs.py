"""Numbers from the step and validation logs of each run: metrics early and late, seconds per step, the late drop."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import cast

import numpy as np

from srpo.analysis.results.cross_fit import MIN_QUESTIONS, WINDOW, late_drop
from srpo.analysis.results.load import RUN_KEY, Results, RunKey, by_run
from srpo.analysis.results.lookups import Lookup
from srpo.analysis.results.matrix import repeated_runs


class RunLogs:
    """The logs of an experiment by run; each method with a model's name gives a :data:`Lookup` for it.

    Attributes:
        clock: seconds of the training clock of each run of the matrix.
        runs: those that count, without the repeated ones (:func:`~srpo.analysis.results.matrix.repeated_runs`).
        steps, validations: the logs of each run that has any.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        self.steps = by_run(results.steps)
        self.validations = by_run(results.validations)
        runs, repeated = results.runs.set_index(RUN_KEY), repeated_runs(results)
        self._finished = cast(dict[RunKey, bool], (runs["status"] == "finished").to_dict())
        self.clock = cast(dict[RunKey, float], runs["clock"].to_dict())
        self._stopped_by = cast(dict[RunKey, str], runs["stopped_by"].to_dict())
        self.runs = [run for run in self.clock if run not in repeated]
        self._lookups: dict[tuple[str, ...], Lookup] = {}
        self._seeds: dict[tuple[str, str, str], list[int]] = {}
        for model, benchmark, method, seed in self.runs:
            self._seeds.setdefault((model, benchmark, method), []).append(seed)

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, results: Results) -> RunLogs:
        return cls(results)

    def reached(self, run: RunKey, seconds: float) -> bool:
        """Whether a run has finished or its clock has reached a time: what it has until then stays as it is."""
        return self._finished[run] or self.clock[run] >= seconds

    def spent(self, run: RunKey, budget: str) -> bool:
        """Whether a run's clock has reached a budget; its planned end, ``training.max_steps``, is the last budget's."""
        training = self.results.experiment.training
        *_, last = training.budget_seconds
        planned_end = training.max_steps is not None and self._stopped_by[run] == "max_steps"
        return self.clock[run] >= training.budget_seconds[budget] or (budget == last and planned_end)

    def metric(self, model: str, name: str) -> Lookup:
        """Mean of a step metric over the ``early`` (first) or ``late`` (last) tenth of training, or ``all`` of it.

        Finished runs only: an unfinished run has no late part.
        """

        def value(run: RunKey, when: str) -> np.ndarray | None:
            if not self._finished[run] or run not in self.steps or name not in self.steps[run]:
                return None
            logged = self.steps[run][name].dropna().to_numpy()
            tenth = math.ceil(len(logged) / 10)
            chosen = {"early": logged[:tenth], "late": logged[-tenth:], "all": logged}[when] if len(logged) else logged
            return np.array([chosen.mean()]) if len(chosen) else None

        return self._lookup(model, value, "metric", name)

    def seconds(self, model: str, column: str = "step_seconds") -> Lookup:
        """Mean seconds per step on the training clock, or of one phase, up to a budget that the run has reached.

        A calibrated clock counts the paper's seconds, which would confirm the paper by itself: there the seconds per
        step are the measured ones.
        """
        training = self.results.experiment.training
        budgets = training.budget_seconds
        if column == "step_seconds" and training.clock.kind == "calibrated":
            column = "wall_seconds"

        def value(run: RunKey, budget: str) -> np.ndarray | None:
            if run not in self.steps or not self.reached(run, budgets[budget]):
                return None
            steps = self.steps[run]
            mean = steps.loc[steps["clock"] <= budgets[budget], column].mean()
            return None if math.isnan(mean) else np.array([mean])

        return self._lookup(model, value, "seconds", column)

    def late_drop(self, model: str) -> Lookup:
        """By how many points training ends below its best (:func:`~srpo.analysis.results.cross_fit.late_drop`).

        For finished runs with more than two windows of validations and enough questions to halve.
        """

        def value(run: RunKey, when: str) -> np.ndarray | None:
            log = self.validations.get(run)
            if not self._finished[run] or log is None or len(log) <= 2 * WINDOW:
                return None
            if log["question_scores"].map(len).nunique() > 1:
                return None
            scores = np.vstack([*log["question_scores"]])
            return 100 * late_drop(scores) if scores.shape[1] >= MIN_QUESTIONS else None

        return self._lookup(model, value, "late drop")

    def number_of_validations(self, model: str) -> Lookup:
        budgets = self.results.experiment.training.budget_seconds

        def value(run: RunKey, budget: str) -> np.ndarray | None:
            log = self.validations.get(run)
            return None if log is None else np.array([float((log["clock"] <= budgets[budget]).sum())])

        return self._lookup(model, value, "validations")

    def _lookup(self, model: str, value: Callable[[RunKey, str], np.ndarray | None], *quantity: str) -> Lookup:
        """Values of every seed; each is computed once and cached."""
        computed = cache(value)

        def lookup(benchmark: str, method: str, when: str) -> dict[int, np.ndarray]:
            seeds = self._seeds.get((model, benchmark, method), [])
            found = {seed: computed((model, benchmark, method, seed), when) for seed in seeds}
            return {seed: values for seed, values in found.items() if values is not None}

        return self._lookups.setdefault((model, *quantity), lookup)


def logarithms(lookup: Lookup) -> Lookup:
    """The logarithm of each value: a difference of two of them is a ratio in which both are uncertain."""
    return lambda *key: {seed: np.log(values) for seed, values in lookup(*key).items()}
