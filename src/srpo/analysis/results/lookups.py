"""Contrasts of any number of a run: scores, step metrics, seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from srpo.analysis.results.contrasts import Arm, Estimate, Spread, contrast, run_spread
from srpo.analysis.results.matrix import BASE

Terms = Mapping[tuple[str, str], float]
"""Weights by (method, when); ``when`` is a budget or a part of training, depending on the lookup."""
Lookup = Callable[[str, str, str], Mapping[int, np.ndarray]]
"""From (benchmark, method, when) to the values of each seed, one per question; empty if there are none."""


Cells = Iterable[tuple[str, str]]
"""(benchmark, method) pairs."""


def combine(
    lookup: Lookup,
    terms: Terms,
    benchmarks: Iterable[str],
    bounds: tuple[float, float] | None = None,
    family: Cells = (),
) -> Estimate | None:
    """The contrast of ``terms`` averaged over ``benchmarks``; None unless every benchmark has every term.

    Also None if its runs have different numbers of questions. Terms of one method are combined run by run, so that
    early and late of the same run are compared; different methods are different runs.

    Args:
        bounds: range of the values, if ``terms`` is one mean score (:func:`~srpo.analysis.results.contrasts.contrast`).
        family: the cells from which the spread between runs is estimated for a method with one seed.
    """
    strata = []
    weights_of = _weights_by_method(terms)
    for benchmark in benchmarks:
        arms = _arms(lookup, weights_of, benchmark)
        if arms is None:
            return None
        strata.append(arms)
    if not strata:
        return None
    alone = any(len(runs) == 1 and method != BASE for arms in strata for method, runs in arms.items())
    spreads = {}
    if alone and (family := list(family)):
        spreads = {method: _spread(lookup, weights, family) for method, weights in weights_of.items()}
    return contrast(
        [[Arm(runs, fixed=m == BASE, spread=spreads.get(m)) for m, runs in arms.items()] for arms in strata], bounds
    )


def available(lookup: Lookup, terms: Terms, benchmarks: Iterable[str]) -> list[str]:
    """Those of ``benchmarks`` that have every term."""
    weights_of = _weights_by_method(terms)
    return [benchmark for benchmark in benchmarks if _arms(lookup, weights_of, benchmark) is not None]


def benchmark_means(lookup: Lookup, terms: Terms, benchmarks: Iterable[str]) -> list[float]:
    """The value of the contrast on each benchmark alone, without an interval; every benchmark must have every term."""
    weights_of = _weights_by_method(terms)
    found = [_arms(lookup, weights_of, benchmark) for benchmark in benchmarks]
    return [float(np.sum([runs.mean(axis=0) for runs in arms.values()], axis=0).mean()) for arms in found if arms]


def _weights_by_method(terms: Terms) -> dict[str, dict[str, float]]:
    weights: dict[str, dict[str, float]] = {}
    for (method, when), weight in terms.items():
        weights.setdefault(method, {})[when] = weight
    return weights


def _arms(
    lookup: Lookup, weights_of: Mapping[str, Mapping[str, float]], benchmark: str
) -> dict[str, np.ndarray] | None:
    """Runs x questions of each method; None if a method has no run, or the numbers of questions differ."""
    arms = {}
    for method, weights in weights_of.items():
        runs = _runs(lookup, benchmark, method, weights)
        if runs is None:
            return None
        arms[method] = runs
    return arms if len({runs.shape[1] for runs in arms.values()}) == 1 else None


def _runs(lookup: Lookup, benchmark: str, method: str, weights: Mapping[str, float]) -> np.ndarray | None:
    """Runs x questions of the weighted sum over ``when``; None if no run has all terms."""
    found = {when: lookup(benchmark, method, when) for when in weights}
    seeds = [seed for seed in next(iter(found.values())) if all(seed in of for of in found.values())]
    if not seeds or len({len(by_seed[seed]) for by_seed in found.values() for seed in seeds}) > 1:
        return None
    return np.array([sum(weight * found[when][seed] for when, weight in weights.items()) for seed in seeds])


def _spread(lookup: Lookup, weights: Mapping[str, float], family: Cells) -> Spread | None:
    """The spread between runs of the same quantity, pooled over the cells with several runs."""
    found = [
        _runs(lookup, benchmark, method, weights)
        for benchmark, method in family
        if all(lookup(benchmark, method, when) for when in weights)
    ]
    return run_spread([runs for runs in found if runs is not None])


def estimate_columns(name: str, estimate: Estimate | None) -> dict[str, float | str]:
    """An estimate as columns of a frame."""
    if estimate is None:
        return {name: np.nan, f"{name}_low": np.nan, f"{name}_high": np.nan, f"{name}_unit": ""}
    ends = {f"{name}_low": estimate.low, f"{name}_high": estimate.high}
    return {name: estimate.value, **ends, f"{name}_unit": estimate.meaning if estimate.has_interval else ""}
