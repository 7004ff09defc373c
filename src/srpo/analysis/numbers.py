"""The numbers of runs: scores by budget, metrics early and late in training, seconds per step, the late drop.

Each number is known by (benchmark, method, when) and seed (:data:`~srpo.analysis.statistics.contrasts.Values`), one
value per question, or one if it has no questions. Scores are in percent:

``in_training``
    The paper's protocol: the highest avg@k of the validations within the budget.
``resampled``
    The selected checkpoint with new samples, which do not contain the noise that made it the maximum. The difference of
    the two is the ``selection_bias``.
``cross_fitted``
    One half of the test questions selects the checkpoint and the other half measures it, in training
    (:mod:`~srpo.analysis.statistics.cross_fit`); ``resampled`` minus ``cross_fitted`` is the ``question_bias``. It
    decides: comparisons and verdicts use it.
``end``
    The mean of the last validations, without any selection.
``late_drop``
    By how many points a finished run ends below its best; when: ``end``.

A run has no score at a budget that it has not spent (``has_spent``). Seconds per step (``step_seconds`` and
``phase_seconds/*``) are means over the steps up to a budget, ``validations`` their number. Metrics are means over the
first (``early``) or last (``late``) tenth of a finished run's steps, or over ``all``.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import numpy as np
import pandas as pd

from srpo.analysis.results import RUN_KEY, Results, RunKey, records
from srpo.analysis.statistics.contrasts import BASE
from srpo.analysis.statistics.cross_fit import MIN_QUESTIONS, WINDOW, end_score, late_drop, selected_scores

SECONDS = "step_seconds", "wall_seconds", "phase_seconds/"

DROP = 5.0
"""Points below its best (cross-fitted) at which a run has collapsed."""
CLEAR = 2.0
"""Standard errors over the test questions beyond a limit at which a collapse is clear."""
ENDS = ["below", "dropped", "collapsed", "clear"]


def with_numbers(results: Results) -> Results:
    """``results`` with their numbers, from their frames."""
    logs = _step_logs(results.steps)
    numbers: dict[tuple[str, str], dict[tuple[str, str, str], dict[int, np.ndarray]]] = {}
    evaluated = results.evaluations.set_index([*RUN_KEY, "budget"])["question_scores"].to_dict()
    cross_fitted: set[bool] = set()
    for base in records(results.bases):
        # Validation never sees the untrained model, so its resampled score is used for all.
        for score in ("in_training", "resampled", "cross_fitted", "end"):
            of = numbers.setdefault((base["model"], score), {}).setdefault((base["benchmark"], BASE, BASE), {})
            of[base["seed"]] = 100 * base["question_scores"]
    for run in results.run_rows:
        model, benchmark, method, seed = run
        for budget in results.budget_seconds:
            found = _scores(results, run, budget, evaluated.get((*run, budget)))
            if "in_training" in found:
                cross_fitted.add("cross_fitted" in found)
            found |= dict(_counts(results, run, budget, logs.get(run)))
            for name, value in found.items():
                numbers.setdefault((model, name), {}).setdefault((benchmark, method, budget), {})[seed] = value
        for name, when, value in _of_finished(results, run, logs.get(run)):
            numbers.setdefault((model, name), {}).setdefault((benchmark, method, when), {})[seed] = value
    results = replace(
        results,
        numbers=numbers,
        deciding="in_training" if cross_fitted == {False} else "cross_fitted",
        incomparable=mixed_questions(results),
    )
    return replace(results, run_ends=run_ends(results))


def _scores(results: Results, run: RunKey, budget: str, evaluated: np.ndarray | None) -> dict[str, np.ndarray]:
    """The scores of a run within a budget, percent, one per question; too few questions have no cross-fitted one."""
    found: dict[str, np.ndarray] = {}
    if not results.has_spent(run, budget):
        return found
    if run in results.validation_logs:
        log = results.validation_logs[run]
        within = log["clock"].to_numpy() <= results.budget_seconds[budget]
        of_questions = log["question_scores"].to_numpy()[within]
        if len(of_questions):
            found["in_training"] = 100 * of_questions[log["avg_at_k"].to_numpy()[within].argmax()]
        if len({*map(len, of_questions)}) == 1:
            scores = 100 * np.vstack([*of_questions])
            found["end"] = end_score(scores)
            if scores.shape[1] >= MIN_QUESTIONS:
                found["cross_fitted"] = selected_scores(scores)
    if evaluated is not None:
        found["resampled"] = 100 * evaluated
    both = {"in_training", "resampled"} <= set(found)
    if both and len(found["in_training"]) == len(found["resampled"]):
        found["selection_bias"] = found["in_training"] - found["resampled"]
        if "cross_fitted" in found:
            found["question_bias"] = found["resampled"] - found["cross_fitted"]
    return found


def _step_logs(steps: pd.DataFrame) -> dict[RunKey, dict[str, np.ndarray]]:
    """Each run's logged numbers by name, one value per step."""
    names = [str(name) for name, kind in steps.dtypes.items() if kind.kind in "iuf" and name not in RUN_KEY]
    values = steps[names].to_numpy(float)
    rows = cast(dict[RunKey, np.ndarray], steps.groupby(RUN_KEY).indices)
    return {run: dict(zip(names, values[of_run].T, strict=True)) for run, of_run in rows.items()}


