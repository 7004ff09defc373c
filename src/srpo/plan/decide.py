"""Which matrix decides between two methods for a number of GPU-hours: ``srpo plan --decide``.

For each model and each set of its benchmarks, both methods get as many seeds as the hours pay for. What these resolve
is computed as for the plan's lines on seeds (:mod:`srpo.analysis.results.power`), for two standard deviations between
runs: the assumed one, and the largest that others published. The proposed matrix is the widest that finds the paper's
difference with the usual power even at the larger one.
"""

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from srpo.algorithm.method import Method
from srpo.analysis.results.paper import paper_scores
from srpo.analysis.results.power import (
    ASSUMED_RUN_SD,
    MAX_SEEDS,
    POWER,
    assumed,
    effect_found,
    half_width,
    power,
    sample_noise,
)
from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Block, Experiment, short_name
from srpo.plan.plan import Plan
from srpo.repository import CONFIGS

LARGEST_SETS = 12
"""All sets of more benchmarks are too many to look at."""

PUBLISHED_RUN_SDS = {"TASD": 2.3, "SDCL": 3.4}
"""Points: SD between others' runs of one method on one benchmark at this scale (docs/reproductions.md)."""

SETTINGS = ("learning_rate", "mini_batch_questions")
"""Hyperparameters in which the paper's methods differ beside their losses."""


_Score = tuple[str, str, str]
"""Model, method and benchmark of a published score."""


@dataclass(frozen=True)
class Outcome:
    """What a matrix tells if runs have a certain standard deviation.

    Attributes:
        resolves: half the width of the difference's interval, points.
        finds: the true difference that it finds with a power of 80 %, points.
        chance: the power for a difference as large as the paper's; None if that is not published.
    """

    resolves: float
    finds: float
    chance: float | None


@dataclass(frozen=True)
class Design:
    """A matrix of one model and two methods.

    Attributes:
        block: the matrix; the first method is the one that should be ahead.
        gpu_hours: what it takes, evaluations of the untrained model included.
        lead: the paper's difference on these benchmarks, points; None if a score is not published.
        expected, cautious: at the assumed SD between runs, and at the largest published one.
    """

    block: Block
    gpu_hours: float
    lead: float | None
    expected: Outcome
    cautious: Outcome

    @property
    def worth(self) -> tuple[float, ...]:
        """The better of two designs has more: wider if the power is enough, else more power, else finer."""
        chance = self.cautious.chance
        if chance is None:
            return (-self.cautious.finds,)
        enough = chance >= POWER
        return (enough, len(self.block.benchmarks) if enough else 0, chance)


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
    name, folder = experiment.name, CONFIGS / "methods"
    if experiment.execution.rollout_engine != "sglang":
        raise SrpoError(f"--decide: {name} computes on cores; give an experiment on GPUs, e.g. paper-calibrated")
    models = dict.fromkeys(model for block in experiment.matrix for model in block.models)
    benchmarks = dict.fromkeys(benchmark for block in experiment.matrix for benchmark in block.benchmarks)
    if not models or not benchmarks:
        raise SrpoError(f"--decide: {name} has no run")
    block = Block(models=[*models], benchmarks=[*benchmarks], methods=[*claim], seeds=[1])
    if {*claim} <= experiment.methods.keys():
        return experiment.model_copy(update={"matrix": [block]})
    shipped = {file.stem for file in folder.glob("*.yaml")}
    known = shipped if (CONFIGS / "experiments" / f"{name}.yaml").is_file() else set[str]()
    for method in claim:
        if method not in {*experiment.methods, *known}:
            there = ", ".join(sorted({*experiment.methods, *known}))
            raise SrpoError(f"--decide: unknown method {method!r}; there is {there}")
    raw = {"name": name, "title": experiment.title, "extends": name, "matrix": [block.model_dump()]}
    comparable = {"comparable_with_paper": experiment.comparable_with_paper}
    return load_experiment(raw | comparable, where=f"--decide: {name}")


def designs(experiment: Experiment, plan: Plan, hours: float) -> dict[str, list[Design]]:
    """By model of a :func:`contrasted` experiment, the best matrix for each number of benchmarks, best first.

    Args:
        plan: of that experiment.
        hours: GPU-hours that a matrix may take.

    Raises:
        SrpoError: if they pay for two seeds on no benchmark.
    """
    (block,) = experiment.matrix
    if len(block.benchmarks) > LARGEST_SETS:
        raise SrpoError(f"--decide: {experiment.name} has {len(block.benchmarks)} benchmarks; at most {LARGEST_SETS}")
    prices, published = _prices(plan), _published(experiment)
    found: dict[str, list[Design]] = {}
    for model in block.models:
        best: list[Design] = []
        for count in range(1, len(block.benchmarks) + 1):
            affordable = []
            for chosen in itertools.combinations(block.benchmarks, count):
                once, seed = map(sum, zip(*(prices[model, short_name(name)] for name in chosen), strict=True))
                seeds = min(MAX_SEEDS, int((hours - once) / seed + 1e-9))
                if seeds >= 2:
                    update = {"models": [model], "benchmarks": [*chosen], "seeds": [*range(1, seeds + 1)]}
                    made = block.model_copy(update=update)
                    affordable.append(_design(experiment, made, once + seeds * seed, published))
            best += [max(affordable, key=lambda each: each.worth)] if affordable else []
        if best:
            found[model] = sorted(best, key=lambda each: each.worth, reverse=True)
    if not found:
        least, model, name = min((once + 2 * seed, *pair) for pair, (once, seed) in prices.items())
        what = f"two seeds of both methods take {math.ceil(least)} at least ({model}, {name})"
        raise SrpoError(f"--gpu-hours {hours:g}: {what}, and with one seed nothing is decided")
    return found


def _design(experiment: Experiment, block: Block, gpu_hours: float, published: Mapping[_Score, float]) -> Design:
    """What a matrix of one model and two methods tells."""
    names = [short_name(name) for name in block.benchmarks]
    questions = sum(experiment.benchmarks[name].questions("test") for name in names) / len(names)
    noise = sample_noise(questions, experiment.evaluation.rollouts)
    (model,), (first, second) = block.models, block.methods
    pairs = [((model, first, name), (model, second, name)) for name in names]
    known = all(score in published for pair in pairs for score in pair)
    lead = sum(published[one] - published[other] for one, other in pairs) / len(pairs) if known else None

    def outcome(run_sd: float) -> Outcome:
        variance, seeds = assumed(run_sd, len(names), noise), len(block.seeds)
        chance = None if lead is None else power(variance, lead, seeds)
        return Outcome(half_width(variance, seeds), effect_found(variance, seeds), chance)

    return Design(block, gpu_hours, lead, outcome(ASSUMED_RUN_SD), outcome(max(PUBLISHED_RUN_SDS.values())))


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
    """The paper's scores of the experiment's models and methods at its last budget, percent; none if it is no match.

    A method with other :data:`SETTINGS` than the paper's method of the same loss counts as that one.
    """
    if not experiment.comparable_with_paper:
        return {}

    def loss(method: Method) -> dict[str, object]:
        return method.model_dump(exclude={"name", "title", *SETTINGS})

    paper = load_experiment(CONFIGS / "experiments" / "paper.yaml").methods
    budget = [*experiment.training.budget_seconds][-1]
    scores: dict[_Score, float] = {}
    for row in paper_scores(experiment).to_dict("records"):
        for name, method in experiment.methods.items():
            if row["budget"] == budget and row["method"] in paper and loss(method) == loss(paper[row["method"]]):
                scores[row["model"], name, row["benchmark"]] = float(row["paper"])
    return scores
