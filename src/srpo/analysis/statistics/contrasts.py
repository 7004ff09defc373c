"""Contrasts of scores with 95 % intervals over training runs and test questions together.

Everything that a report compares is a *contrast*: a weighted sum of mean scores, averaged over benchmarks. A score is
the contrast with one arm, a difference between two methods one with two. Its interval is meant to cover the contrast's
mean over other training runs (seeds) **and** other questions of the same kind.

The variance of a mean over crossed runs and questions is ``V = V_questions + V_runs - V_both`` (Cornfield and Tukey
1956; the two-way case of Owen 2007, *The pigeonhole bootstrap*, and of Cameron, Gelbach and Miller 2011).
``V_questions``: over questions, of the contrast of each question (methods answer the same ones), divided by their
number. ``V_runs``: the sum over methods of the variance of their runs' means, divided by the number of runs.
``V_both``, which both contain: the residual variance of run x question, divided by the number of pairs.

V is unbiased; where it is smaller than one of the first two, the larger of these is used. The interval is Student's t
with Satterthwaite's (1946) degrees of freedom. Skewed scores near 0 and 100 % make the variance over questions less
certain than its count says, so its degrees of freedom shrink with the kurtosis; the interval of a score or share itself
(not of a difference) is Wilson's with an effective number of questions, as for proportions of a survey (Korn and
Graubard 1998; Dean and Pagano 2015), and so stays within 0 and 100 %.

With one run of a method V_runs is unknown: the interval covers other questions only, and no claim is decided on it
(``Estimate.several_seeds``).

If seed s of every method starts from base model s, the differences of one base model are one run of a single method,
and the interval also covers other base models. They may shift all benchmarks alike, so V_runs is estimated with
independent benchmarks, and from one number per base model. Of three estimates (V with either, and the second alone,
because two or three base models may vary too little by chance) the largest p-value counts at every level.

``bench/coverage.csv`` has the coverage.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from srpo.analysis.statistics.estimates import Estimate, SamplingUnit, Variance

MIN_QUESTIONS = 8
"""Minimum number of questions, over all benchmarks, for an interval over questions."""

BASE = "base"
"""The untrained model stands among the methods, and when its score is taken among the budgets."""

Terms = Mapping[tuple[str, str], float]
"""Weights by (method, when); ``when`` is a budget or a part of training."""
Runs = Mapping[int, np.ndarray]
"""Values of runs by seed, one per question."""
Values = Mapping[tuple[str, str, str], Runs]
"""The runs that have a number, by (benchmark, method, when)."""


@dataclass(frozen=True)
class Arm:
    """The runs of one method on one benchmark.

    Attributes:
        values: seeds x questions, multiplied by the weight; one column if the number has no questions.
        fixed: whether there is no training run, as for a base model; then it adds no spread of runs.
    """

    values: np.ndarray
    fixed: bool = False


# ---------------------------------------------------------------- the contrast


def contrast(
    strata: Sequence[Sequence[Arm]], bounds: tuple[float, float] | None = None, paired: bool = False
) -> Estimate:
    """The mean over ``strata`` (benchmarks) of the sum of their arms' means.

    Args:
        bounds: range of the values, if the contrast is a score and not a difference; the interval stays inside.
        paired: row s of every arm of every stratum starts from base model s.
    """
    if paired and len(strata[0][0].values) > 1:
        strata = [[Arm(np.sum([arm.values for arm in arms], axis=0))] for arms in strata]
    by_question = [np.sum([arm.values.mean(axis=0) for arm in arms], axis=0) for arms in strata]
    value = float(np.mean([scores.mean() for scores in by_question]))
    questions = min(map(len, by_question))
    sampled = [arm for arms in strata for arm in arms if not arm.fixed]
    runs = min((len(arm.values) for arm in sampled), default=0)
    several, count = runs > 1, sum(map(len, by_question))
    over: SamplingUnit = "question"
    if questions == 1 and not several:
        return Estimate(value, reason="one run, and no questions to draw from")
    if several:
        over, count = ("seed and question" if questions > 1 else "seed"), runs
    paired = paired and several
    if reason := _too_little(by_question) if questions > 1 else "":
        return Estimate(value, over, count, reason=reason, paired=paired)
    variance = _variance(strata, bounds)
    found = [variance]
    if paired:
        found = _with_base_models(variance, [arms[0].values.mean(axis=1) for arms in strata])
        variance = found[0]
    (error, dof), *others = [each.error() for each in found]
    if error == 0:
        return Estimate(value, over, count, reason="all runs agree exactly", paired=paired)
    if bounds is not None and not bounds[0] < value < bounds[1]:
        return Estimate(value, over, count, reason="every score is 0 or 100 %", paired=paired)
    further = tuple(each for each in others if each[0])
    return Estimate(value, over, count, error, dof, further, bounds, paired=paired)


def _too_little(by_question: list[np.ndarray]) -> str:
    """Why these questions give no interval; empty if they give one."""
    total = sum(map(len, by_question))
    if total < MIN_QUESTIONS:
        return f"{total} questions are too few for an interval"
    return "every question gives the same value" if not any(map(np.ptp, by_question)) else ""


def _variance(strata: Sequence[Sequence[Arm]], bounds: tuple[float, float] | None) -> Variance:
    """The parts of the variance of the mean over ``strata``; benchmarks are independent."""
    questions: list[tuple[float, float]] = []
    runs: list[tuple[float, int]] = []
    both, scale = 0.0, 1 / len(strata) ** 2
    for arms in strata:
        scores = np.sum([arm.values.mean(axis=0) for arm in arms], axis=0)
        size = len(scores)
        if size > 1:
            questions.append((scale * _question_variance(scores, bounds) / size, _question_dof(scores)))
        for arm in arms:
            seeds = len(arm.values)
            if seeds > 1 and not arm.fixed:
                runs.append((scale * arm.values.mean(axis=1).var(ddof=1) / seeds, seeds))
                both += scale * _residual_variance(arm.values) / (seeds * size)
    return Variance(questions, runs, both)


def _with_base_models(variance: Variance, means: Sequence[np.ndarray]) -> list[Variance]:
    """The three variances, the one with the widest 95 % interval first.

    By benchmark: ``variance``, as if base models moved each benchmark independently. By base model: the variance of one
    number per base model (``means`` by benchmark). It does not know other questions, so the third variance has it in
    the place of V_runs. ``bench/coverage.csv`` shows why the largest variance alone would be too small.
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


