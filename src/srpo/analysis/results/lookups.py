"""Contrasts of any number of a run: scores, step metrics, seconds."""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from srpo.analysis.results.contrasts import Arm, contrast, run_spread
from srpo.analysis.results.estimates import Estimate, Spread
from srpo.analysis.results.matrix import BASE

Terms = Mapping[tuple[str, str], float]
"""Weights by (method, when); ``when`` is a budget or a part of training, depending on the lookup."""
Lookup = Callable[[str, str, str], Mapping[int, np.ndarray]]
"""From (benchmark, method, when) to the values of each seed, one per question; empty if there are none."""

Runs = dict[str, dict[int, np.ndarray]]
"""Values of each method's runs by seed, one per question."""


def combine(
    lookup: Lookup,
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
    found = [_runs_of_methods(lookup, weights_of, benchmark, paired) for benchmark in benchmarks]
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
        spreads = {m: _spread(lookup, weights, pooled, paired) for m, weights in weights_of.items()}
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


def available(lookup: Lookup, terms: Terms, benchmarks: Iterable[str], paired: bool = False) -> list[str]:
    """Those of ``benchmarks`` that have every term; if ``paired``, of a base model that all of them share."""
    weights_of = _weights_by_method(terms)
    found = {benchmark: _runs_of_methods(lookup, weights_of, benchmark, paired) for benchmark in benchmarks}
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
    lookup: Lookup, weights_of: Mapping[str, Mapping[str, float]], benchmark: str, paired: bool
) -> Runs | None:
    """The runs of each method; None if a method has none, if the numbers of questions differ, or nothing is paired."""
    found: Runs = {}
    for method, weights in weights_of.items():
        runs = _runs(lookup, benchmark, method, weights)
        if not runs:
            return None
        found[method] = runs
    if len({len(values) for runs in found.values() for values in runs.values()}) > 1:
        return None
    return found if not paired or shared_seeds(found.values()) else None


def shared_seeds(found: Collection[Mapping[int, np.ndarray]]) -> list[int]:
    """The seeds that all of these have."""
    return sorted(set.intersection(*(set(runs) for runs in found))) if found else []


def _runs(lookup: Lookup, benchmark: str, method: str, weights: Mapping[str, float]) -> dict[int, np.ndarray]:
    """The weighted sum over ``when`` of each run that has all terms."""
    found = {when: lookup(benchmark, method, when) for when in weights}
    seeds = [seed for seed in next(iter(found.values())) if all(seed in of for of in found.values())]
    if len({len(by_seed[seed]) for by_seed in found.values() for seed in seeds}) > 1:
        return {}
    zero = np.zeros(1)
    return {seed: sum((weight * found[when][seed] for when, weight in weights.items()), zero) for seed in seeds}


def _spread(
    lookup: Lookup, weights: Mapping[str, float], pooled: Iterable[tuple[str, str]], paired: bool
) -> Spread | None:
    """The spread between runs of the same quantity, pooled over (benchmark, method) pairs with several runs."""
    by_benchmark: dict[str, list[dict[int, np.ndarray]]] = {}
    for benchmark, method in pooled:
        if runs := _runs(lookup, benchmark, method, weights):
            by_benchmark.setdefault(benchmark, []).append(runs)
    if paired:
        by_benchmark = {name: _without_base_models(arms) for name, arms in by_benchmark.items()}
    of_arms = [[*runs.values()] for arms in by_benchmark.values() for runs in arms]
    return run_spread([np.array(runs) for runs in of_arms if len(set(map(len, runs))) == 1])


def _without_base_models(arms: list[dict[int, np.ndarray]]) -> list[dict[int, np.ndarray]]:
    """Differences of two methods' runs by base model over the square root of 2: what is left varies with the run."""
    pairs = []
    for one, other in itertools.pairwise(arms):
        seeds = [seed for seed in shared_seeds([one, other]) if len(one[seed]) == len(other[seed])]
        pairs.append({seed: (one[seed] - other[seed]) / math.sqrt(2) for seed in seeds})
    return pairs


def estimate_columns(name: str, estimate: Estimate | None) -> dict[str, float | str]:
    """An estimate as columns of a frame."""
    if estimate is None:
        return {name: np.nan, f"{name}_low": np.nan, f"{name}_high": np.nan, f"{name}_unit": ""}
    ends = {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {name: estimate.value, **ends, f"{name}_unit": estimate.meaning if estimate.has_interval else ""}
