"""Trains some runs of a published experiment again, and compares every score with what was published."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from statistics import fmean
from typing import Any

from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.files import read_events, read_json, read_yaml
from srpo.layout import Layout, RunId
from srpo.publish.published import read_published
from srpo.repository import ROOT
from srpo.text import plural

Event = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """A run that was trained again, beside the published one. Differences are in percentage points of avg@k.

    Attributes:
        run: which.
        scores: number of published validations and evaluations.
        first: what differs first, ``step 12`` or ``its evaluation``; None if everything has the same bytes.
        mean, largest: absolute difference over the steps at which both have a validation.
        seeds: mean absolute difference of the published run from those of other seeds; None without other seeds.
    """

    run: RunId
    scores: int
    first: str | None
    mean: float
    largest: float
    seeds: float | None


def choose(folder: Path, named: Sequence[str], count: int, seed: int) -> list[RunId]:
    """The named runs, or ``count`` runs drawn at random.

    Raises:
        SrpoError: if the experiment has no such run, or fewer runs.
    """
    runs = {run.path: run for run in _experiment(folder).runs()}
    for name in named:
        if name not in runs:
            raise SrpoError(f"--run {name}: {folder} has no such run; one is {next(iter(runs))}")
    if not named and not 0 < count <= len(runs):
        raise SrpoError(f"--runs {count}: {folder} has {plural(len(runs), 'run')}; give 1 to {len(runs)}")
    return [runs[name] for name in named] or random.Random(seed).sample([*runs.values()], count)


def train_again(folder: Path, runs: Sequence[RunId], cores: int) -> Layout:
    """Train and evaluate runs below ``results/audit``, with the data and base models that they need, by the workflow.

    Runs of an earlier audit are trained again; one that was interrupted continues.

    Raises:
        SrpoError: if the workflow fails, or is not here.
    """
    snakefile = ROOT / "Snakefile"
    if not snakefile.is_file():
        raise SrpoError("srpo audit needs the repository's Snakefile: call it in a clone")
    results = Path("results", "audit")
    layout = Layout(results / _experiment(folder).name)
    files = [layout.run_files(run) for run in runs]
    for each in files:
        if each.evaluation.exists():
            shutil.rmtree(each.folder)
    command = [sys.executable, "-m", "snakemake", *(each.evaluation for each in files), "--snakefile", snakefile]
    command += ["--configfile", folder / layout.experiment.name, "--config", f"results={results}"]
    command += ["--cores", cores, "--quiet", "rules", "host", "reason"]
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    if subprocess.run([*map(str, command)], env=environment).returncode:
        raise SrpoError(f"{folder}: the runs could not be trained; the lines above say why")
    return layout


def compare(folder: Path, layout: Layout, runs: Sequence[RunId]) -> list[Comparison]:
    """Compare runs that :func:`train_again` trained with the published ones."""
    modelled = _experiment(folder).training.clock.kind == "modelled"
    validations: dict[RunId, list[Event]] = {}
    for event in read_published(folder, "validations"):
        validations.setdefault(_run_of(event), []).append(event)
    evaluations = {_run_of(line): line["content"]["budgets"] for line in read_published(folder, "evaluations")}
    found = []
    for run in runs:
        files = layout.run_files(run)
        here = [run.model_dump() | event for event in read_events(files.validations)]
        others = [v for other, v in validations.items() if _but_seed(other) == _but_seed(run) and other != run]
        budgets = read_json(files.evaluation)["budgets"]
        found.append(_compared(run, validations[run], here, others, evaluations[run], budgets, modelled))
    return found


def _compared(
    run: RunId,
    published: list[Event],
    here: list[Event],
    others: list[list[Event]],
    evaluation: dict[str, Any],
    evaluation_here: dict[str, Any],
    modelled: bool,
) -> Comparison:
    def result(event: Event) -> Event:
        return event if modelled else {name: value for name, value in event.items() if name != "clock"}

    pairs = zip(published, here, strict=False)
    equal = len([*takewhile(lambda pair: result(pair[0]) == result(pair[1]), pairs)])
    first = None
    if equal < max(len(published), len(here)):
        first = f"step {(published + here)[equal if equal < len(published) else len(published) + equal]['step']}"
    elif evaluation != evaluation_here:
        first = "its evaluation"
    differences = _differences(published, here)
    spread = [difference for other in others for difference in _differences(published, other)]
    return Comparison(
        run,
        scores=len(published) + sum(budget is not None for budget in evaluation.values()),
        first=first,
        mean=fmean(differences) if differences else 0.0,
        largest=max(differences, default=0.0),
        seeds=fmean(spread) if spread else None,
    )


def _differences(a: list[Event], b: list[Event]) -> list[float]:
    """Absolute differences of avg@k in points, at the steps that both have."""
    scores = {event["step"]: event["avg_at_k"] for event in b}
    return [100 * abs(event["avg_at_k"] - scores[event["step"]]) for event in a if event["step"] in scores]


def verdict(folder: Path, found: Sequence[Comparison], layout: Layout) -> str:
    """What was found, in one line."""
    different = [each for each in found if each.first]
    if not different:
        scores = sum(each.scores for each in found)
        return f"{folder}: {plural(len(found), 'run')} trained again, all {scores} scores have the same bytes"
    worst = max(different, key=lambda each: each.mean)
    seeds = "" if worst.seeds is None else f", beside {worst.seeds:.1f} between seeds"
    return (
        f"{folder}: {len(different)} of {plural(len(found), 'run')} trained again with other scores; "
        f"{worst.run.path} from {worst.first} on, by {worst.mean:.1f} points in the mean of its validations "
        f"and {worst.largest:.1f} at most{seeds}{_elsewhere(folder, layout, worst.run)}"
    )


def _elsewhere(folder: Path, layout: Layout, run: RunId) -> str:
    """What of a run's origin is not as published."""
    published = read_yaml(Layout(folder).provenance)
    (before,) = (line["content"] for line in read_published(folder, "runs") if _run_of(line) == run)
    now, then = read_yaml(layout.run_files(run).origin)["provenance"], before["provenance"]
    parts = ("commit", "srpo", "python", "processor", "packages", "data", "base_model")
    changed = [part for part in parts if now.get(part) != then.get(part)]
    return f"; not as published ({published['trained']}): {', '.join(changed)}" if changed else ""


def _experiment(folder: Path) -> Experiment:
    return load_experiment(Layout(folder).experiment)


def _run_of(line: Event) -> RunId:
    return RunId(**{name: line[name] for name in RunId.model_fields})


def _but_seed(run: RunId) -> tuple[str, str, str]:
    return run.model, run.benchmark, run.method
