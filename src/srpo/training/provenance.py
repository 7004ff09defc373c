"""The origin of a run's result: specification, code, packages, data and base model. One folder has one origin."""

import hashlib
import itertools
import logging
import math
import os
import platform
import shutil
import subprocess
from collections import deque
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

import srpo
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Changed, Experiment, RunSpec, changed, listed
from srpo.experiment.job import READS, Job, filled_in, job_of
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events, read_json, read_mapping, write_text
from srpo.ground.imports import is_installed
from srpo.ground.layout import Layout, RunFiles, model_description
from srpo.ground.machine import gpus, processor
from srpo.ground.schema import flattened
from srpo.rollout.checkpoint import weight_files
from srpo.starts.resolve import digest, sha256_of

PACKAGES = ("torch", "verl", "transformers", "tensordict", "numpy", "ray", "sglang", "reasoning-gym")
_RESULT = ("srpo", "packages", "data", "base_model", "code")
"""Parts of the provenance that determine a run's result. Not the commit: a change of results raises srpo's version."""

COMPUTING = ("algorithm", "experiment", "ground", "policy", "questions", "rollout", "starts", "training")
"""The rooms whose code computes a run: also its clock and its seeds."""

logger = logging.getLogger(__name__)


def origin() -> dict[str, Any]:
    """The code and the machine that computes."""
    return {
        "srpo": srpo.__version__,
        "commit": git_commit(),
        "source": source_hash(*COMPUTING),
        "python": platform.python_version(),
        "machine": f"{platform.machine()} {platform.system()}",
        "processor": processor(),
        "gpu": ", ".join(dict.fromkeys(name for name, _ in gpus())),
        "cores": os.cpu_count(),
        "packages": {name: version(name) for name in PACKAGES if is_installed(name)},
    }


def origin_of(spec: RunSpec, layout: Layout, code: dict[str, str] | None = None) -> dict[str, Any]:
    """A run's specification and where the run comes from: also its splits, base model and hashes of one's own code."""
    starts = _starts(layout, spec.benchmark.data_set, checked_hash(layout.model(spec.model.name)), code or {})
    return {"spec": spec.model_dump(mode="json"), "provenance": origin() | starts}


def made_from(job: Job, layout: Layout, command: str) -> dict[str, Any]:
    """What the result of an evaluation or of a gap is made from, which its file keeps; in the form of ``run.yaml``."""
    starts = _starts(layout, job.benchmark.data_set, checked_hash(layout.model(job.model.name)), job.code)
    return {"spec": job.settings(READS[command]), "provenance": {"srpo": srpo.__version__} | starts}


def _starts(layout: Layout, data_set: str, base_model: str | None, code: dict[str, str]) -> dict[str, Any]:
    """The hashes of what a result starts from."""
    splits = {name: layout.split(data_set, name) for name in ("train", "test")}
    data = {name: sha256_of(path) for name, path in splits.items() if path.exists()}
    return {"data": data, "base_model": base_model, "code": code}


def checked_hash(model: Path) -> str:
    """The hash of a base model's files.

    Raises:
        SrpoError: if the weights are not those that ``base.json`` describes, because somebody has replaced them.
    """
    expected = read_json(model_description(model))["sha256"]
    if (found := digest(model)) != expected:
        raise SrpoError(f"{model}: its files have the hash {found}, base.json has {expected}; delete base.json")
    return expected


