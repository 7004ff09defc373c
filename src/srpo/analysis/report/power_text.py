"""Sentences on which differences the seeds of an experiment resolve: measured, or assumed before there are runs."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from srpo.analysis.results.estimates import LEVEL, Estimate
from srpo.analysis.results.power import ASSUMED_RUN_SD, EFFECT, MAX_SEEDS, assumed, half_width, seeds_needed
from srpo.layout import RunId
from srpo.text import joined, plural, span


def measured_sentences(estimates: Sequence[Estimate]) -> list[str]:
    """What the runs of these contrasts resolve, as a range over the contrasts, and what more runs would.

    Args:
        estimates: of the primary claims of one model, each with several runs of every method.
    """
    variances = [estimate.variance for estimate in estimates if estimate.variance is not None]
    if not variances:
        return []
    seeds = min(estimate.count for estimate in estimates)
    runs = "base models" if any(estimate.paired for estimate in estimates) else "seeds"
    corrected = 1 - (1 - LEVEL) / len(variances)

    def resolved(number: int, level: float = LEVEL) -> str:
        widths = [half_width(variance, number, level) for variance in variances]
        return f"±{span(f'{min(widths):.1f}', f'{max(widths):.1f}')}"

    needed = [seeds_needed(variance, EFFECT) or math.inf for variance in variances]
    numbers = span(f"{min(needed):g}", f"{max(needed):g}").replace("inf", f"more than {MAX_SEEDS}")
    at_holm = f" (at the first step of Holm's correction {resolved(seeds, corrected)})" if len(variances) > 1 else ""
    return [
        f"Measured on {plural(len(variances), 'primary difference')}: {seeds} {runs} resolve {resolved(seeds)} points"
        f"{at_holm}, {seeds + 1} would resolve {resolved(seeds + 1)}.",
        f"An effect as small as the paper's +{EFFECT} for weighting would need {numbers} {runs} (80 % power).",
    ]


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
