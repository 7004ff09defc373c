"""Numbers from the step and validation logs of each run: metrics early and late, seconds per step, the late drop."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache

import numpy as np
import pandas as pd

from srpo.analysis.results.cross_fit import MIN_QUESTIONS, WINDOW, late_drop
from srpo.analysis.results.load import RUN_KEY, Results
from srpo.analysis.results.lookups import Lookup
from srpo.analysis.results.matrix import repeated_runs


class RunLogs:
    """The logs of an experiment by run; each method gives a :data:`Lookup` for one model.

    Attributes:
        clock: seconds of the training clock of each run, by :data:`~srpo.analysis.results.load.RUN_KEY`.
    """

    def __init__(self, results: Results) -> None:
        self.results = results
        steps = pd.concat([results.steps, case_shares(results.steps)], axis=1)
        self._steps = dict(list(steps.groupby(RUN_KEY, sort=False)))
        self._validations = dict(list(results.validations.groupby(RUN_KEY, sort=False)))
        runs = results.runs.set_index(RUN_KEY)
        self._finished = (runs["status"] == "finished").to_dict()
        self.clock = runs["clock"].to_dict()
        self._lookups: dict[tuple[str, ...], Lookup] = {}
        self._seeds: dict[tuple[str, str, str], list[int]] = {}
        for *cell, seed in runs.index.difference(repeated_runs(results), sort=False):
            self._seeds.setdefault(tuple(cell), []).append(seed)

    @classmethod
    @lru_cache(maxsize=2)
    def of(cls, results: Results) -> RunLogs:
        """The logs of ``results``, split by run once."""
        return cls(results)

    def metric(self, model: str, name: str) -> Lookup:
        """Mean of a step metric over the ``early`` (first) or ``late`` (last) tenth of training, or ``all`` of it.

        Finished runs only: an unfinished run has no late part.
        """

        def value(key: tuple, when: str) -> np.ndarray | None:
            if not self._finished[key] or key not in self._steps or name not in self._steps[key]:
                return None
            logged = self._steps[key][name].dropna().to_numpy()
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

        def value(key: tuple, budget: str) -> np.ndarray | None:
            if key not in self._steps or not (self._finished[key] or self.clock[key] >= budgets[budget]):
                return None
            steps = self._steps[key]
            within = steps.loc[steps["clock"] <= budgets[budget], column]
            mean = within.mean()
            return None if math.isnan(mean) else np.array([mean])

        return self._lookup(model, value, "seconds", column)

    def late_drop(self, model: str) -> Lookup:
        """By how many points training ends below its best (:func:`~srpo.analysis.results.cross_fit.late_drop`).

        For finished runs with more than two windows of validations and enough questions to halve.
        """

        def value(key: tuple, when: str) -> np.ndarray | None:
            log = self._validations.get(key)
            if not self._finished[key] or log is None or len(log) <= 2 * WINDOW:
                return None
            if log["question_scores"].map(len).nunique() > 1:
                return None
            scores = np.vstack(log["question_scores"])
            return 100 * late_drop(scores) if scores.shape[1] >= MIN_QUESTIONS else None

        return self._lookup(model, value, "late drop")

    def validations(self, model: str) -> Lookup:
        """How many validations a run has within a budget."""
        budgets = self.results.experiment.training.budget_seconds

        def value(key: tuple, budget: str) -> np.ndarray | None:
            log = self._validations.get(key)
            return None if log is None else np.array([float((log["clock"] <= budgets[budget]).sum())])

        return self._lookup(model, value, "validations")

    def _lookup(self, model: str, value: Callable[[tuple, str], np.ndarray | None], *quantity: str) -> Lookup:
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


_CASE_METRICS = ("sibling_available_fraction", "correct_fraction", "all_wrong_groups")


def case_shares(steps: pd.DataFrame) -> pd.DataFrame:
    """Shares of each step's rollouts in table 7's four cases, columns ``cases/<case>``.

    They follow from what is logged. A wrong rollout has no correct sibling only if its whole group is wrong, so the
    share of such groups is the share of wrong rollouts without a sibling. The other three follow from the share of
    correct rollouts and the share of rollouts with a correct sibling.
    """
    logged = steps.reindex(columns=[f"routing/{name}" for name in _CASE_METRICS]).astype(float)
    available, correct, wrong_without = (logged[name] for name in logged)
    correct_without = 1 - available - wrong_without
    correct_with = correct - correct_without
    shares = {
        "correct_with_sibling": correct_with,
        "correct_without_sibling": correct_without,
        "wrong_with_sibling": 1 - correct_with - correct_without - wrong_without,
        "wrong_without_sibling": wrong_without,
    }
    return pd.DataFrame(shares).add_prefix("cases/")
