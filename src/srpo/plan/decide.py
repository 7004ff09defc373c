"""Which matrix decides between two methods for a number of GPU-hours: ``srpo plan --decide``.

For each model, budget and set of benchmarks, both methods get the fewest seeds that find the paper's difference, or as
many as the hours pay for. What they resolve is simulated: runs, questions and samples vary, and the interval is the
report's (:mod:`srpo.analysis.results.contrasts`). How much runs and questions vary is not known before there are some,
so there are two values of each. The proposed matrix has the longest budget, then the most benchmarks, then the least
hours, that find the paper's difference with the usual power at the larger values.
"""

import bisect
import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

from srpo.algorithm.method import Method
from srpo.analysis.results.estimates import LEVEL
from srpo.analysis.results.paper import paper_scores
from srpo.analysis.results.power import ASSUMED_RUN_SD, POWER, sample_noise
from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Block, Experiment, short_name
from srpo.plan.measurements import Measurements
from srpo.plan.plan import Plan, make_plan
from srpo.repository import CONFIGS, method_files

LARGEST_SETS = 12
"""All sets of more benchmarks are too many to look at."""

PUBLISHED_RUN_SDS = {"TASD": 2.3, "SDCL": 3.4}
"""Points: SD between others' runs of one method on one benchmark at this scale (docs/reproductions.md)."""

RUN_SDS = (ASSUMED_RUN_SD, max(PUBLISHED_RUN_SDS.values()))
"""Points: SD between the runs of a method on a benchmark, assumed and at most."""

QUESTION_SDS = (10.0, 20.0)
"""Points: SD over questions of the true difference of two methods, assumed. Nobody has published it; runs show it."""

SPREADS = tuple(itertools.product(RUN_SDS, QUESTION_SDS))
"""The pairs of both, from the least to the largest."""

DRAWS = 1000
"""Simulated experiments: a power has a standard error of 1.6 points or less."""

LARGEST_SEEDS = 20
"""Of a method; more than anybody has bought."""

SETTINGS = ("learning_rate", "mini_batch_questions")
"""Hyperparameters in which the paper's methods differ, in addition to their losses."""


@dataclass(frozen=True)
class Setting:
    """A comparison of two methods.

    Attributes:
        questions: of each benchmark.
        samples: of each question.
        seeds: of each method.
        run_sd, question_sd: as :data:`RUN_SDS` and :data:`QUESTION_SDS`.
    """

    questions: tuple[int, ...]
    samples: int
    seeds: int
    run_sd: float
    question_sd: float

    @property
    def resolves(self) -> float:
        """Half the width of the interval, its median, points."""
        return float(np.median(_simulated(self)[0]))

    @property
    def finds(self) -> float:
        """The true difference that it finds with the usual power, points."""
        half_width, error = _simulated(self)
        return float(np.quantile(half_width - error, POWER))

    def power(self, lead: float) -> float:
        """How often the interval lies above 0 if the true difference is ``lead`` points."""
        half_width, error = _simulated(self)
        return float((lead + error > half_width).mean())


@functools.cache
def _simulated(setting: Setting) -> tuple[np.ndarray, np.ndarray]:
    """Of each simulated experiment, half the width of its interval and the error of its difference, points.

    The parts of the variance are drawn as the report estimates them from normal scores (module ``contrasts``):
    each is a multiple of chi-squared. The samples' noise is at its upper bound, half of them correct.
    """
    rng, shape = np.random.default_rng(0), (DRAWS, len(setting.questions))
    count, seeds, share = np.array(setting.questions), setting.seeds, 1 / len(setting.questions) ** 2
    residual = count * np.array([sample_noise([each], setting.samples) ** 2 for each in setting.questions])
    of_questions = share * (setting.question_sd**2 + 2 * residual / seeds) / count
    of_arm = share * (setting.run_sd**2 + residual / count) / seeds
    of_both = share * residual / (count * seeds)

    def estimated(value: np.ndarray, dof: np.ndarray | int, arms: int = 1) -> np.ndarray:
        shown = np.broadcast_to(value, (arms, *shape))
        return shown * rng.chisquare(np.broadcast_to(dof, shown.shape)) / dof

    over_questions, over_runs = estimated(of_questions, count - 1)[0], estimated(of_arm, seeds - 1, arms=2)
    both = estimated(of_both, (seeds - 1) * (count - 1), arms=2).sum((0, 2))
    sums = over_questions.sum(1), over_runs.sum((0, 2))
    variance = np.maximum(sums[0] + sums[1] - both, np.maximum(*sums))
    squared = (over_questions**2 / (count - 1)).sum(1) + (over_runs**2 / (seeds - 1)).sum((0, 2))
    dof = np.maximum(1.0, variance**2 / squared)
    true = (of_questions + 2 * of_arm - 2 * of_both).sum()
    error = rng.normal(0, math.sqrt(true), DRAWS)
    return np.sqrt(variance) * special.stdtrit(dof, (1 + LEVEL) / 2), error


