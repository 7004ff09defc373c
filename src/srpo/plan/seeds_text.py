"""Sentences on which differences the planned seeds would resolve, before there are runs."""

from collections import Counter
from collections.abc import Iterable, Mapping

from srpo.analysis.results.power import ASSUMED_RUN_SD, EFFECT, MAX_SEEDS, assumed, half_width, seeds_needed
from srpo.ground.layout import RunId
from srpo.ground.text import joined


def methods_by_seeds(runs: Iterable[RunId], titles: Mapping[str, str]) -> list[tuple[int, list[str]]]:
    """Numbers of seeds, the largest first, with the titles of the methods that have as many.

    A method has as many seeds as on the benchmark with the fewest: there a comparison knows least about its runs.
    """
    seeds: dict[str, Counter[str]] = {}
    for run in runs:
        seeds.setdefault(run.method, Counter())[run.benchmark] += 1
    methods: dict[int, list[str]] = {}
    for method, by_benchmark in seeds.items():
        methods.setdefault(min(by_benchmark.values()), []).append(titles[method])
    return sorted(methods.items(), reverse=True)


def assumed_sentences(
    runs: Iterable[RunId], titles: Mapping[str, str], noise_sd: float, run_sd: float | None = None, paired: bool = False
) -> list[str]:
    """Which differences the planned seeds of one model's methods would resolve if nothing but runs and samples varied.

    Args:
        runs: the planned runs, one or more.
        titles: of the methods, by name.
        noise_sd: what the samples add (:func:`~srpo.analysis.results.power.sample_noise`), points.
        run_sd: the measured SD between seeds, points; None uses an assumption and says so.
        paired: each seed has its own base model.
    """
    runs = [*runs]
    benchmarks = len({run.benchmark for run in runs})
    sd, known = (ASSUMED_RUN_SD, "assumed") if run_sd is None else (run_sd, "measured")
    variance = assumed(sd, benchmarks, noise_sd, paired)
    sentences = []
    for count, names in methods_by_seeds(runs, titles):
        said = f"{count} seeds would resolve ±{half_width(variance, count):.1f} points between two methods"
        said = "one seed resolves nothing" if count == 1 else said
        sentences.append(f"{joined(names)}: {said}, {count + 1} seeds ±{half_width(variance, count + 1):.1f}.")
    over = "one benchmark" if benchmarks == 1 else f"an average over {benchmarks} benchmarks"
    needed = seeds_needed(variance, EFFECT)
    return [
        *sentences,
        f"This is for {over}, if runs have an SD of {sd:.1f} points ({known}) and methods find the same questions "
        f"hard; measured intervals are wider. An effect as small as the paper's +{EFFECT} for weighting would need "
        f"{needed or f'more than {MAX_SEEDS}'} seeds (80 % power).",
    ]
