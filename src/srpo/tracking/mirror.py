"""Copy a results directory to MLflow. It can be repeated; nothing is copied twice.

Tags of each MLflow run record what has been copied:

``srpo.path``
    the mirrored file or folder, relative to ``results/<experiment>``;
``srpo.source``
    a hash of its origin. If the hash differs, the results were made again: the MLflow run moves to MLflow's trash and
    is replaced by a new one;
``srpo.watch``
    the rules of the watch for falls that gave an alarm or a warning, if any;
``srpo.synced_step``, ``srpo.synced_validation``, ``srpo.synced_summary``
    the last copied events of a training run's logs.

After a killed process, an unreachable server or two processes at the same time, one more ``sync`` is enough.

The MLflow experiment ``<experiment>`` has the training runs, each with its evaluation nested below it, and the report.
``<experiment>/inputs`` has data, base models and their evaluations.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import yaml
from filelock import FileLock

from srpo.errors import SrpoError
from srpo.files import read_events, read_json
from srpo.layout import Layout, RunFiles
from srpo.schema import flattened
from srpo.tracking.descriptions import ABOUT, ABOUT_INPUTS, COMMIT, NOTE, SOURCE, data_sets, run_note, user, watch_text
from srpo.tracking.times import RunTimes
from srpo.watch import Signal

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput, Metric, Run
    from mlflow.entities import Experiment as MlflowExperiment

    from srpo.experiment.config import Experiment, RunSpec

logger = logging.getLogger(__name__)

LOCK_SECONDS = 60.0

INPUTS = "/inputs"
"""Ends the name of the MLflow experiment of data and base models; no experiment of ours has a slash in its name."""

FORMAT = 3
"""Version of the mirrored runs; runs of another version are mirrored again."""

_ARTIFACTS = "mlartifacts"

# A training step must not wait long for an unreachable server, we report failures in one line, and telemetry is off.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def tracking_uri(folder: Path) -> str:
    """``MLFLOW_TRACKING_URI``, or a SQLite file beside the results of all experiments."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Layout(folder).tracking_database}"


def sync(folder: Path) -> None:
    """Bring MLflow up to date with everything in ``results/<experiment>``.

    Raises:
        SrpoError: if MLflow cannot be reached.
    """
    with reachable(tracking_uri(folder)):
        Mirror(folder).sync_all()


@contextmanager
def reachable(uri: str) -> Iterator[None]:
    """Makes each error one line that names MLflow's place."""
    try:
        yield
    except SrpoError:
        raise
    except Exception as error:
        raise SrpoError(f"MLflow at {without_password(uri)}: {_one_line(error)}") from None


def connect(uri: str) -> MlflowClient:
    """MLflow's client; its errors come soon and in one line."""
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    from mlflow import MlflowClient

    return MlflowClient(uri)


@contextmanager
def mirrored(folder: Path) -> Iterator[Mirror]:
    """A mirror whose errors become one warning: results never depend on MLflow."""
    try:
        yield Mirror(folder)
    except Exception as error:
        logger.warning(
            "MLflow at %s is not up to date, `srpo track sync %s` updates it: %s",
            without_password(tracking_uri(folder)),
            folder,
            _one_line(error),
        )


def is_mirrored_live(experiment: Experiment | RunSpec) -> bool:
    """Whether each stage is mirrored when it ends: if there is a server or a wall clock.

    Otherwise the mirror rule copies everything once at the end: importing MLflow takes 3 s of a core, and most stages
    of an experiment with a modelled clock are not much longer.
    """
    return bool(os.environ.get("MLFLOW_TRACKING_URI")) or experiment.training.clock.kind != "modelled"


class LiveMirror:
    """Mirrors one training run while it trains: at most every ``interval`` seconds, and at the end.

    After a failure it warns once and waits twice as long before each further attempt.

    Args:
        folder: the experiment's folder.
        run_folder: the run's.
        enabled: if false, nothing is mirrored.
    """

    def __init__(
        self,
        folder: Path,
        run_folder: Path,
        interval: float = 30.0,
        now: Callable[[], float] = time.monotonic,
        enabled: bool = True,
    ):
        self._enabled = enabled
        self._mirror = Mirror(folder, lock_seconds=5.0)
        self._run_folder = run_folder
        self._interval = interval
        self._now = now
        self._next = now() + interval
        self._warned = False

    def step(self) -> None:
        """Mirror what the logs hold, if it is time to."""
        if self._now() >= self._next:
            self.sync()

    def sync(self) -> None:
        """Mirror what the logs hold now."""
        if not self._enabled:
            return
        try:
            self._mirror.sync_run(self._run_folder)
        except Exception as error:
            self._interval *= 2
            if not self._warned:
                self._warned = True
                logger.warning(
                    "training continues without MLflow, `srpo track sync` copies it later: %s", _one_line(error)
                )
        self._next = self._now() + self._interval