@dataclass(frozen=True)
class Design:
    """A matrix of one model and two methods.

    Attributes:
        block: the matrix; the first method is the one that should be ahead.
        budget: the last one, by its label; ``place``: how many are shorter.
        gpu_hours: what it takes, evaluations of the untrained model included.
        lead: the paper's difference on these benchmarks, points; None if a score is not published.
        settings: for each of :data:`SPREADS`.
    """

    block: Block
    budget: str
    place: int
    gpu_hours: float
    lead: float | None
    settings: tuple[Setting, ...]

    @functools.cached_property
    def chances(self) -> list[float | None]:
        """The power for a difference as large as the paper's, for each of :data:`SPREADS`."""
        return [None if self.lead is None else setting.power(self.lead) for setting in self.settings]

    @property
    def is_enough(self) -> bool:
        """Whether it finds the paper's lead with the usual power, at the larger values too."""
        return (self.chances[-1] or 0.0) >= POWER

    @functools.cached_property
    def worth(self) -> tuple[float, ...]:
        """A sort key. With enough power a longer budget is better, then more benchmarks; without it, more power."""
        chance = self.chances[-1]
        if chance is None:
            return (self.place, -self.settings[-1].finds)
        enough = self.is_enough
        return (enough, self.place * enough, len(self.block.benchmarks) * enough, -self.gpu_hours * enough, chance)


def parse_claim(text: str) -> tuple[str, str]:
    """The two methods of ``A > B``.

    Raises:
        SrpoError: if it is not two names with ``>`` between them.
    """
    found = re.fullmatch(r"\s*([\w.-]+)\s*>\s*([\w.-]+)\s*", text)
    if not found or found[1] == found[2]:
        raise SrpoError(f'--decide {text!r}: give two methods, e.g. --decide "srpo > grpo"')
    return found[1], found[2]


def contrasted(experiment: Experiment, claim: tuple[str, str]) -> Experiment:
    """The experiment with the claim's two methods on every model and benchmark of its matrix, with one seed.

    A method that the experiment does not have is added with its settings, if ``configs`` has both.

    Raises:
        SrpoError: if a method is not known, or the experiment does not compute on GPUs.
    """
    name = experiment.name
    if experiment.execution.rollout_engine != "sglang":
        raise SrpoError(f"--decide: {name} computes on cores; give an experiment on GPUs, e.g. paper-calibrated")
    models = dict.fromkeys(model for block in experiment.matrix for model in block.models)
    benchmarks = dict.fromkeys(benchmark for block in experiment.matrix for benchmark in block.benchmarks)
    if not models or not benchmarks:
        raise SrpoError(f"--decide: {name} has no run")
    block = Block(models=[*models], benchmarks=[*benchmarks], methods=[*claim], seeds=[1])
    if {*claim} <= experiment.methods.keys():
        return experiment.model_copy(update={"matrix": [block]})
    known = {*method_files()} if (CONFIGS / "experiments" / f"{name}.yaml").is_file() else set[str]()
    for method in claim:
        if method not in {*experiment.methods, *known}:
            there = ", ".join(sorted({*experiment.methods, *known}))
            raise SrpoError(f"--decide: unknown method {method!r}; there is {there}")
    # another name while it loads: no file but the experiment's own may have its name
    raw = {"name": "decide", "title": experiment.title, "extends": name, "matrix": [block.model_dump()]}
    comparable = {"comparable_with_paper": experiment.comparable_with_paper}
    return load_experiment(raw | comparable, where=f"--decide: {name}").model_copy(update={"name": name})


def plans(experiment: Experiment, measured: Measurements, gpu: str | None) -> dict[str, Plan]:
    """By budget, the plan of a :func:`contrasted` experiment that ends with it."""
    found, budgets = {}, experiment.training.budget_seconds
    for label in budgets:
        until = dict(itertools.islice(budgets.items(), [*budgets].index(label) + 1))
        training = experiment.training.model_copy(update={"budget_seconds": until})
        found[label] = make_plan(experiment.model_copy(update={"training": training}), measured=measured, gpu=gpu)
    return found


