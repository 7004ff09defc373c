"""Coverage of the report's intervals, and the rate of false verdicts, in simulated experiments.

    python bench/verdicts.py [--experiments 2000]

Prints the tables of docs/coverage.md after the first. test_contrasts.py and test_cross_fit.py check the
same numbers in seconds, with wide margins.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from made_up_scores import World, late_drops, level, null_difference, selection_biases, true_drop

from srpo.analysis.results.cross_fit import late_drop
from srpo.analysis.results.estimates import Spread
from srpo.analysis.results.power import assumed, half_width, power, sample_noise, seeds_needed

RUN_SDS = (0, 1, 2, 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--experiments", type=int, default=2000, help="simulated experiments per row")
    options = parser.parse_args()
    many, few = options.experiments, max(50, options.experiments // 4)
    _show("Difference of two equal methods: coverage %, false verdict %, by the SD between runs (points)", _nulls(many))
    _show("The same with one seed and an SD between runs measured on ten other runs", _borrowed(many))
    _show("Near the ceiling and with few questions, run SD 1", _ceilings(many))
    _show("A score itself", _levels(many))
    _show("Late drop, five benchmarks of 50 questions", _drops(few))
    _show("Selection: points above the truth, 24 equally good checkpoints", _selection(many))
    _show("What seeds resolve: five benchmarks of 100 questions, 16 samples", _power())


def _nulls(many: int) -> Iterator[list[str]]:
    yield ["benchmarks", "questions", "seeds", "difficulty differs", *(f"SD {sd}" for sd in RUN_SDS)]
    for benchmarks in (1, 5):
        for questions in (30, 50, 210):
            for seeds in (1, 2, 3, 5):
                for taste in (0.0, 1.0):
                    world = World(questions=questions, seeds=seeds, taste=taste)
                    count = many if benchmarks * questions < 1000 else many // 2
                    rates = [null_difference(_rng(), replace(world, run_sd=sd), benchmarks, count) for sd in RUN_SDS]
                    shown = [f"{r.coverage:.1f}, {r.false_above:.1f}" for r in rates]
                    yield [str(benchmarks), str(questions), str(seeds), "yes" if taste else "no", *shown]


def _borrowed(many: int) -> Iterator[list[str]]:
    yield ["the others' SD", "benchmarks", "questions", *(f"SD {sd}" for sd in RUN_SDS)]
    rng = _rng()
    for others, share in (("the same", 1.0), ("half", 0.5)):
        for benchmarks in (1, 5):
            for questions in (50, 210):
                cells = []
                for sd in RUN_SDS:
                    world = World(questions=questions, run_sd=sd, taste=1.0)
                    covered = above = 0
                    for _ in range(many):
                        measured = Spread(share * sd * np.sqrt(rng.chisquare(10) / 10), 10)
                        rates = null_difference(rng, world, benchmarks, 1, measured)
                        covered, above = covered + rates.covered, above + rates.above
                    cells.append(f"{100 * covered / many:.1f}, {100 * above / many:.1f}")
                yield [others, str(benchmarks), str(questions), *cells]


def _ceilings(many: int) -> Iterator[list[str]]:
    means = (0.9, 0.95, 0.99)
    yield ["benchmarks", "questions", "seeds", *(f"mean {mean:.0%}" for mean in means)]
    for benchmarks in (1, 5):
        for questions in (10, 20, 50, 210):
            for seeds in (1, 3):
                world = World(questions=questions, seeds=seeds, taste=0.5, run_sd=1.0 if seeds > 1 else 0.0)
                rates = [null_difference(_rng(), replace(world, mean=m), benchmarks, many // 2) for m in means]
                yield [str(benchmarks), str(questions), str(seeds), *map(_with_none, rates)]


def _levels(many: int) -> Iterator[list[str]]:
    means = (0.6, 0.95, 0.99)
    yield ["benchmarks", "questions", "seeds", *(f"mean {mean:.0%}" for mean in means)]
    for benchmarks in (1, 5):
        for questions in (10, 20, 50, 210):
            for seeds in (1, 3):
                world = World(questions=questions, seeds=seeds)
                rates = [level(_rng(), replace(world, mean=mean), benchmarks, many // 2) for mean in means]
                yield [str(benchmarks), str(questions), str(seeds), *map(_with_none, rates)]


def _with_none(rates) -> str:
    return f"{rates.coverage:.1f}, {rates.false_above:.1f}" + (f" (none {rates.none:.0f})" if rates.none else "")


def _drops(many: int) -> Iterator[list[str]]:
    yield ["measured", "seeds", "simulated drop", "true", "estimate", "coverage %", "above the truth %"]
    for name, measure in (("best window on the same questions", _same_questions), ("cross-fitted", late_drop)):
        for seeds in (1, 3):
            for planted in (0.0, 5.0):
                world = World(seeds=seeds)
                rates = late_drops(_rng(), world, planted, measure, 5, many)
                truth = true_drop(world, planted)
                yield [name, str(seeds), f"{planted:.0f}", f"{truth:.1f}", *_drop_cells(rates)]
    for seeds in (1, 3):
        for planted in (0.0, 5.0):
            world = World(seeds=seeds)
            rates = late_drops(_rng(), world, planted, late_drop, 5, many, against=0.0)
            truth = f"{rates.truth:.1f}"
            yield [
                "cross-fitted, minus that of a method without drop",
                str(seeds),
                f"{planted:.0f}",
                truth,
                *_drop_cells(rates),
            ]


def _drop_cells(rates) -> list[str]:
    return [f"{rates.mean:.2f}", f"{rates.coverage:.1f}", f"{rates.false_above:.1f}"]


def _same_questions(scores: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(scores, 3, axis=0).mean(axis=-1)
    return windows[windows.mean(axis=1).argmax()] - windows[-1]


def _selection(many: int) -> Iterator[list[str]]:
    yield ["questions", "in-training maximum", "resampled", "cross-fitted"]
    for questions in (50, 210):
        biases = selection_biases(_rng(), World(questions=questions, taste=0.7), many)
        yield [str(questions), *(f"{biases[name]:+.2f}" for name in ("in_training", "resampled", "cross_fitted"))]


def _power() -> Iterator[list[str]]:
    yield ["run SD", "seeds", "± interval", "power for +1.8", "power for +3.4", "seeds for +1.8"]
    for sd in (1, 2, 4):
        variance = assumed(sd, 5, sample_noise(100, 16))
        for seeds in (2, 3, 5, 7):
            found = [f"{100 * power(variance, effect, seeds):.0f} %" for effect in (1.8, 3.4)]
            needed = str(seeds_needed(variance, 1.8))
            yield [str(sd), str(seeds), f"{half_width(variance, seeds):.1f}", *found, needed]


_ROWS = itertools.count()


def _rng() -> np.random.Generator:
    """Another stream for each row."""
    return np.random.default_rng([13, next(_ROWS)])


def _show(title: str, rows: Iterable[list[str]]) -> None:
    print(f"\n{title}\n")
    for number, row in enumerate(rows):
        print(f"| {' | '.join(row)} |", flush=True)
        if not number:
            print(f"| {' | '.join('---' for _ in row)} |")


if __name__ == "__main__":
    main()