# ---------------------------------------------------------------- contrasts of named methods and benchmarks


def combine(
    values: Values,
    terms: Terms,
    benchmarks: Iterable[str],
    bounds: tuple[float, float] | None = None,
    paired: bool = False,
) -> Estimate | None:
    """The contrast of ``terms`` averaged over ``benchmarks``; None unless every benchmark has every term.

    Also None if its runs have different numbers of questions. Terms of one method are combined run by run, so that
    early and late of the same run are compared; different methods are different runs.

    Args:
        bounds: range of the weighted values of one term, or of each value: the interval stays within what is possible.
        paired: seed s of every method starts from base model s, so runs of one seed are subtracted. Only base models
            count for which every run is there.
    """
    benchmarks, mean, fixed = list(benchmarks), len(terms) == 1, set() if paired else {BASE}
    found = _runs(values, terms, benchmarks, paired)
    if not found or len(found) < len(benchmarks):
        return None
    strata = [
        [Arm(np.array([*runs.values()]), method in fixed) for method, runs in arms.items()] for arms in found.values()
    ]
    estimate = contrast(strata, bounds if mean else None, paired)
    if bounds is None or mean:
        return estimate
    ends = [[weight * end for end in bounds] for weight in terms.values()]
    return replace(estimate, limits=(sum(map(min, ends)), sum(map(max, ends))))


def available(values: Values, terms: Terms, benchmarks: Iterable[str], paired: bool = False) -> list[str]:
    """Those of ``benchmarks`` that have every term; if ``paired``, of a base model that all of them share."""
    return list(_runs(values, terms, benchmarks, paired))


def _runs(values: Values, terms: Terms, benchmarks: Iterable[str], paired: bool) -> dict[str, dict[str, Runs]]:
    """The runs of each method, on the benchmarks where each has some and all have the same number of questions.

    If ``paired``, only the runs of base models of which every one of these benchmarks has all runs.
    """
    found = {}
    for benchmark in benchmarks:
        arms = {method: _weighted(values, benchmark, method, of) for method, of in _by_method(terms).items()}
        questions = {len(scores) for runs in arms.values() for scores in runs.values()}
        if all(arms.values()) and len(questions) == 1 and not (paired and not _shared(arms.values())):
            found[benchmark] = arms
    if not paired:
        return found
    complete = _shared([runs for arms in found.values() for runs in arms.values()])
    return {
        benchmark: {method: {seed: runs[seed] for seed in complete} for method, runs in arms.items()}
        for benchmark, arms in found.items()
        if complete
    }


def _by_method(terms: Terms) -> dict[str, dict[str, float]]:
    """The weights of each method's terms, by ``when``."""
    weights: dict[str, dict[str, float]] = {}
    for (method, when), weight in terms.items():
        weights.setdefault(method, {})[when] = weight
    return weights


def _shared(runs: Collection[Runs]) -> list[int]:
    """The seeds that all of ``runs`` have."""
    return sorted(set.intersection(*map(set, runs))) if runs else []


def _weighted(values: Values, benchmark: str, method: str, weights: Mapping[str, float]) -> Runs:
    """The weighted sum over ``when`` of each run that has all terms."""
    found = {when: values.get((benchmark, method, when), {}) for when in weights}
    seeds = [seed for seed in next(iter(found.values())) if all(seed in of for of in found.values())]
    if len({len(by_seed[seed]) for by_seed in found.values() for seed in seeds}) > 1:
        return {}
    zero = np.zeros(1)
    return {seed: sum((weight * found[when][seed] for when, weight in weights.items()), zero) for seed in seeds}
