"""Contrasts of scores with 95 % intervals over training runs and test questions together.

Everything that a report compares is a *contrast*: a weighted sum of mean scores, averaged over benchmarks. A score is
the contrast with one arm, a difference between two methods one with two. Its interval is
meant to cover the contrast's mean over other training runs (seeds) **and** other questions of the same kind.

A score varies with the run, with the question, and with both together (this part includes the noise of the samples).
The variance of a mean over crossed runs and questions is computed from three estimates (Cornfield and Tukey 1956; the
two-way case of Owen 2007, *The pigeonhole bootstrap*, and of Cameron, Gelbach and Miller 2011):

    V = V_questions + V_runs - V_both

``V_questions``
    The variance over questions of the contrast of each question (methods are compared on the same questions, so that
    hard questions do not count as noise), divided by the number of questions.
``V_runs``
    The sum over methods of the variance over runs of their means, divided by the number of runs.
``V_both``
    The part that both contain: the residual variance of run x question, divided by the number of pairs.

V is unbiased; where it is smaller than one of the first two, the larger of these is used. The interval is Student's t
with Satterthwaite's (1946) degrees of freedom. Skewed scores near 0 and 100 % make the variance over questions less
certain than its count says, so its degrees of freedom shrink with the kurtosis; the interval of a score or share itself
(not of a difference) is Wilson's with an effective number of questions, as for proportions of a survey (Korn and
Graubard 1998; Dean and Pagano 2015), and so stays within 0 and 100 %. If all questions give the same value,
there is no interval.

With one run of a method V_runs is unknown: the interval covers other questions only, unless a :class:`Spread` of runs,
measured on other methods of the experiment, replaces it. This is the better interval, but it assumes that the method
varies as the others do, which one run cannot show. So no claim is decided on it either
(:attr:`~srpo.analysis.results.estimates.Estimate.several_seeds`).

If seed s of every method starts from base model s, methods are paired by base model, and the differences of one base
model are one run of a single method. Its interval also covers other base models. They may shift
all benchmarks alike, so there are two estimates of V_runs: with independent benchmarks, and from one number per base
model, the mean over benchmarks. Of three estimates (V with either, and the second alone, because two or three base
models may vary too little by chance) the largest p-value counts at every level, and so the widest interval.

``bench/coverage.csv`` has the coverage.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from srpo.analysis.results.estimates import Estimate, SamplingUnit, Spread, Variance
from srpo.ground.errors import SrpoError

MIN_QUESTIONS = 8
"""Minimum number of questions, over all benchmarks, for an interval over questions."""


@dataclass(frozen=True)
class Arm:
    """The runs of one method on one benchmark.

    Attributes:
        values: seeds x questions, multiplied by the weight; one column if the number has no questions.
        fixed: whether there is no training run, as for a base model; then it adds no spread of runs.
        spread: between runs; used only if there is one run.
    """

    values: np.ndarray
    fixed: bool = False
    spread: Spread | None = None


# ---------------------------------------------------------------- the contrast


def contrast(
    strata: Sequence[Sequence[Arm]], bounds: tuple[float, float] | None = None, paired: bool = False
) -> Estimate:
    """The mean over ``strata`` (benchmarks) of the sum of their arms' means.

    Args:
        bounds: range of the values, if the contrast is a score and not a difference; the interval stays inside.
        paired: row s of every arm of every stratum starts from base model s.

    Raises:
        SrpoError: if there are no scores, or if arms of a stratum have different numbers of questions, or paired ones
            different numbers of runs.
    """
    _check(strata, paired)
    if paired and len(strata[0][0].values) > 1:
        strata = [[Arm(np.sum([arm.values for arm in arms], axis=0))] for arms in strata]
    by_question = [np.sum([arm.values.mean(axis=0) for arm in arms], axis=0) for arms in strata]
    value = float(np.mean([scores.mean() for scores in by_question]))
    questions = min(map(len, by_question))
    sampled = [arm for arms in strata for arm in arms if not arm.fixed]
    runs = min((len(arm.values) for arm in sampled), default=0)
    several, count = runs > 1, sum(map(len, by_question))
    over: SamplingUnit = "question"
    borrowed = [arm.spread for arm in sampled if len(arm.values) == 1 and arm.spread is not None]
    known = all(len(arm.values) > 1 or arm.spread is not None for arm in sampled)
    spread = borrowed[0] if borrowed and known else None
    if questions == 1 and not several and spread is None:
        return Estimate(value, reason="one run, and no questions to draw from")
    if several:
        over, count = ("seed and question" if questions > 1 else "seed"), runs
    elif questions == 1:
        over, count = "seed", runs
    paired = paired and several
    if reason := _too_little(by_question) if questions > 1 else "":
        return Estimate(value, over, count, reason=reason, paired=paired)
    variance = _variance(strata, known, bounds)
    found = [variance]
    if paired:
        found = _with_base_models(variance, [arms[0].values.mean(axis=1) for arms in strata])
        variance = found[0]
    (error, dof), *others = [each.error() for each in found]
    if error == 0:
        return Estimate(value, over, count, reason="all runs agree exactly", paired=paired)
    if bounds is not None and not bounds[0] < value < bounds[1]:
        return Estimate(value, over, count, reason="every score is 0 or 100 %", paired=paired)
    parts = variance if several and spread is None else None
    further = tuple(each for each in others if each[0])
    return Estimate(value, over, count, error, dof, further, bounds, spread, paired=paired, variance=parts)


def over_benchmarks(values: Sequence[float]) -> Estimate | None:
    """The mean of one value per benchmark with Student's interval over new benchmarks; None with fewer than three.

    It says whether a difference would also be found on other tasks, as far as these are a sample of such tasks.
    """
    if len(values) < 3:
        return None
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1)) / math.sqrt(len(values))
    if error == 0:
        return Estimate(mean, "benchmark", len(values), reason="all benchmarks agree exactly")
    return Estimate(mean, "benchmark", len(values), error, len(values) - 1)


def _check(strata: Sequence[Sequence[Arm]], paired: bool) -> None:
    if not strata or not all(strata) or any(0 in arm.values.shape for arms in strata for arm in arms):
        raise SrpoError("contrast without scores: give at least one run of each method on at least one benchmark")
    for arms in strata:
        questions = {arm.values.shape[1] for arm in arms}
        if len(questions) > 1:
            raise SrpoError(f"scores of {sorted(questions)} questions compared: runs of one benchmark share its split")
    if paired and len({len(arm.values) for arms in strata for arm in arms}) > 1:
        raise SrpoError("paired methods have different numbers of runs: give one run of each for every base model")


def _too_little(by_question: list[np.ndarray]) -> str:
    """Why these questions give no interval; empty if they give one."""
    total = sum(map(len, by_question))
    if total < MIN_QUESTIONS:
        return f"{total} questions are too few for an interval"
    return "every question gives the same value" if not any(map(np.ptp, by_question)) else ""


def _variance(strata: Sequence[Sequence[Arm]], use_spread: bool, bounds: tuple[float, float] | None) -> Variance:
    """The parts of the variance of the mean over ``strata``; benchmarks are independent."""
    questions: list[tuple[float, float]] = []
    runs: list[tuple[float, int]] = []
    added: list[tuple[float, float]] = []
    both, scale = 0.0, 1 / len(strata) ** 2
    for arms in strata:
        scores = np.sum([arm.values.mean(axis=0) for arm in arms], axis=0)
        size = len(scores)
        if size > 1:
            questions.append((scale * _question_variance(scores, bounds) / size, _question_dof(scores)))
        for arm in arms:
            seeds = len(arm.values)
            if arm.fixed:
                continue
            if seeds > 1:
                runs.append((scale * arm.values.mean(axis=1).var(ddof=1) / seeds, seeds))
                both += scale * _residual_variance(arm.values) / (seeds * size)
            elif use_spread and arm.spread is not None:
                added.append((scale * arm.spread.sd**2, arm.spread.dof))
    return Variance(questions, runs, both, added)


def _with_base_models(variance: Variance, means: Sequence[np.ndarray]) -> list[Variance]:
    """The three variances, the one with the widest 95 % interval first.

    By benchmark: ``variance``, as if base models moved each benchmark independently. By base model: the variance of one
    number per base model, with as many degrees of freedom as base models, minus one. It does not know other questions,
    so the third variance has it in the place of V_runs. ``bench/coverage.csv`` shows why the largest variance, with its
    own degrees of freedom, would be too small.

    Args:
        means: of each benchmark, one mean per base model.
    """
    by_model = np.mean(means, axis=0)
    between = float(by_model.var(ddof=1)) / len(by_model)
    shared = Variance([], [(between, len(by_model))], 0.0)
    three = [variance, shared, replace(variance, runs=shared.runs)]
    return sorted(three, key=lambda each: each.half_width(), reverse=True)


def _question_variance(scores: np.ndarray, bounds: tuple[float, float] | None) -> float:
    """Variance over questions. For a bounded score, one more question is added that is always or never solved.

    Near a bound all questions of the sample may be solved, although one in a hundred never is. The share of such
    questions is estimated by the score itself, moved slightly to the middle (Laplace's rule of succession).
    """
    size, variance = len(scores), float(scores.var(ddof=1))
    if bounds is None:
        return variance
    low, high = bounds
    share = (size * (scores.mean() - low) / (high - low) + 1) / (size + 2)
    return ((size - 1) * variance + share * (1 - share) * (high - low) ** 2) / size


def _question_dof(scores: np.ndarray) -> float:
    """Degrees of freedom of a variance over questions: fewer if scores have heavy tails."""
    size, deviations = len(scores), scores - scores.mean()
    variance = (deviations**2).mean()
    excess = max(0.0, (deviations**4).mean() / variance**2 - 3) if variance else 0.0
    return 2 / (2 / (size - 1) + excess / size)


def _residual_variance(values: np.ndarray) -> float:
    """Mean square of run x question (seeds x questions), at least two of each; 0 for one question."""
    seeds, size = values.shape
    if size == 1:
        return 0.0
    residual = values - values.mean(axis=0) - values.mean(axis=1, keepdims=True) + values.mean()
    return float((residual**2).sum()) / ((seeds - 1) * (size - 1))


def run_spread(arms: Sequence[np.ndarray]) -> Spread | None:
    """The spread of training runs, pooled over methods and benchmarks with several seeds.

    Args:
        arms: each seeds x questions; those with one seed are ignored.

    Returns:
        None if no method has several seeds.
    """
    several = [values for values in arms if len(values) > 1]
    if not several:
        return None
    dof = np.array([len(values) - 1 for values in several])
    raw = np.array([values.mean(axis=1).var(ddof=1) for values in several])
    noise = np.array([_residual_variance(values) / values.shape[1] for values in several])
    total = float(dof @ raw)
    # Satterthwaite: arms whose runs vary most count most, so there are fewer degrees of freedom than runs
    effective = total**2 / float(dof @ raw**2) if total else float(dof.sum())
    return Spread(math.sqrt(max(0.0, float(np.average(raw - noise, weights=dof)))), effective)
