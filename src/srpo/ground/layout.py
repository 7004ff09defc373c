"""The path of every file of an experiment: the only module that knows their names (docs/architecture.md).

:class:`Layout` knows the folders of an experiment, :class:`RunFiles` the files of one training run. Names of models,
benchmarks and runs may be wildcards in braces: the rules ask for patterns, :meth:`Layout.found` for what exists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from srpo.ground.errors import SrpoError
from srpo.ground.schema import Config

RUN_PATH = "{model}/{benchmark}/{method}/seed{seed}"
"""Place of a run below ``runs``: filled in for one run, with its braces a pattern of all."""


class RunId(Config):
    """Identity of a training run; ``path`` is its place below ``results/<experiment>/runs``."""

    model: str
    benchmark: str
    method: str
    seed: int

    @property
    def path(self) -> str:
        return RUN_PATH.format(**self.model_dump())


PLACES: Mapping[str, str] = {
    "split": "data/{data_set}/{split}.parquet",
    "statistics": "data/{data_set}/statistics.json",
    "model": "models/{model}/base.json",
    "train": f"runs/{RUN_PATH}/summary.json",
    "evaluate": f"runs/{RUN_PATH}/evaluation.json",
    "evaluate_base": "base/{model}/{benchmark}/evaluation.json",
    "gap": "base/{model}/{benchmark}/gap.json",
}
"""The file that each command makes, below ``results/NAME``; its path says what the command is to do."""


_NAMES = {"split": "train|test", "seed": r"\d+"}


def located(path: Path, *commands: str) -> tuple[Layout, dict[str, str]]:
    """The results folder of a file that one of the ``commands`` makes, and the names in the file's path."""
    for place in map(PLACES.__getitem__, commands):
        folder = Path(*path.absolute().parts[: -len(Path(place).parts)])
        pattern = re.sub(
            r"{(\w+)}", lambda name: f"(?P<{name[1]}>{_NAMES.get(name[1], '[^/]+')})", place.replace(".", r"\.")
        )
        if found := re.fullmatch(pattern, str(path.absolute().relative_to(folder))):
            return Layout(folder if path.is_absolute() else Path(os.path.relpath(folder))), found.groupdict()
    raise SrpoError(f"{path}: give results/NAME/{PLACES[commands[0]]}")


WEIGHTS = "huggingface"
"""Folder of a checkpoint that holds the weights in Hugging Face format; all that evaluation needs."""


RECORDS: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "run.yaml": {"spec": dict, "provenance": dict},
    "steps.jsonl": {"step": int},
    "validations.jsonl": {"step": int},
    "groups.jsonl": {"step": int},
    "watch.jsonl": {"step": int, "rule": str, "level": str},
    "attempts.jsonl": {"attempt": int, "event": str, "time": (int, float), "step": int},
    "samples.jsonl": {"question": int, "sample": int, "response": str},
    "summary.json": {"budgets": dict},
    "evaluation.json": {"run": dict, "k": int, "budgets": dict},
    "base.json": {"sha256": str},
    "gap.json": {"estimates": dict},
    "statistics.json": {"benchmark": str, "rows": dict},
}
"""What each record in a file of results has at least, by the file's name: without it the file is damaged."""


class _Place:
    """A path that is the same in every ``folder``: an attribute of classes that have one."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: RunFiles | Layout, owner: type) -> Path:
        return instance.folder / self._name


@dataclass(frozen=True)
class RunFiles:
    """Files of one training run, or of a base model's evaluation, which has the last three only."""

    folder: Path

    origin = _Place("run.yaml")
    """The resolved run specification and where it comes from."""

    steps = _Place("steps.jsonl")
    """Log of training steps, one event per line."""

    validations = _Place("validations.jsonl")

    groups = _Place("groups.jsonl")
    """Log of single groups of rollouts, for the report."""

    watch = _Place("watch.jsonl")
    """Log of alarms and warnings (:mod:`srpo.training.watch`); exists if there was one."""

    @property
    def logs(self) -> tuple[Path, ...]:
        """The logs that the training loop appends to; a resumed run truncates them."""
        return self.steps, self.validations, self.groups, self.watch

    attempts = _Place("attempts.jsonl")
    """Log of begin and end of each attempt."""

    summary = _Place("summary.json")
    """The result of the run within each budget; exists when the run is trained."""

    finished = _Place("finished")
    """The summary of a finished run, which stays: Snakemake deletes ``summary.json`` before it runs a job again."""

    weights = _Place("weights")
    """Weights of the selected checkpoints, as hard links: all that evaluation needs."""

    checkpoints = _Place("checkpoints")

    def checkpoint(self, step: int) -> Path:
        return self.checkpoints / f"step{step}"

    def selected(self, step: int) -> Path:
        """The weights of a selected step in Hugging Face format."""
        return self.weights / f"step{step}"

    superseded = _Place("superseded")
    """Folder of the logs of earlier settings."""

    def evidence(self, step: int) -> Path:
        """Rollouts and metrics of the step after which the run stopped with an error."""
        return self.folder / "evidence" / f"step{step}.json"

    evaluation = _Place("evaluation.json")
    """avg@k of each evaluated checkpoint."""

    samples = _Place("samples.jsonl")
    """Some responses of the evaluation."""

    server_log = _Place("server.log")
    """The output of the evaluation's rollout server."""