class Mirror:
    """The MLflow experiment that mirrors ``results/<experiment>``."""

    def __init__(self, folder: Path, lock_seconds: float = LOCK_SECONDS):
        self.layout = Layout(folder.absolute())
        self.uri = tracking_uri(folder)
        file = self.uri.removeprefix("sqlite:///")
        self._database = Path(file).absolute() if file != self.uri else None  # None: MLflow has a server
        # it orders schema creation, run creation and SQLite's writers; sync_all's inner calls enter it again
        self._lock = FileLock(f"{self._database or self.layout.folder / '.mlflow'}.lock", timeout=lock_seconds)
        self._client: Any = None  # an MlflowClient once a session is open
        self._experiments: dict[str, str] = {}

    # ------------------------------------------------------------ stages

    def sync_data(self, benchmark: str) -> None:
        """Statistics of a benchmark's splits."""
        path = self.layout.statistics(benchmark)
        tags = {"stage": "data", "benchmark": benchmark}
        with self._connected():
            rows = numbers(read_json(path).get("rows", {}), "rows")
            self._sync_file(path, f"data {benchmark}", tags, rows, experiment=INPUTS)

    def sync_model(self, model: str) -> None:
        """A base model and how its warm start went."""
        path = self.layout.model_description(model)
        content = read_json(path)
        tags = {"stage": "model", "model": model}
        with self._connected():
            self._sync_file(path, f"model {model}", tags, numbers(content), params=content, experiment=INPUTS)

    def sync_base(self, model: str, benchmark: str) -> None:
        """The evaluation of an untrained model."""
        path = self.layout.base_files(model, benchmark).evaluation
        tags = {"stage": "evaluation", "method": "base", "model": model, "benchmark": benchmark}
        with self._connected():
            self._sync_file(path, f"base {benchmark} {model}", tags, _evaluation_metrics(path), experiment=INPUTS)

    def sync_run(self, run_folder: Path) -> None:
        """The new lines of a training run's logs."""
        with self._connected():
            self._sync_run(run_folder.absolute())

    def sync_evaluation(self, run_folder: Path) -> None:
        """The evaluation of a training run, nested under it."""
        path = RunFiles(run_folder.absolute()).evaluation
        with self._connected():
            found = self._sync_run(path.parent)
            if found is None:
                return
            parent, times = found
            tags = {key: parent.data.tags[key] for key in ("method", "model", "benchmark", "seed")}
            tags |= {"stage": "evaluation", "mlflow.parentRunId": parent.info.run_id}
            tags |= {key: parent.data.tags[key] for key in ("commit", COMMIT) if key in parent.data.tags}
            tags |= {SOURCE: "srpo evaluate", NOTE: "avg@k of the checkpoints that the budgets selected, resampled."}
            seconds = read_json(path).get("wall_seconds", 0.0)
            self._sync_file(
                path,
                f"evaluation · {parent.info.run_name}",
                tags,
                _evaluation_metrics(path),
                span=(times.end, times.end + int(1000 * seconds)),
            )

    def sync_report(self) -> None:
        """Tables, figures and the report, with the experiment they belong to.

        It is dated to the end of the newest training run, so that it is the first line of the list, and the
        experiment's description links to it.
        """
        layout = self.layout
        with self._connected():
            artifacts = {layout.experiment: "", layout.tables: "tables", layout.figures: "figures"}
            tags = {"stage": "report", SOURCE: "srpo report", NOTE: "Under Artifacts: report.html, tables and figures."}
            ends = [
                RunTimes.read(files).end
                for origin in layout.found(layout.any_run.origin)
                if (files := RunFiles(origin.parent)).steps.exists()
            ]
            span = (max(ends), max(ends)) if ends else None
            run = self._sync_file(layout.report, "report", tags, artifacts=artifacts, span=span)
            place = f"#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}/artifacts/{layout.report.name}"
            text = f"{ABOUT} [The report]({place}) is an artifact of the run `report`."
            self._client.set_experiment_tag(run.info.experiment_id, NOTE, text)

    def sync_all(self, model: str = "{model}", base_models: Sequence[str] = ()) -> None:
        """Everything that exists; with ``model`` and its base models, the data and the results of this model."""
        layout = self.layout
        runs = layout.runs_of(model)
        with self._connected():
            for path in layout.found(layout.statistics("{benchmark}")):
                self.sync_data(path.parent.name)
            for base in base_models or [model]:
                for path in layout.found(layout.model_description(base)):
                    self.sync_model(path.parent.name)
                for path in layout.found(layout.base_files(base, "{benchmark}").evaluation):
                    self.sync_base(path.parent.parent.name, path.parent.name)
            for path in layout.found(runs.origin):
                self.sync_run(path.parent)
            for path in layout.found(runs.evaluation):
                self.sync_evaluation(path.parent)
            if model == "{model}" and layout.report.exists():
                self.sync_report()

    # ------------------------------------------------------------ a training run

    def _sync_run(self, folder: Path) -> tuple[Run, RunTimes] | None:
        from mlflow.entities import RunTag

        files = RunFiles(folder)
        steps = list(read_events(files.steps))
        if not steps:
            return None
        description = yaml.load(files.origin.read_text(), Loader=_YAML_LOADER)
        spec, provenance = description["spec"], description.get("provenance", {})
        # A resumed run keeps its first line; a run that started over does not (it holds measured seconds).
        source = _hash(FORMAT, spec, steps[0])
        identity = {key: str(value) for key, value in spec["id"].items()}
        tags = {"stage": "training", "commit": str(provenance.get("commit", "unknown")), **identity}
        tags |= {SOURCE: "srpo train", NOTE: run_note(spec)}
        if (commit := tags["commit"]) != "unknown":
            tags[COMMIT] = commit.removesuffix("-dirty")
        # lists show about 18 characters of a name
        name = "{benchmark} s{seed} {method}".format(**identity)
        if len(list(self.layout.folder.glob("runs/*"))) > 1:
            name += f" {identity['model']}"
        times = RunTimes.read(files, steps)
        params = {**spec, "provenance": provenance}
        run = self._run(folder, source, name, tags, params, start=times.start, inputs=data_sets(spec, provenance))

        seen_step = int(run.data.tags.get("srpo.synced_step", -1))
        seen_validation = int(run.data.tags.get("srpo.synced_validation", -1))
        validations = list(read_events(files.validations))
        metrics = [
            metric
            for event in steps
            if event["step"] > seen_step
            for metric in _metrics(step_values(event), times.at(event["step"]), event["step"])
        ]
        metrics += [
            metric
            for event in validations
            if event["step"] > seen_validation
            for metric in _metrics(numbers(event, "validation"), times.at(event["step"]), event["step"])
        ]
        if metrics:
            self._client.log_batch(run.info.run_id, metrics=metrics)
            progress = {"srpo.synced_step": max(seen_step, steps[-1]["step"])}
            if validations:
                progress["srpo.synced_validation"] = max(seen_validation, validations[-1]["step"])
            self._client.log_batch(run.info.run_id, tags=[RunTag(key, str(step)) for key, step in progress.items()])
        signals = [Signal(**event) for event in read_events(files.watch)]
        known, text = run.data.tags.get("srpo.watch", ""), watch_text(signals)
        if text and text != known:
            self._client.set_tag(run.info.run_id, "srpo.watch", text)
        elif known and not text:  # the run was resumed before its first signal
            self._client.delete_tag(run.info.run_id, "srpo.watch")
        self._finish_run(files, run, times)
        return run, times

    def _finish_run(self, files: RunFiles, run: Run, times: RunTimes) -> None:
        summary = files.summary
        if not summary.exists():
            return
        digest = _hash(summary.read_text())
        if run.data.tags.get("srpo.synced_summary") == digest:
            return
        content = read_json(summary)
        values = numbers({key: content.get(key) for key in ("peak_memory_gb", "wall_seconds")}, "summary")
        for name, budget in content.get("budgets", {}).items():
            if budget is not None:
                values[f"summary/{name}/avg_at_k"] = budget["avg_at_k"]
        metrics = [*_metrics(values, times.end, int(content["steps"]))]
        self._client.log_batch(run.info.run_id, metrics=metrics)
        for path in (summary, files.origin):
            self._client.log_artifact(run.info.run_id, str(path))
        self._client.set_terminated(run.info.run_id, "FINISHED", times.end)
        self._client.set_tag(run.info.run_id, "srpo.synced_summary", digest)

    # ------------------------------------------------------------ everything else is a file

    def _sync_file(
        self,
        path: Path,
        name: str,
        tags: dict[str, str],
        metrics: dict[str, tuple[int, float]] | dict[str, float] | None = None,
        params: dict[str, Any] | None = None,
        artifacts: dict[Path, str] | None = None,
        span: tuple[int, int] | None = None,
        experiment: str = "",
    ) -> Run:
        """Mirror a finished file as one MLflow run; once, unless its content changes.

        Args:
            span: start and end of the stage, in milliseconds since the epoch; default: now.
            experiment: ``INPUTS``, or nothing for the experiment of the training runs.
        """
        from mlflow.entities import Metric

        source = _hash(FORMAT, path.read_text(), tags, span)
        start, end = span or (_now(), None)
        run = self._run(path, source, name, tags, params or {}, start, experiment=experiment)
        if run.info.status == "FINISHED":
            return run
        found = ((key, value if isinstance(value, tuple) else (0, value)) for key, value in (metrics or {}).items())
        logged = [Metric(key, number, run.info.start_time, step) for key, (step, number) in found]
        self._client.log_batch(run.info.run_id, metrics=logged)
        self._client.log_artifact(run.info.run_id, str(path))
        for artifact, place in (artifacts or {}).items():
            if artifact.is_dir():
                self._client.log_artifacts(run.info.run_id, str(artifact), place or None)
            elif artifact.exists():
                self._client.log_artifact(run.info.run_id, str(artifact), place or None)
        self._client.set_terminated(run.info.run_id, "FINISHED", end)
        return run

    # ------------------------------------------------------------ MLflow

    def _run(
        self,
        path: Path,
        source: str,
        name: str,
        tags: dict[str, str],
        params: dict[str, Any],
        start: int,
        experiment: str = "",
        inputs: list[DatasetInput] | None = None,
    ) -> Run:
        """The MLflow run of ``path``; one of another source is moved to MLflow's trash."""
        from mlflow.entities import Param

        place = path.relative_to(self.layout.folder).as_posix()
        number = self._experiment(experiment)
        found = self._client.search_runs([number], f"tags.`srpo.path` = '{place}'")
        for run in found:
            if run.data.tags.get("srpo.source") == source and "srpo.created" in run.data.tags:
                return run
        for run in found:
            self._client.delete_run(run.info.run_id)
        run = self._client.create_run(
            number,
            run_name=name,
            start_time=start,
            tags={"srpo.path": place, "srpo.source": source, "mlflow.source.type": "LOCAL", **user(), **tags},
        )
        if inputs:
            self._client.log_inputs(run.info.run_id, inputs)
        self._client.log_batch(
            run.info.run_id, params=[Param(key, str(value)) for key, value in sorted(flattened(params).items())]
        )
        self._client.set_tag(run.info.run_id, "srpo.created", "true")
        return self._client.get_run(run.info.run_id)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Hold the lock."""
        Path(self._lock.lock_file).parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            if self._client is None:
                self._client = connect(self.uri)
            yield

    def _experiment(self, suffix: str) -> str:
        """Id of the MLflow experiment, made if need be: of the training runs, or with ``INPUTS`` of the rest."""
        if suffix not in self._experiments:
            self._experiments[suffix] = self._find_experiment(self.layout.folder.name + suffix)
        return self._experiments[suffix]

    def _find_experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        artifacts = self._database and self._database.parent / _ARTIFACTS
        experiment = self._client.get_experiment_by_name(name)
        if experiment is not None:
            if artifacts is not None and _was_moved(experiment, artifacts):
                raise SrpoError(
                    f"{self._database} was made in another folder, and MLflow keeps absolute paths; delete it and "
                    f"{artifacts}, and srpo track sync writes both again"
                )
            return experiment.experiment_id
        try:
            made = self._client.create_experiment(name, artifact_location=artifacts and artifacts.as_uri())
        except MlflowException:  # another process was faster
            return self._client.get_experiment_by_name(name).experiment_id
        self._client.set_experiment_tag(made, "mlflow.experimentKind", "custom_model_development")  # opens on its runs
        about = ABOUT_INPUTS if name.endswith(INPUTS) else ABOUT
        self._client.set_experiment_tag(made, NOTE, about)
        return made


def _was_moved(experiment: MlflowExperiment, artifacts: Path) -> bool:
    """Whether an experiment of ours keeps its artifacts in a folder that is not beside the database."""
    place = Path(unquote(urlparse(experiment.artifact_location).path))
    return place.name == _ARTIFACTS and place != artifacts


def _now() -> int:
    return int(1000 * time.time())


_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _hash(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {without_password(' '.join(str(error).split()))[:300]}"


def without_password(text: str) -> str:
    """``text`` without user and password in its URLs (``https://user:password@host``)."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)


def numbers(value: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a nested mapping, named by their path; ``step`` is not one of them."""
    named = flattened({prefix: value} if prefix else value, "/").items()
    found = {name: item for name, item in named if isinstance(item, int | float) and not isinstance(item, bool)}
    return {name: float(number) for name, number in found.items() if name.rpartition("/")[2] != "step"}


def step_values(event: dict[str, Any]) -> dict[str, float]:
    rest = {key: value for key, value in event.items() if key != "metrics"}
    return {**event["metrics"], **numbers(rest)}


def _evaluation_metrics(path: Path) -> dict[str, tuple[int, float]]:
    """Name -> (step, value) of every number of every budget."""
    return {
        name: (budget["step"], number)
        for key, budget in read_json(path)["budgets"].items()
        if budget is not None
        for name, number in numbers(budget, f"evaluation/{key}").items()
    }


def _metrics(values: dict[str, float], timestamp: int, step: int) -> Iterator[Metric]:
    from mlflow.entities import Metric

    return (Metric(key, value, timestamp, step) for key, value in values.items())