def designs(experiment: Experiment, plans: Mapping[str, Plan], hours: float) -> dict[str, list[Design]]:
    """By model, the best matrix for each budget and number of benchmarks, best first.

    It has the fewest seeds that are enough, or else as many as the hours pay for.

    Args:
        experiment: a :func:`contrasted` one.
        plans: its :func:`plans`.
        hours: GPU-hours that a matrix may take.

    Raises:
        SrpoError: if they pay for two seeds on no benchmark.
    """
    (block,) = experiment.matrix
    if len(block.benchmarks) > LARGEST_SETS:
        raise SrpoError(f"--decide: {experiment.name} has {len(block.benchmarks)} benchmarks; at most {LARGEST_SETS}")
    published = _published(experiment)
    found: dict[str, list[Design]] = {}
    for (place, (budget, plan)), model in itertools.product(enumerate(plans.items()), block.models):
        prices = _prices(plan)
        for count in range(1, len(block.benchmarks) + 1):
            affordable = []
            for chosen in itertools.combinations(block.benchmarks, count):
                once, seed = map(sum, zip(*(prices[model, short_name(name)] for name in chosen), strict=True))

                numbers = range(2, min(LARGEST_SEEDS, int((hours - once) / seed + 1e-9)) + 1)
                of_set = block.model_copy(update={"models": [model], "benchmarks": [*chosen]})
                design = functools.partial(_design, experiment, of_set, (budget, place), (once, seed), published)
                affordable += [_fewest(design, numbers)] if numbers else []
            if affordable:
                found.setdefault(model, []).append(max(affordable, key=lambda each: each.worth))
    if not found:
        first = _prices(next(iter(plans.values())))
        least, model, name = min((once + 2 * seed, *pair) for pair, (once, seed) in first.items())
        what = f"two seeds of both methods take {math.ceil(least)} at least ({model}, {name})"
        raise SrpoError(f"--gpu-hours {hours:g}: {what}, and with one seed nothing is decided")
    return {model: sorted(options, key=lambda each: each.worth, reverse=True) for model, options in found.items()}


def _fewest(design: Callable[[int], Design], numbers: range) -> Design:
    """The design with the fewest seeds that are enough, or with the most if none are."""
    place = bisect.bisect_left(numbers, True, key=lambda seeds: design(seeds).is_enough)
    return design(numbers[min(place, len(numbers) - 1)])


_Score = tuple[str, str, str, str]
"""Budget, model, method and benchmark of a published score."""


def _design(
    experiment: Experiment,
    block: Block,
    budget: tuple[str, int],
    price: tuple[float, float],
    published: Mapping[_Score, float],
    seeds: int,
) -> Design:
    """What a matrix of one model and two methods tells.

    Args:
        budget: the last one, and how many are shorter.
        price: GPU-hours of the untrained model, and of one seed.
    """
    label, place = budget
    block = block.model_copy(update={"seeds": [*range(1, seeds + 1)]})
    names = [short_name(name) for name in block.benchmarks]
    questions = tuple(experiment.benchmarks[name].questions("test") for name in names)
    (model,), (first, second) = block.models, block.methods
    pairs = [((label, model, first, name), (label, model, second, name)) for name in names]
    known = all(score in published for pair in pairs for score in pair)
    lead = sum(published[one] - published[other] for one, other in pairs) / len(pairs) if known else None
    samples = experiment.evaluation.rollouts
    settings = tuple(Setting(questions, samples, seeds, *spreads) for spreads in SPREADS)
    return Design(block, label, place, price[0] + seeds * price[1], lead, settings)


def other_differences(experiment: Experiment, plan: Plan) -> dict[str, tuple[float, float]]:
    """In which of :data:`SETTINGS`, and whether in steps, the two methods of a contrasted experiment differ."""
    (block,) = experiment.matrix
    first, second = (experiment.methods[name] for name in block.methods)
    values = {key: (getattr(first, key), getattr(second, key)) for key in SETTINGS}
    steps = {run.run.method: max(run.steps.values()) for run in plan.runs if run.run.model == block.models[0]}
    values["steps"] = (steps[block.methods[0]], steps[block.methods[1]])
    return {key: (one, other) for key, (one, other) in values.items() if one != other}


def _prices(plan: Plan) -> Mapping[tuple[str, str], tuple[float, float]]:
    """By model and benchmark, GPU-hours of the untrained model's evaluation, and of one seed of all methods."""
    ranks = plan.experiment.execution.ranks
    bases = zip(plan.experiment.bases(), plan.base_seconds, strict=True)
    prices = {pair: (seconds * ranks / 3600, 0.0) for pair, seconds in bases}
    for run in plan.runs:
        pair = (run.run.model, run.run.benchmark)
        once, seed = prices[pair]
        prices[pair] = (once, seed + run.total_seconds * ranks / 3600)
    return prices


def _published(experiment: Experiment) -> dict[_Score, float]:
    """The paper's scores of the experiment's budgets, models and methods, percent; none if it is no match.

    A method with other :data:`SETTINGS` than the paper's method of the same loss counts as that one.
    """
    if not experiment.comparable_with_paper:
        return {}

    def loss(method: Method) -> dict[str, object]:
        return method.model_dump(exclude={"name", "title", *SETTINGS})

    paper = load_experiment(CONFIGS / "experiments" / "paper.yaml").methods
    scores: dict[_Score, float] = {}
    for row in paper_scores(experiment).to_dict("records"):
        for name, method in experiment.methods.items():
            if row["method"] in paper and loss(method) == loss(paper[row["method"]]):
                scores[row["budget"], row["model"], name, row["benchmark"]] = float(row["paper"])
    return scores