@dataclass(frozen=True)
class Layout:
    """Paths of an experiment; ``folder`` is ``results/<experiment>``."""

    folder: Path

    experiment = _Place("experiment.yaml")

    provenance = _Place("provenance.yaml")
    """Where a published experiment's numbers come from; the same is in ``run.yaml`` of each run."""

    tables = _Place("tables")

    def table(self, name: str, kind: str) -> Path:
        """A table as ``csv``, ``md`` or its caption, ``rst``."""
        return self.tables / f"{name}.{kind}"

    cost = _Place("cost")
    """Folder of the tables of measured seconds: they differ from machine to machine."""

    figures = _Place("figures")

    def figure(self, name: str, kind: str) -> Path:
        """A figure as ``png``, ``svg``, its numbers as ``csv`` or its caption, ``rst``."""
        return self.figures / f"{name}.{kind}"

    report = _Place("report.html")

    tuned = _Place("tuned.yaml")
    """What a search of hyperparameters has found."""

    tracking_id = _Place("tracking_id")
    """By this MLflow's runs belong to this folder; a copy of the folder gets an id of its own."""

    tracking_database = _Place("../mlflow.db")
    """MLflow's database, in the folder with the results of all experiments."""

    def split(self, benchmark: str, split: str) -> Path:
        return self.folder / "data" / benchmark / f"{split}.parquet"

    def statistics(self, benchmark: str) -> Path:
        return self.folder / "data" / benchmark / "statistics.json"

    def model(self, model: str) -> Path:
        return self.folder / "models" / model

    def base(self, model: str, benchmark: str) -> Path:
        return self.folder / "base" / model / benchmark

    def base_files(self, model: str, benchmark: str) -> RunFiles:
        return RunFiles(self.base(model, benchmark))

    def gap(self, model: str, benchmark: str) -> Path:
        """What ``srpo gap`` measured of a base model, before any training."""
        return self.base(model, benchmark) / "gap.json"

    def run(self, run: RunId) -> Path:
        return self.folder / "runs" / run.path

    def run_files(self, run: RunId) -> RunFiles:
        return RunFiles(self.run(run))

    @property
    def any_run(self) -> RunFiles:
        """Patterns of every run's files, with :data:`RUN_PATH`'s wildcards."""
        return RunFiles(self.folder / "runs" / RUN_PATH)

    def log(self, *names: str) -> Path:
        """What a rule printed, by kind of result and name: ``log("data", "physics", "test")``."""
        return self.folder.joinpath("logs", *names[:-1], f"{names[-1]}.log")

    def run_log(self, run: RunId, name: str) -> Path:
        """What a rule printed about a run: ``train``, ``train.<attempt>`` or ``evaluate``."""
        return self.log("runs", run.path, name)

    def found(self, pattern: Path) -> list[Path]:
        """The existing files of a pattern, sorted; ``pattern`` is a path of this layout with names in braces."""
        return sorted(self.folder.glob(re.sub(r"{\w+}", "*", str(pattern.relative_to(self.folder)))))


def model_description(folder: Path) -> Path:
    """``base.json`` in a base model's folder; exists when the model is complete."""
    return folder / "base.json"


def is_published(folder: Path) -> bool:
    """Whether a folder is what ``srpo publish`` writes."""
    return (folder / "runs.jsonl.gz").is_file()