def _counts(
    results: Results, run: RunKey, budget: str, steps: dict[str, np.ndarray] | None
) -> Iterator[tuple[str, np.ndarray]]:
    """The number of a run's validations within a budget, and the mean seconds of its steps if it has reached it."""
    seconds = results.budget_seconds[budget]
    if run in results.validation_logs:
        within = results.validation_logs[run]["clock"].to_numpy() <= seconds
        yield "validations", np.array([float(within.sum())])
    if steps and results.has_spent(run, budget):
        within = steps["clock"] <= seconds
        # A calibrated clock counts the paper's seconds, which would confirm the paper by itself.
        if results.experiment.training.clock.kind == "calibrated":
            steps = steps | {"step_seconds": steps["wall_seconds"]}
        for name, column in steps.items():
            if name.startswith(SECONDS) and len(logged := _logged(column[within])):
                yield name, np.array([logged.mean()])


def _logged(column: np.ndarray) -> np.ndarray:
    return column[~np.isnan(column)]


def _of_finished(
    results: Results, run: RunKey, steps: dict[str, np.ndarray] | None
) -> Iterator[tuple[str, str, np.ndarray]]:
    """The metrics of a finished run's steps, and its late drop; an unfinished run has no late part."""
    if results.run_rows[run]["status"] != "finished":
        return
    for name, column in (steps or {}).items():
        if len(logged := _logged(column)):
            tenth = math.ceil(len(logged) / 10)
            for when, part in {"early": logged[:tenth], "late": logged[-tenth:], "all": logged}.items():
                yield name, when, np.array([part.mean()])
    log = results.validation_logs.get(run)
    if log is not None and len(log) > 2 * WINDOW and len({*map(len, log["question_scores"])}) == 1:
        scores = np.vstack([*log["question_scores"]])
        if scores.shape[1] >= MIN_QUESTIONS:
            yield "late_drop", "end", 100 * late_drop(scores)


def run_ends(results: Results) -> pd.DataFrame:
    """How each finished run ended: an average over benchmarks hides a collapse on one of them.

    The end is the mean of the last validations. A run of fewer than two windows of validations cannot drop; without the
    untrained model's score none is counted.

    Returns:
        One row per run, with the columns of :data:`RUN_KEY`; ``unit``, which runs of one base model share; whether it
        ends ``below`` the untrained model, has ``dropped`` more than :data:`DROP` points below its best, has
        ``collapsed`` (either, by the estimates alone), and whether one of the two is ``clear``, not noise of questions
        and samples.
    """
    last = list(results.budget_seconds)[-1]
    rows: list[tuple] = []
    for run in results.run_rows:
        model, benchmark, method, seed = run
        paired = results.experiment.draws_per_seed(model)
        end = results.of(model, "end").get((benchmark, method, last), {}).get(seed)
        base = results.of(model, "resampled").get((benchmark, BASE, BASE), {})
        untrained = base.get(seed if paired else 0)
        if end is None or untrained is None or len(untrained) != len(end):
            continue
        if results.of(model, "validations")[benchmark, method, last][seed][0] < WINDOW:
            continue
        drop = results.of(model, "late_drop").get((benchmark, method, "end"), {}).get(seed, np.zeros(1))
        below, dropped = bool(end.mean() < untrained.mean()), bool(drop.mean() > DROP)
        clear = _clearly_above(untrained - end, 0.0) or _clearly_above(drop, DROP)
        rows.append((*run, seed if paired else len(rows), below, dropped, below or dropped, clear))
    return pd.DataFrame(rows, columns=[*RUN_KEY, "unit", *ENDS])


def _clearly_above(values: np.ndarray, limit: float) -> bool:
    """Whether the mean of one value per question is above ``limit`` by more than :data:`CLEAR` standard errors."""
    size = len(values)
    return size >= MIN_QUESTIONS and bool(values.mean() - CLEAR * values.std(ddof=1) / np.sqrt(size) > limit)


# ---------------------------------------------------------------- runs that cannot be compared


def mixed_questions(results: Results) -> dict[str, str]:
    """Benchmarks whose runs have different test questions, and what differs.

    Runs are compared question by question. So all runs must have the same questions in the same order: one checksum of
    the test split for each table of facts, and one number of questions.
    """
    checksums: dict[str, dict[str, set[str]]] = {}
    for run, record in results.provenance.items():
        if checksum := (record.get("data") or {}).get("test"):
            base_model = results.experiment.models[run.model].base_model(run.seed)
            data_set = results.experiment.benchmarks[run.benchmark].for_model(base_model).data_set
            checksums.setdefault(run.benchmark, {}).setdefault(data_set, set()).add(checksum)
    logs = pd.concat([results.validations, results.evaluations, results.bases])
    counts = logs["question_scores"].map(len).groupby(logs["benchmark"]).unique()
    most = {name: max(map(len, of.values())) for name, of in checksums.items()}
    found = {name: f"{number} different test files" for name, number in most.items() if number > 1}
    found |= {
        str(name): f"{' and '.join(map(str, sorted(there)))} test questions"
        for name, there in counts.items()
        if len(there) > 1
    }
    return {name: found[name] for name in results.experiment.benchmarks if name in found}