def git_commit() -> str:
    """Commit of the source tree, with ``-dirty`` for local changes; ``unknown`` outside a checkout."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@cache
def source_hash(*rooms: str) -> str:
    """SHA-256 of these rooms' code."""
    root = Path(srpo.__file__).parent
    files = sorted(path for room in rooms for path in (root / room).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


# ---------------------------------------------------------------- one folder, one origin


def prepare_run_folder(run_folder: Path, origin: dict[str, Any]) -> None:
    """Write ``run.yaml``, unless the folder holds a run that cannot be continued with this origin.

    A run continues with the same origin, with other memory settings, and with a longer budget. A finished run is kept
    if only packages differ. If settings, data, base model or srpo's own code differ, its logs and its evaluation move
    to ``superseded/`` and its checkpoints are deleted: ``snakemake --forcerun`` after a change of the code trains it
    again. Keys that came or went do not. What only goes on to a longer budget is never deleted.
    """
    files = RunFiles(run_folder)
    before = read_mapping(files.origin) if files.origin.exists() else {}
    last = next(iter(deque(read_events(files.steps), maxlen=1)), None)
    if last and not before:
        raise SrpoError(
            f"{run_folder}: {last['step']} steps are there, but no {files.origin.name}; delete the folder to start over"
        )
    found, finished = _differences(before, origin) if before else {}, files.finished.exists()
    if last and not _prolongs(before, origin, found):
        others = {key: value for key, value in found.items() if not key.startswith("packages.")}
        if finished and not others:
            return
        if not finished or any(_prolongs(before, origin, {key: values}) for key, values in others.items()):
            raise SrpoError(
                f"{run_folder}: {last['step']} steps were trained with other settings: {listed(found)}; "
                "restore them, or delete the folder to start over"
            )
        _set_aside(files, found)
    elif last and finished and not found:
        if not (edited := _edited(before, origin)):
            return  # it keeps what it was trained with
        _set_aside(files, edited)
    elif found:
        files.finished.unlink(missing_ok=True)  # with a longer budget the run is no longer finished
    if before and files.steps.exists():  # all that trained it, the last last
        for key in ("source", "processor", "gpu"):
            old, now = (each["provenance"].get(key) or "" for each in (before, origin))
            if old:
                origin["provenance"][key] = old if old.endswith(now) else f"{old}, {now}"
    write_text(files.origin, yaml.safe_dump(origin, sort_keys=False))


def checked_experiment(layout: Layout) -> Experiment:
    """The experiment of a results folder, for all that computes with its numbers.

    A published experiment has neither data nor weights: they are compared where they are. Results of older versions do
    not say what their evaluations are made from.

    Raises:
        SrpoError: if a result is there that has other settings, data, weights or own code than the experiment has now.
    """
    experiment = load_experiment(layout.experiment)

    @cache
    def starts(data_set: str, base_model: str) -> dict[str, Any]:
        model = layout.model(base_model)
        there = weight_files(model)[0].exists()
        return _starts(layout, data_set, read_json(model_description(model))["sha256"] if there else None, {})

    def check(what: Path, before: dict[str, Any] | None, job: Job, command: str) -> None:
        if before:
            hashes = starts(job.benchmark.data_set, job.model.name) | {"code": job.code}
            check_origin(what, before, {"spec": job.settings(READS[command]), "provenance": hashes})

    def origin_in(path: Path) -> dict[str, Any] | None:
        return read_json(path).get("from") if path.is_file() else None

    for run in experiment.runs():
        files, job = layout.run_files(run), job_of(experiment, run.model_dump())
        check(files.folder, read_mapping(files.origin) if files.origin.is_file() else None, job, "train")
        check(files.evaluation, origin_in(files.evaluation), job, "evaluate")
    for model, benchmark in experiment.base_evaluations():
        job = job_of(experiment, {"model": model, "benchmark": benchmark})
        evaluation, gap = layout.base_files(model, benchmark).evaluation, layout.gap(model, benchmark)
        check(evaluation, origin_in(evaluation), job, "evaluate_base")
        check(gap, origin_in(gap), job, "gap")
    return experiment


def others_of(experiment: Experiment, layout: Layout) -> list[str]:
    """The runs of a results folder that are not in the experiment: they count in no number."""
    planned = {layout.run(run) for run in experiment.runs()}
    found = {path.parent for path in layout.found(layout.any_run.origin)} - planned
    return sorted(str(folder.relative_to(layout.folder)) for folder in found)


def check_origin(result: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise if a result, a file or a folder, has other settings than now, or other hashes of what is known now."""
    parts = [part for part in _RESULT if part != "packages" and now["provenance"].get(part)]
    if differences := _differences(before, now, parts):
        raise SrpoError(f"{result}: made with other settings: {listed(differences)}; restore them, or delete it")


def _differences(before: dict[str, Any], now: dict[str, Any], parts: Iterable[str] = _RESULT) -> Changed:
    """Old and new value of what determines a run's result and differs: settings, and ``parts`` of the provenance."""
    old, new = (
        {part: origin["provenance"].get(part) or {} for part in parts} | filled_in(origin["spec"])
        for origin in (before, now)
    )
    # not a file of own code, nor a package, that only one of two versions of srpo looked at
    return {
        key: values
        for key, values in changed(old, new).items()
        if not (key.startswith("code.") and values[0] is None) and not (key.startswith("packages.") and None in values)
    }


def _edited(before: dict[str, Any], now: dict[str, Any]) -> Changed:
    """Old and new hash of srpo's own code, if both are known and differ.

    Not if the settings have other keys, as in another version: then Snakemake started the run for these, not a person.
    """
    old, new = (origin["provenance"].get("source") for origin in (before, now))
    same_keys = flattened(before["spec"]).keys() == flattened(now["spec"]).keys()
    return {"source": (old, new)} if old and new and old.split(", ")[-1] != new and same_keys else {}


def _prolongs(before: dict[str, Any], now: dict[str, Any], changed: Changed) -> bool:
    """Whether the only change is a longer budget or a higher step limit."""
    last_budget = max(before["spec"]["training"].get("budget_seconds", {}).values(), default=math.inf)
    for key, (old, new) in changed.items():
        longer_budget = key.startswith("training.budget_seconds.") and old is None and new > last_budget
        more_steps = key == "training.max_steps" and old is not None and (new is None or new > old)
        if not (longer_budget or more_steps):
            return False
    return True


def _set_aside(files: RunFiles, changed: Changed) -> None:
    folder = next(f for n in itertools.count(1) if not (f := files.superseded / str(n)).exists())
    logger.warning(
        "%s: starting over, the run before is set aside in %s; changed: %s", files.folder, folder, listed(changed)
    )
    shutil.rmtree(files.checkpoints, ignore_errors=True)  # first: they must not be resumed from without logs
    folder.mkdir(parents=True)
    # in this order: if this is killed before the steps are moved, the run still counts as finished and is moved again
    shutil.copy2(files.origin, folder / files.origin.name)
    for path in (files.evaluation, files.samples, files.summary, *reversed(files.logs), files.finished):
        if path.exists():
            path.rename(folder / path.name)
