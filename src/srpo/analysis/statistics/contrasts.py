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

With one run of a method V_runs is unknown: the interval covers other questions only, unless a :class:`Spread` of runs,
measured on other methods of the experiment, replaces it. That assumes that the method varies as the others do, which
one run cannot show, so no claim is decided on it (``Estimate.several_seeds``).

If seed s of every method starts from base model s, the differences of one base model are one run of a single method,
and the interval also covers other base models. They may shift all benchmarks alike, so V_runs is estimated with
independent benchmarks, and from one number per base model. Of three estimates (V with either, and the second alone,
because two or three base models may vary too little by chance) the largest p-value counts at every level.

``bench/coverage.csv`` has the coverage.
"""

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from srpo.analysis.statistics.estimates import Estimate, SamplingUnit, Spread, Variance

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
        ValueError: if there are no scores, or if arms of a stratum have different numbers of questions.
    """
    if not strata or not all(strata) or any(0 in arm.values.shape for arms in strata for arm in arms):
        raise ValueError("contrast without scores: give at least one run of each method on at least one benchmark")
    if any(len({arm.values.shape[1] for arm in arms}) > 1 for arms in strata):
        raise ValueError("scores of different questions compared: runs of one benchmark share its split")
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
    further = tuple(each for each in others if each[0])
    return Estimate(value, over, count, error, dof, further, bounds, spread, paired=paired)


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


# ---------------------------------------------------------------- contrasts of named methods and benchmarks


def combine(
    values: Values,
    terms: Terms,
    benchmarks: Iterable[str],
    bounds: tuple[float, float] | None = None,
    pooled: Iterable[tuple[str, str]] = (),
    paired: bool = False,
) -> Estimate | None:
    """The contrast of ``terms`` averaged over ``benchmarks``; None unless every benchmark has every term.

    Also None if its runs have different numbers of questions. Terms of one method are combined run by run, so that
    early and late of the same run are compared; different methods are different runs.

    Args:
        bounds: range of the weighted values of one term, or of each value: the interval stays within what is possible.
        pooled: (benchmark, method) pairs, from whose runs the spread is estimated for a method with one seed.
        paired: seed s of every method starts from base model s, so runs of one seed are subtracted. Only base models
            count for which every run is there.
    """
    weights_of, benchmarks, mean = _weights_by_method(terms), list(benchmarks), len(terms) == 1
    found = [_runs_of_methods(values, weights_of, benchmark, paired) for benchmark in benchmarks]
    strata = [runs for runs in found if runs is not None]
    if not strata or len(strata) < len(benchmarks):
        return None
    if paired:
        complete = shared_seeds([runs for stratum in strata for runs in stratum.values()])
        if not complete:
            return None
        strata = [{m: {seed: runs[seed] for seed in complete} for m, runs in arms.items()} for arms in strata]
    fixed = set() if paired else {BASE}
    alone = any(len(runs) == 1 and method not in fixed for arms in strata for method, runs in arms.items())
    spreads = {}
    if alone and (pooled := list(pooled)):
        spreads = {m: _spread(values, weights, pooled, paired) for m, weights in weights_of.items()}
    estimate = contrast(
        [
            [Arm(np.array([*runs.values()]), fixed=m in fixed, spread=spreads.get(m)) for m, runs in arms.items()]
            for arms in strata
        ],
        bounds if mean else None,
        paired,
    )
    if bounds is None or mean:
        return estimate
    ends = [[weight * end for end in bounds] for weight in terms.values()]
    return replace(estimate, limits=(sum(map(min, ends)), sum(map(max, ends))))


def available(values: Values, terms: Terms, benchmarks: Iterable[str], paired: bool = False) -> list[str]:
    """Those of ``benchmarks`` that have every term; if ``paired``, of a base model that all of them share."""
    weights_of = _weights_by_method(terms)
    found = {benchmark: _runs_of_methods(values, weights_of, benchmark, paired) for benchmark in benchmarks}
    there = {benchmark: runs for benchmark, runs in found.items() if runs is not None}
    if paired and not shared_seeds([runs for stratum in there.values() for runs in stratum.values()]):
        return []
    return list(there)


def _weights_by_method(terms: Terms) -> dict[str, dict[str, float]]:
    weights: dict[str, dict[str, float]] = {}
    for (method, when), weight in terms.items():
        weights.setdefault(method, {})[when] = weight
    return weights


def _runs_of_methods(
    values: Values, weights_of: Mapping[str, Mapping[str, float]], benchmark: str, paired: bool
) -> dict[str, Runs] | None:
    """The runs of each method; None if a method has none, if the numbers of questions differ, or nothing is paired."""
    found = {method: _weighted(values, benchmark, method, weights) for method, weights in weights_of.items()}
    if not all(found.values()) or len({len(scores) for runs in found.values() for scores in runs.values()}) > 1:
        return None
    return found if not paired or shared_seeds(found.values()) else None


def shared_seeds(found: Collection[Runs]) -> list[int]:
    """The seeds that all of these have."""
    return sorted(set.intersection(*(set(runs) for runs in found))) if found else []


def _weighted(values: Values, benchmark: str, method: str, weights: Mapping[str, float]) -> Runs:
    """The weighted sum over ``when`` of each run that has all terms."""
    found = {when: values.get((benchmark, method, when), {}) for when in weights}
    seeds = [seed for seed in next(iter(found.values())) if all(seed in of for of in found.values())]
    if len({len(by_seed[seed]) for by_seed in found.values() for seed in seeds}) > 1:
        return {}
    zero = np.zeros(1)
    return {seed: sum((weight * found[when][seed] for when, weight in weights.items()), zero) for seed in seeds}


def _spread(
    values: Values, weights: Mapping[str, float], pooled: Iterable[tuple[str, str]], paired: bool
) -> Spread | None:
    """The spread between runs of the same quantity, pooled over (benchmark, method) pairs with several runs."""
    by_benchmark: dict[str, list[Runs]] = {}
    for benchmark, method in pooled:
        if runs := _weighted(values, benchmark, method, weights):
            by_benchmark.setdefault(benchmark, []).append(runs)
    if paired:
        by_benchmark = {name: _without_base_models(arms) for name, arms in by_benchmark.items()}
    of_arms = [[*runs.values()] for arms in by_benchmark.values() for runs in arms]
    return run_spread([np.array(runs) for runs in of_arms if len(set(map(len, runs))) == 1])


def _without_base_models(arms: list[Runs]) -> list[Runs]:
    """Differences of two methods' runs by base model over the square root of 2: what is left varies with the run."""
    pairs: list[Runs] = []
    for one, other in itertools.pairwise(arms):
        seeds = [seed for seed in shared_seeds([one, other]) if len(one[seed]) == len(other[seed])]
        pairs.append({seed: (one[seed] - other[seed]) / math.sqrt(2) for seed in seeds})
    return pairs
