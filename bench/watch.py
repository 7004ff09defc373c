"""False alarms and lead times of the watch for collapse, on the runs of finished experiments.

    python bench/watch.py results/embedded-full [results/matched ...] [--runs]
    python bench/watch.py --noise

A run has collapsed if the report says so (`analysis/results/collapse.py`). Its fall is the first validation from which
on no three validations in a row come back to the level that it lost. The lead is the number of steps from a rule's
signal to the fall; it is negative if the signal came later.

Without runs, `--noise` simulates runs that stand still: whatever the rules on scores say of them is sampling noise, and
they will say it of real runs at least as often.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from srpo.analysis.results.collapse import DROP, RunEnd, run_ends
from srpo.analysis.results.cross_fit import WINDOW
from srpo.analysis.results.load import RunKey, by_run, load_results, records
from srpo.analysis.results.matrix import BASE, is_paired, planned
from srpo.analysis.results.run_logs import RunLogs
from srpo.analysis.results.scores import Scores
from srpo.watch import RULES, SECONDS, VALIDATION, reference_steps, signals_of, summary_of


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
    parser.add_argument("--noise", action="store_true", help="simulate runs that stand still instead")
    parser.add_argument("--runs", action="store_true", help="also print every run with a signal or a collapse")
    options = parser.parse_args()
    if options.noise:
        noise()
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


def noise(runs: int = 400) -> None:
    """Print how often the rules on scores speak in simulated runs whose scores do not move, in percent of the runs."""
    rules = [rule.name for rule in RULES if rule.of_validations]
    heads = [f"{rule}, {level}" for rule in rules for level in ("alarm", "warn")]
    print(f"| a run that stands still, {runs} of each | {' | '.join(heads)} |\n|{' --- |' * (1 + len(heads))}")
    for number, (name, shape) in enumerate(SHAPES.items()):
        rng, counts = np.random.default_rng([47, number]), Counter[str]()
        for _ in range(runs):
            found = summary_of(signals_of(*still(rng, *shape), 5))
            counts.update(f"{rule}, {level}" for level, spoken in found.items() for rule in spoken)
        print(f"| {name} | {' | '.join(f'{100 * counts[head] / runs:.1f}' for head in heads)} |")


SHAPES = {
    "miniature: 64 test questions x 8 samples, steps of 64 rollouts, 90 steps, validation every 3": (64, 8, 64, 90, 3),
    "paper, chemistry: 210 x 16, 256, 450, every 5": (210, 16, 256, 450, 5),
    "paper, biology: 50 x 16, 256, 450, every 5": (50, 16, 256, 450, 5),
}


def still(
    rng: np.random.Generator, questions: int, samples: int, rollouts: int, steps: int, every: int
) -> tuple[list[dict], list[dict]]:
    """Logs of a run with a true score of 70 % on average, and 99.5 % of its responses in the format."""
    chance = rng.beta(1.4, 0.6, size=questions)
    rewards = rng.binomial(rollouts, chance.mean(), size=steps) / rollouts
    log = [{"step": i, "metrics": {"reward/mean": float(reward)}} for i, reward in enumerate(rewards, 1)]
    validations = [
        {
            "step": step,
            "avg_at_k": float(rng.binomial(samples, chance).mean() / samples),
            "format_fraction": rng.binomial(questions * samples, 0.995) / (questions * samples),
        }
        for step in range(every, steps + 1, every)
    ]
    return log, validations


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
                for seed, end in run_ends(results, model, method, benchmark).items():
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


def fall_of(log, untrained: float, end: RunEnd) -> int | None:
    """The step of the validation from which on a collapsed run stays below what it had, in percent; None if it did not.

    Args:
        untrained: the untrained model's score, percent.
        end: what :func:`run_ends` says.
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
