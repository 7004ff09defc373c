"""False alarms and lead times of the watch for falls, on the runs of finished experiments.

    python bench/watch.py results/embedded-full [results/matched ...] [--runs]
    python bench/watch.py --simulate     # writes bench/watch.csv

A run has collapsed if the report says so (`analysis/results/collapse.py`). Its fall is the first validation from which
on no three validations in a row come back to the level that it lost. The lead is the number of steps from a rule's
signal to the fall; it is negative if the signal came later.

`--simulate` needs no runs. Sound runs rise and stand still, while their entropy halves with a noise of 10 %. In
planted falls the entropy doubles every 40 of 450 steps, after it has kept a share of its first value, and 100 steps
after that began the score loses 30 points. The lead is to the step at which the true score is 5 points under its best.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from srpo.analysis.results.collapse import DROP, run_ends
from srpo.analysis.results.cross_fit import WINDOW
from srpo.analysis.results.load import RunKey, by_run, load_results, records
from srpo.analysis.results.matrix import BASE, is_paired, planned
from srpo.analysis.results.run_logs import RunLogs
from srpo.analysis.results.scores import Scores
from srpo.training.watch import RULES, SECONDS, VALIDATION, Signal, reference_steps, signals_of


@dataclass
class Watched:
    """A finished run: the step of its fall, None if it did not collapse; its signals as step by rule and level.

    ``judged``: the rules whose numbers its logs have.
    """

    run: RunKey
    fall: int | None
    judged: set[str]
    signals: dict[tuple[str, str], int] = field(default_factory=dict)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="*", help="results folders of experiments")
    parser.add_argument("--simulate", action="store_true", help="simulate sound and planted runs instead")
    parser.add_argument("--runs", action="store_true", help="also print every run with a signal or a collapse")
    options = parser.parse_args()
    if options.simulate:
        simulate()
        return
    runs = [run for folder in options.results for run in read(folder)]
    collapsed, sound = [r for r in runs if r.fall is not None], [r for r in runs if r.fall is None]
    print(f"{len(runs)} runs: {len(collapsed)} collapsed, {len(sound)} did not\n")
    heads = ["rule", "level", "collapsed: signal before the fall", "later", "none", "lead, steps: median (range)"]
    heads += ["not collapsed: signal", "none"]
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}")
    for rule in [*[rule.name for rule in RULES], "any rule"]:
        for level in ("alarm", "warn"):
            print(f"| {' | '.join([rule, level, *map(str, row(rule, level, collapsed, sound))])} |")
    if options.runs:
        for run in runs:
            if run.signals or run.fall is not None:
                signals = ", ".join(f"{level} {rule} {step}" for (rule, level), step in run.signals.items())
                print(f"{'/'.join(map(str, run.run))}: fall {run.fall}; {signals}")


def simulate(runs: int = 200) -> None:
    """Write ``bench/watch.csv``: percent of simulated runs with a signal, and its median lead, by rule and level."""
    rows = []
    for number, (name, shape) in enumerate(SHAPES.items()):
        for kept in (None, 1.0, 0.7, 0.5):
            rng, leads = np.random.default_rng([47, number, int(10 * (kept or 0))]), {}
            for _ in range(runs):
                signals, fall = planted(rng, kept, *shape)
                spoken = {(signal.rule, level) for signal in signals for level in LEVELS[signal.level]}
                for key in spoken | {("any rule", level) for _, level in spoken}:
                    steps = [s.step for s in signals if key[0] in (s.rule, "any rule") and key[1] in LEVELS[s.level]]
                    leads.setdefault(key, []).append(fall - min(steps))
            kind = "sound" if kept is None else f"entropy rises from {kept:.0%} of its first value"
            for (rule, level), found in sorted(leads.items()):
                before = 100 * sum(lead > 0 for lead in found) / runs
                percent, lead = f"{100 * len(found) / runs:.1f}", f"{median(found):g}"
                rows.append(
                    [name, kind, rule, level, runs, percent, *([""] * 2 if kept is None else [f"{before:.1f}", lead])]
                )
    heads = [
        "shape",
        "runs",
        "rule",
        "level",
        "number",
        "percent with signal",
        "percent before the fall",
        "median lead",
    ]
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([heads, *rows])


LEVELS = {"alarm": ("alarm", "warn"), "warn": ("warn",)}
"""An alarm counts as a warning, too."""

SHAPES = {
    "miniature: 64 questions x 8 samples, validation every 3 of 90 steps": (64, 8, 90, 3),
    "paper, chemistry: 210 x 16, every 5 of 450": (210, 16, 450, 5),
    "paper, biology: 50 x 16, every 5 of 450": (50, 16, 450, 5),
}


def planted(
    rng: np.random.Generator, kept: float | None, questions: int, samples: int, steps: int, every: int
) -> tuple[list[Signal], int]:
    """The signals of a run whose entropy rises after it has ``kept`` a share, and the step of its fall.

    None: the run is sound, and its entropy falls to a half.
    """
    at = np.arange(1, steps + 1)
    onset = int(rng.uniform(0.35, 0.6) * steps) if kept is not None else steps + 200
    share, pace = 0.5 if kept is None else kept, steps / 450
    entropy = 0.5 * (share + (1 - share) * np.exp(-4 * at / steps)) * 2 ** (np.maximum(0, at - onset) / (40 * pace))
    entropy = entropy * np.exp(rng.normal(0, 0.1, steps))
    fall = onset + round(110 * pace)
    score = 0.7 - 0.3 * np.exp(-6 * at / steps) - 0.3 * np.clip((at - onset - 100 * pace) / (60 * pace), 0, 1)
    hardness = rng.normal(0, 1.5, questions)
    log = [{"step": int(i), "metrics": {"student/entropy": float(e)}} for i, e in zip(at, entropy, strict=True)]
    validations = []
    for step in range(every, steps + 1, every):
        level = np.log(score[step - 1] / (1 - score[step - 1]))
        solved = rng.binomial(samples, 1 / (1 + np.exp(-level - hardness)))
        there = rng.binomial(questions * samples, 0.995) / (questions * samples)
        validations.append({"step": step, "avg_at_k": float(solved.mean() / samples), "format_fraction": there})
    return signals_of(log, validations, 10 if steps > 200 else 5), fall


def row(rule: str, level: str, collapsed: list[Watched], sound: list[Watched]) -> list[object]:
    """The counts and leads of a rule, of runs whose logs have its number; an alarm counts as a warning, too."""
    leads, none = [], 0
    for run in (run for run in collapsed if rule in run.judged):
        if (step := first(run, rule, level)) is None:
            none += 1
        elif run.fall is not None:
            leads.append(run.fall - step)
    judged = [run for run in sound if rule in run.judged]
    false = sum(first(run, rule, level) is not None for run in judged)
    before = [lead for lead in leads if lead > 0]
    shown = f"{median(leads):g} ({min(leads)} to {max(leads)})" if leads else "–"
    return [len(before), len(leads) - len(before), none, shown, false, len(judged) - false]


def first(run: Watched, rule: str, level: str) -> int | None:
    """The step of the first signal of at least this level."""
    levels = ("alarm",) if level == "alarm" else ("alarm", "warn")
    steps = [s for (name, at), s in run.signals.items() if at in levels and rule in (name, "any rule")]
    return min(steps, default=None)


def read(folder: Path) -> Iterator[Watched]:
    """The finished runs of an experiment with enough validations and an untrained model's score."""
    results = load_results(folder)
    logs, scores, signals = RunLogs.of(results), Scores.of(results), by_run(results.signals)
    reference = reference_steps(results.experiment.training.warmup_steps)
    for model in results.experiment.models:
        base = scores.lookup(model, "resampled")
        for method, benchmarks in planned(results, model).items():
            for benchmark in benchmarks:
                untrained = base(benchmark, BASE, BASE)
                for end in run_ends(results, model, method, [benchmark]).itertuples():
                    seed: int = end.seed
                    run = (model, benchmark, method, seed)
                    log, steps = logs.validations[run], logs.steps[run]
                    start = float(untrained[seed if is_paired(results, model) else 0].mean())
                    found = Watched(run, fall_of(log, start, end), {"any rule"})
                    for rule in RULES:
                        there = log if rule.of_validations else steps[steps["step"] >= reference.stop]
                        name = rule.of.removeprefix(VALIDATION)
                        if rule.of == SECONDS or (name in there and there[name].notna().any()):
                            found.judged.add(rule.name)
                    for signal in records(signals[run]) if run in signals else ():
                        found.signals[signal["rule"], signal["level"]] = int(signal["step"])
                    yield found


def fall_of(log, untrained: float, end: Any) -> int | None:
    """The step of the validation from which on a collapsed run stays below what it had, in percent; None if it did not.

    Args:
        untrained: the untrained model's score, percent.
        end: a row of :func:`run_ends`.
    """
    if not end.collapsed:
        return None
    means = np.lib.stride_tricks.sliding_window_view(100 * log["avg_at_k"].to_numpy(), WINDOW).mean(-1)
    level = max([means.max() - DROP] * end.dropped + [untrained] * end.below)
    back = np.flatnonzero(means >= level)  # windows that still have the level
    place = back[-1] + WINDOW if len(back) else 0
    return int(log["step"].iloc[min(place, len(log) - 1)])


if __name__ == "__main__":
    main()
