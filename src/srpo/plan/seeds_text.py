"""Sentences on which differences the planned seeds would resolve, before there are runs."""

from collections import Counter
from collections.abc import Iterable, Mapping

from srpo.analysis.statistics.power import ASSUMED_RUN_SD, EFFECT, MAX_SEEDS, assumed, half_width, seeds_needed
from srpo.ground.layout import RunId
from srpo.ground.text import joined


def assumed_sentences(
    runs: Iterable[RunId], titles: Mapping[str, str], noise_sd: float, paired: bool = False
) -> list[str]:
    """Which differences the planned seeds of one model's methods would resolve if nothing but runs and samples varied.

    A method has as many seeds as on the benchmark with the fewest: there a comparison knows least about its runs.

    Args:
        titles: of the methods, by name.
        noise_sd: what the samples add (:func:`~srpo.analysis.statistics.power.sample_noise`), points.
        paired: each seed has its own base model.
    """
    seeds: dict[str, Counter[str]] = {}
    for run in runs:
        seeds.setdefault(run.method, Counter())[run.benchmark] += 1
    fewest = {method: min(by_benchmark.values()) for method, by_benchmark in seeds.items()}
    benchmarks = len({benchmark for by_benchmark in seeds.values() for benchmark in by_benchmark})
    variance = assumed(ASSUMED_RUN_SD, benchmarks, noise_sd, paired)
    sentences = []
    for count in sorted({*fewest.values()}, reverse=True):
        names = joined([titles[method] for method in seeds if fewest[method] == count])
        said = f"{count} seeds would resolve ±{half_width(variance, count):.1f} points between two methods"
        said = "one seed resolves nothing" if count == 1 else said
        sentences.append(f"{names}: {said}, {count + 1} seeds ±{half_width(variance, count + 1):.1f}.")
    over = "one benchmark" if benchmarks == 1 else f"an average over {benchmarks} benchmarks"
    needed = seeds_needed(variance, EFFECT)
    return [
        *sentences,
        f"This is for {over}, if runs have an SD of {ASSUMED_RUN_SD:.1f} points (assumed) and methods find the same "
        f"questions hard; measured intervals are wider. An effect as small as the paper's +{EFFECT} for weighting "
        f"would need {needed or f'more than {MAX_SEEDS}'} seeds (80 % power).",
    ]
