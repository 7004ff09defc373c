"""Scores with a known truth, from runs and questions that both vary: for coverage and false verdicts.

A question has a difficulty, a method a skill, a run a shift, and each (method, question) a taste of its own: a method
need not be good at the same questions as another. All are on the logit scale; a run's shift is scaled so that its
standard deviation comes out in points.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from srpo.analysis.results.contrasts import Arm, Estimate, Spread, contrast
from srpo.analysis.results.cross_fit import selected_scores

SAMPLES = 16
_GRID = np.random.default_rng(0).standard_normal((200_000, 2))


@dataclass(frozen=True)
class World:
    """Where scores come from.

    Attributes:
        mean: of all scores, between 0 and 1.
        run_sd: standard deviation between runs of one method, points.
        taste: standard deviation of a method's own difficulty of a question, logits.
    """

    mean: float = 0.6
    questions: int = 50
    seeds: int = 1
    run_sd: float = 0.0
    taste: float = 0.0
    hardness: float = 1.5

    def method(self, rng: np.random.Generator, difficulty: np.ndarray) -> np.ndarray:
        """Scores in percent, seeds x questions, of a method on questions of this difficulty."""
        own = difficulty + rng.normal(0, 1, difficulty.size) * self.taste
        shift = rng.normal(0, 1, (self.seeds, 1)) * self._run_logits()
        return 100 * rng.binomial(SAMPLES, expit(self.middle() + own + shift)) / SAMPLES

    def questions_drawn(self, rng: np.random.Generator) -> np.ndarray:
        """Difficulties of another draw of questions."""
        return rng.normal(0, 1, self.questions) * self.hardness

    def middle(self) -> float:
        """The logit of a question of middling difficulty."""
        return _middle(self.mean, self.hardness, self.taste)

    def course_logits(self, drop: float) -> np.ndarray:
        """:func:`course` on the logit scale."""
        return self.middle() + course(drop) / (100 * _slope(self.middle(), self.hardness, 0.0))

    def _run_logits(self) -> float:
        return self.run_sd / 100 / _slope(self.middle(), self.hardness, self.taste)


@cache
def _middle(mean: float, hardness: float, taste: float) -> float:
    spread = _GRID[:, 0] * np.hypot(hardness, taste)
    return brentq(lambda middle: expit(middle + spread).mean() - mean, -20, 20)


@cache
def _slope(middle: float, hardness: float, taste: float) -> float:
    """Change of the mean score for a small step of all questions on the logit scale."""
    solved = expit(middle + _GRID[:, 0] * np.hypot(hardness, taste))
    return float((solved * (1 - solved)).mean())


# ---------------------------------------------------------------- how often intervals are right


@dataclass
class Rates:
    """How often intervals hold the truth and how often they lie above it, of those that there are."""

    truth: float = 0.0
    experiments: int = 0
    intervals: int = 0
    covered: int = 0
    above: int = 0
    total: float = 0.0

    def add(self, estimate: Estimate) -> None:
        """Count one experiment."""
        self.experiments += 1
        self.total += estimate.value
        if estimate.has_interval:
            self.intervals += 1
            self.covered += estimate.low <= self.truth <= estimate.high
            self.above += estimate.low > self.truth

    @property
    def coverage(self) -> float:
        """Percent of intervals that hold the truth."""
        return 100 * self.covered / max(1, self.intervals)

    @property
    def false_above(self) -> float:
        """Percent of experiments whose interval lies above the truth: a false "holds"."""
        return 100 * self.above / max(1, self.experiments)

    @property
    def none(self) -> float:
        """Percent of experiments without an interval."""
        return 100 - 100 * self.intervals / max(1, self.experiments)

    @property
    def mean(self) -> float:
        """The mean estimate."""
        return self.total / max(1, self.experiments)


def null_difference(
    rng: np.random.Generator, world: World, benchmarks: int, experiments: int, spread: Spread | None = None
) -> Rates:
    """Two methods of the same world: the true difference is 0."""
    rates = Rates()
    for _ in range(experiments):
        drawn = [world.questions_drawn(rng) for _ in range(benchmarks)]
        arms = [[Arm(sign * world.method(rng, d), spread=spread) for sign in (1, -1)] for d in drawn]
        rates.add(contrast(arms))
    return rates


def level(rng: np.random.Generator, world: World, benchmarks: int, experiments: int) -> Rates:
    """A score, whose truth is the world's mean."""
    rates = Rates(truth=100 * world.mean)
    for _ in range(experiments):
        arms = [[Arm(world.method(rng, world.questions_drawn(rng)))] for _ in range(benchmarks)]
        rates.add(contrast(arms, bounds=(0, 100)))
    return rates


# ---------------------------------------------------------------- courses of training

VALIDATIONS = 24


def course(drop: float) -> np.ndarray:
    """Points by which each validation lies below the best: it rises, stays there for a while, then loses ``drop``."""
    return np.concatenate([np.linspace(-10, 0, 8), np.zeros(6), np.linspace(0, -drop, VALIDATIONS - 14)])


def curve(rng: np.random.Generator, world: World, difficulty: np.ndarray, drop: float) -> np.ndarray:
    """A run's validations x questions, percent."""
    return 100 * rng.binomial(SAMPLES, expit(difficulty + world.course_logits(drop)[:, None])) / SAMPLES


def true_drop(world: World, drop: float, stretch: int = 3) -> float:
    """The late drop of the run's true course, points."""
    spread = _GRID[:20_000, 0] * world.hardness
    means = 100 * expit(spread + world.course_logits(drop)[:, None]).mean(axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(means, stretch).mean(axis=-1)
    return float(windows.max() - windows[-1])


def late_drops(
    rng: np.random.Generator,
    world: World,
    planted: float,
    measure: Callable[[np.ndarray], np.ndarray],
    benchmarks: int,
    experiments: int,
    against: float | None = None,
) -> Rates:
    """The late drop of one method, or minus that of another that was planted ``against``."""
    truth = true_drop(world, planted) - (true_drop(world, against) if against is not None else 0)
    rates = Rates(truth=truth)
    for _ in range(experiments):
        strata = []
        for _ in range(benchmarks):
            difficulty = world.questions_drawn(rng)
            drops = [planted] + ([against] if against is not None else [])
            runs = [
                np.array([measure(curve(rng, world, difficulty, drop)) for _ in range(world.seeds)]) for drop in drops
            ]
            strata.append([Arm(sign * values) for sign, values in zip((1, -1), runs, strict=False)])
        rates.add(contrast(strata))
    return rates


def selection_biases(rng: np.random.Generator, world: World, experiments: int) -> dict[str, float]:
    """Points by which three scores of the selected checkpoint lie above the truth of the selected checkpoint.

    Late validations of a run differ in the questions that they solve, by ``world.taste``, and not on average: which is
    best on the test questions is luck of the questions and of the samples.
    """
    found: dict[str, list[float]] = {"in_training": [], "resampled": [], "cross_fitted": []}
    for _ in range(experiments):
        own = world.questions_drawn(rng) + rng.normal(0, world.taste, (VALIDATIONS, world.questions))
        chance = expit(world.middle() + own)
        scores = rng.binomial(SAMPLES, chance) / SAMPLES
        best = scores.mean(axis=1).argmax()
        found["in_training"].append(scores[best].mean())
        found["resampled"].append(rng.binomial(SAMPLES, chance[best]).mean() / SAMPLES)
        found["cross_fitted"].append(selected_scores(scores).mean())
    return {name: 100 * (float(np.mean(values)) - world.mean) for name, values in found.items()}
