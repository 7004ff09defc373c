"""Scores with a known truth, from runs and questions that both vary: for coverage and false verdicts.

A question has a difficulty, a method a skill, a run a shift, and each (method, question) a taste of its own: a method
need not be good at the same questions as another. All are on the logit scale; a run's shift is scaled so that its
standard deviation comes out in points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.cross_fit import selected_scores
from srpo.analysis.statistics.deciding import ALPHA, holm
from srpo.analysis.statistics.estimates import Estimate

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
        shift = rng.normal(0, 1, (self.seeds, 1)) * self.logits(self.run_sd)
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

    def logits(self, points: np.ndarray | float) -> np.ndarray | float:
        """What changes the mean score by so few points, on the logit scale."""
        return points / 100 / _slope(self.middle(), self.hardness, self.taste)


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
    width: float = 0.0

    def add(self, estimate: Estimate) -> None:
        """Count one experiment."""
        self.experiments += 1
        self.total += estimate.value
        if estimate.has_interval:
            self.intervals += 1
            self.width += estimate.high - estimate.low
            self.covered += estimate.low <= self.truth <= estimate.high
            self.above += estimate.low > self.truth

    @property
    def coverage(self) -> float:
        """Percent of intervals that hold the truth."""
        return 100 * self.covered / max(1, self.intervals)

    @property
    def half(self) -> float:
        """Mean half width of the intervals, points."""
        return self.width / 2 / max(1, self.intervals)

    @property
    def false_above(self) -> float:
        """Percent of experiments whose interval lies above the truth: a false "holds"."""
        return 100 * self.above / max(1, self.experiments)

    @property
    def mean(self) -> float:
        """The mean estimate."""
        return self.total / max(1, self.experiments)


def null_difference(rng: np.random.Generator, world: World, benchmarks: int, experiments: int) -> Rates:
    """Two methods of the same world: the true difference is 0."""
    rates = Rates()
    for _ in range(experiments):
        drawn = [world.questions_drawn(rng) for _ in range(benchmarks)]
        arms = [[Arm(sign * world.method(rng, d)) for sign in (1, -1)] for d in drawn]
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


def true_drop(world: World, drop: float) -> float:
    """The late drop of the run's true course, points."""
    spread = _GRID[:20_000, 0] * world.hardness
    means = 100 * expit(spread + world.course_logits(drop)[:, None]).mean(axis=1)
    windows = np.lib.stride_tricks.sliding_window_view(means, 3).mean(axis=-1)
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


# ---------------------------------------------------------------- base models


@dataclass(frozen=True)
class PairedWorld:
    """Three equal methods on five benchmarks; seed s of every method starts from base model s.

    Attributes:
        base_sd: standard deviation between base models of the difference of two methods, all benchmarks alike, points.
        shared_sd: standard deviation of what a base model adds to all methods, points.
        run_sd: standard deviation between runs of one method from one base model on one benchmark, points.
        taste: standard deviation of a method's own difficulty of a question, logits.
        facts: size of the table of facts that each base model has of its own; 0: all have the same questions. Question
            i asks for the same three facts of every table, whose truths differ: half of the variance of its difficulty
            is that of the facts, and a method's own difficulty is one of facts, too.
    """

    base_models: int = 3
    base_sd: float = 0.0
    shared_sd: float = 3.0
    run_sd: float = 2.5
    taste: float = 0.3
    benchmarks: int = 5
    questions: int = 64
    methods: int = 4
    facts: int = 0

    def scores(self, rng: np.random.Generator) -> np.ndarray:
        """Scores in percent: methods x benchmarks x base models x questions."""
        world = World(questions=self.questions, taste=self.taste)
        shape = (self.methods, self.benchmarks, self.base_models, 1)
        points = rng.normal(0, self.shared_sd, (1, 1, self.base_models, 1))
        points = points + rng.normal(0, self.base_sd / np.sqrt(2), (self.methods, 1, self.base_models, 1))
        points = points + rng.normal(0, self.run_sd, shape)
        own = rng.normal(0, 1, (1, self.benchmarks, 1, self.questions)) * world.hardness
        taste = rng.normal(0, self.taste, (self.methods, self.benchmarks, 1, self.questions))
        if self.facts:
            own = np.sqrt(0.5) * (own + world.hardness * self._of_facts(rng, 1))
            taste = self.taste * self._of_facts(rng, self.methods)
        own = own + taste
        logits = world.middle() + own + world.logits(points)
        return 100 * rng.binomial(SAMPLES, expit(logits)) / SAMPLES

    def _of_facts(self, rng: np.random.Generator, methods: int) -> np.ndarray:
        """Standard normal for each question, from its facts: methods x benchmarks x base models x questions."""
        asked = np.array([rng.choice(self.facts, 3, replace=False) for _ in range(self.questions)])
        facts = rng.normal(0, 1, (methods, self.benchmarks, self.base_models, self.facts))
        return facts[..., asked].mean(axis=-1) * np.sqrt(3)


@dataclass
class PairedRates:
    """What :func:`paired_nulls` counts: coverage by kind of interval, false verdicts in percent."""

    coverage: dict[str, Rates]
    false_single: float = 0.0
    false_family: float = 0.0


def paired_nulls(rng: np.random.Generator, world: PairedWorld, experiments: int) -> PairedRates:
    """Coverage of the difference of two equal methods, and false verdicts of the primary family.

    The family is that of the report: two pairs at the first and at the middle budget, three and the matched one at the
    last, decided by Holm's procedure. Scores of neighbouring budgets have half of their variation in common.
    """
    found = PairedRates({name: Rates() for name in ("by benchmark", "by base model", "the widest", "not paired")})
    single = any_of = 0
    for _ in range(experiments):
        scores = world.scores(rng)
        middle = 0.5 * scores + 0.5 * world.scores(rng)
        early = 0.5 * middle + 0.5 * world.scores(rng)
        pairs = [(scores, 2, 0), (scores, 2, 1), (scores, 0, 1), (scores, 2, 3)]
        pairs += [(middle, 2, 0), (middle, 2, 1), (early, 2, 0), (early, 1, 0)]
        claims = [_paired(made, one, other) for made, one, other in pairs]
        first = claims[0]
        strata = [[Arm(scores[2, b]), Arm(-scores[0, b])] for b in range(world.benchmarks)]
        for name, estimate in zip(
            found.coverage, (*_alternatives(scores[2] - scores[0], first), first, contrast(strata)), strict=True
        ):
            found.coverage[name].add(estimate)
        p_values = np.array([claim.p_above(0) for claim in claims])
        single += int((p_values < ALPHA).sum())
        any_of += bool(np.nanmin(holm(p_values.tolist())) < ALPHA)
    found.false_single, found.false_family = 100 * single / experiments / len(pairs), 100 * any_of / experiments
    return found


def _paired(scores: np.ndarray, one: int, other: int) -> Estimate:
    return contrast([[Arm(a), Arm(-b)] for a, b in zip(scores[one], scores[other], strict=True)], paired=True)


def _alternatives(differences: np.ndarray, wider: Estimate) -> tuple[Estimate, Estimate]:
    """The intervals with independent benchmarks, and with one number per base model."""
    independent = contrast([[Arm(values)] for values in differences])
    by_model = contrast([[Arm(differences.mean(axis=(0, 2))[:, None])]])
    assert np.isclose(independent.error, [wider.error, *(error for error, _ in wider.others)]).any()
    return independent, by_model
