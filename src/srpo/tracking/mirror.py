"""Push a results directory into MLflow, any number of times, without ever pushing anything twice.

What has been pushed is remembered in MLflow itself, as tags of each MLflow run:

``srpo.path``
    what the MLflow run mirrors, relative to ``results/<experiment>``;
``srpo.source``
    a hash of its origin. Another hash means that the results were made anew: the MLflow run goes to
    MLflow's trash and a new one takes its place;
``srpo.synced_step``, ``srpo.synced_validation``, ``srpo.synced_summary``
    how far the logs of a training run have been pushed.

So a killed process, a server that was away or two processes at once cost nothing but another ``sync``.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from filelock import FileLock

from srpo.errors import SrpoError
from srpo.files import read_events
from srpo.layout import Layout

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

logger = logging.getLogger(__name__)

METRICS_A_REQUEST = 1000  # MLflow's limits of one log_batch
PARAMS_A_REQUEST = 100
LOCK_SECONDS = 60.0

# A training step must not wait long for a server that is away, failures are told in one line of our own, and no one
# asked to be counted.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def tracking_uri(folder: Path) -> str:
    """``MLFLOW_TRACKING_URI``, or a SQLite file beside the results of all experiments."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{folder.absolute().parent / 'mlflow.db'}"


def sync(folder: Path) -> None:
    """Bring MLflow up to date with everything in ``results/<experiment>``.

    Raises:
        SrpoError: if MLflow cannot be reached.
    """
    try:
        Mirror(folder).sync_all()
    except Exception as error:
        raise SrpoError(f"MLflow at {without_password(tracking_uri(folder))}: {_one_line(error)}") from None


@contextmanager
def mirrored(folder: Path) -> Iterator[Mirror]:
    """A mirror whose failures end in one warning: results never depend on MLflow."""
    try:
        yield Mirror(folder)
    except Exception as error:
        logger.warning(
            "MLflow at %s is not up to date, `srpo track sync %s` mends it: %s",
            without_password(tracking_uri(folder)),
            folder,
            _one_line(error),
        )


class LiveMirror:
    """Mirrors one training run while it trains: at most every ``interval`` seconds, and at the end.

    After a failure it warns once and waits twice as long before each further attempt.
    """

    def __init__(
        self,
        folder: Path,
        run_folder: Path,
        interval: float = 30.0,
        now: Callable[[], float] = time.monotonic,
    ):
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
        try:
            self._mirror.sync_run(self._run_folder)
        except Exception as error:
            self._interval *= 2
            if not self._warned:
                self._warned = True
                logger.warning("training goes on without MLflow, `srpo track sync` catches up: %s", _one_line(error))
        self._next = self._now() + self._interval


class Mirror:
    """The MLflow experiment that mirrors ``results/<experiment>``."""

    def __init__(self, folder: Path, lock_seconds: float = LOCK_SECONDS):
        self.layout = Layout(folder.absolute())
        self.uri = tracking_uri(folder)
        self._lock_seconds = lock_seconds
        self._client: MlflowClient | None = None
        self._experiment = ""
        self._lock: FileLock | None = None

    # ------------------------------------------------------------ stages

    def sync_data(self, benchmark: str) -> None:
        """Statistics of a benchmark's splits."""
        path = self.layout.statistics(benchmark)
        tags = {"stage": "data", "benchmark": benchmark}
        with self._connected():
            self._sync_file(path, f"data {benchmark}", tags, metrics=_numbers(_read_json(path).get("rows", {}), "rows"))

    def sync_model(self, model: str) -> None:
        """A base model and how its warm start went."""
        path = self.layout.model(model) / "base.json"
        content = _read_json(path)
        tags = {"stage": "model", "model": model}
        with self._connected():
            self._sync_file(path, f"model {model}", tags, _numbers(content), params=content)

    def sync_base(self, model: str, benchmark: str) -> None:
        """The evaluation of an untrained model."""
        path = self.layout.base(model, benchmark) / "evaluation.json"
        tags = {"stage": "evaluation", "method": "base", "model": model, "benchmark": benchmark}
        with self._connected():
            self._sync_file(path, f"base {model} {benchmark}", tags, _evaluation_metrics(path))

    def sync_run(self, run_folder: Path) -> None:
        """The new lines of a training run's logs."""
        with self._connected():
            self._sync_run(run_folder.absolute())

    def sync_evaluation(self, run_folder: Path) -> None:
        """The evaluation of a training run, nested under it."""
        path = run_folder.absolute() / "evaluation.json"
        with self._connected():
            parent = self._sync_run(path.parent)
            if parent is None:
                return
            tags = {key: parent.data.tags[key] for key in ("method", "model", "benchmark", "seed")}
            tags |= {"stage": "evaluation", "mlflow.parentRunId": parent.info.run_id}
            self._sync_file(path, f"{parent.info.run_name} evaluation", tags, _evaluation_metrics(path))

    def sync_report(self) -> None:
        """Tables, figures and the report, with the experiment they belong to."""
        layout = self.layout
        with self._connected():
            artifacts = {layout.experiment: "", layout.tables: "tables", layout.figures: "figures"}
            self._sync_file(layout.report, "report", {"stage": "report"}, artifacts=artifacts)

    def sync_all(self) -> None:
        """Everything that exists."""
        folder = self.layout.folder
        with self._connected():
            for path in sorted(folder.glob("data/*/statistics.json")):
                self.sync_data(path.parent.name)
            for path in sorted(folder.glob("models/*/base.json")):
                self.sync_model(path.parent.name)
            for path in sorted(folder.glob("base/*/*/evaluation.json")):
                self.sync_base(path.parent.parent.name, path.parent.name)
            for path in sorted(folder.glob("runs/*/*/*/seed*/run.yaml")):
                self.sync_run(path.parent)
            for path in sorted(folder.glob("runs/*/*/*/seed*/evaluation.json")):
                self.sync_evaluation(path.parent)
            if self.layout.report.exists():
                self.sync_report()

    # ------------------------------------------------------------ a training run

    def _sync_run(self, folder: Path) -> Run | None:
        from mlflow.entities import RunTag

        steps = list(read_events(folder / "steps.jsonl"))
        if not steps:
            return None
        description = yaml.load((folder / "run.yaml").read_text(), Loader=_YAML_LOADER)
        spec, provenance = description["spec"], description.get("provenance", {})
        # A resumed run keeps its first line; a run that started over does not (it holds measured seconds).
        source = _hash(spec, steps[0])
        identity = {key: str(value) for key, value in spec["id"].items()}
        tags = {"stage": "training", "commit": str(provenance.get("commit", "unknown")), **identity}
        run = self._run(folder, source, " ".join(identity.values()), tags, params={**spec, "provenance": provenance})

        start = run.info.start_time
        seen_step = int(run.data.tags.get("srpo.synced_step", -1))
        seen_validation = int(run.data.tags.get("srpo.synced_validation", -1))
        ends = dict(
            zip(
                (event["step"] for event in steps),
                itertools.accumulate(event.get("wall_seconds", 0.0) for event in steps),
                strict=True,
            )
        )

        def at(step: int) -> int:
            return start + int(1000 * ends.get(step, 0.0))

        validations = list(read_events(folder / "validations.jsonl"))
        metrics = [
            metric
            for event in steps
            if event["step"] > seen_step
            for metric in _metrics(_step_values(event), at(event["step"]), event["step"])
        ]
        metrics += [
            metric
            for event in validations
            if event["step"] > seen_validation
            for metric in _metrics(_numbers(event, "validation"), at(event["step"]), event["step"])
        ]
        if metrics:
            self._log_metrics(run.info.run_id, metrics)
            progress = {"srpo.synced_step": max(seen_step, steps[-1]["step"])}
            if validations:
                progress["srpo.synced_validation"] = max(seen_validation, validations[-1]["step"])
            self._client.log_batch(run.info.run_id, tags=[RunTag(key, str(step)) for key, step in progress.items()])
        self._finish_run(folder, run)
        return run

    def _finish_run(self, folder: Path, run: Run) -> None:
        summary = folder / "summary.json"
        if not summary.exists():
            return
        digest = _hash(summary.read_text())
        if run.data.tags.get("srpo.synced_summary") == digest:
            return
        content = _read_json(summary)
        values = _numbers({key: content.get(key) for key in ("peak_memory_gb", "wall_seconds")}, "summary")
        for name, budget in content.get("budgets", {}).items():
            if budget is not None:
                values[f"summary/{name}/avg_at_k"] = budget["avg_at_k"]
        self._log_metrics(run.info.run_id, list(_metrics(values, run.info.start_time, int(content["steps"]))))
        for path in (summary, folder / "run.yaml"):
            self._client.log_artifact(run.info.run_id, str(path))
        self._client.set_terminated(run.info.run_id, "FINISHED")
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
    ) -> None:
        """Mirror a finished file as an MLflow run of its own; once, unless its content changes."""
        source = _hash(path.read_text(), tags)
        run = self._run(path, source, name, tags, params or {})
        if run.info.status == "FINISHED":
            return
        for key, value in (metrics or {}).items():
            step, number = value if isinstance(value, tuple) else (0, value)
            self._log_metrics(run.info.run_id, list(_metrics({key: number}, run.info.start_time, step)))
        self._client.log_artifact(run.info.run_id, str(path))
        for artifact, place in (artifacts or {}).items():
            if artifact.is_dir():
                self._client.log_artifacts(run.info.run_id, str(artifact), place or None)
            elif artifact.exists():
                self._client.log_artifact(run.info.run_id, str(artifact), place or None)
        self._client.set_terminated(run.info.run_id, "FINISHED")

    # ------------------------------------------------------------ MLflow

    def _run(self, path: Path, source: str, name: str, tags: dict[str, str], params: dict[str, Any]) -> Run:
        """The MLflow run of ``path``; one of another source is moved to MLflow's trash."""
        from mlflow.entities import Param

        place = path.relative_to(self.layout.folder).as_posix()
        found = self._client.search_runs([self._experiment], f"tags.`srpo.path` = '{place}'")
        for run in found:
            if run.data.tags.get("srpo.source") == source and "srpo.created" in run.data.tags:
                return run
        for run in found:
            self._client.delete_run(run.info.run_id)
        run = self._client.create_run(
            self._experiment,
            run_name=name,
            start_time=int(1000 * path.stat().st_mtime),
            tags={"srpo.path": place, "srpo.source": source, **tags},
        )
        flat = sorted(_flatten(params))
        for first in range(0, len(flat), PARAMS_A_REQUEST):
            chunk = [Param(key, value) for key, value in flat[first : first + PARAMS_A_REQUEST]]
            self._client.log_batch(run.info.run_id, params=chunk)
        self._client.set_tag(run.info.run_id, "srpo.created", "true")
        return self._client.get_run(run.info.run_id)

    def _log_metrics(self, run_id: str, metrics: list[Metric]) -> None:
        for first in range(0, len(metrics), METRICS_A_REQUEST):
            self._client.log_batch(run_id, metrics=metrics[first : first + METRICS_A_REQUEST])

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Hold the lock: it orders schema creation, run creation and SQLite's writers."""
        database = self.uri.removeprefix("sqlite:///")
        place = Path(database) if database != self.uri else self.layout.folder / ".mlflow"
        place.parent.mkdir(parents=True, exist_ok=True)
        with self._lock_at(place):
            if self._client is None:
                self._client = self._connect()
            yield

    def _lock_at(self, place: Path) -> FileLock:
        # One object a mirror, so that sync_all's inner calls re-enter the lock they already hold.
        if self._lock is None:
            self._lock = FileLock(f"{place}.lock", timeout=self._lock_seconds)
        return self._lock

    def _connect(self) -> MlflowClient:
        for key, value in _ENVIRONMENT.items():
            os.environ.setdefault(key, value)
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        client = MlflowClient(self.uri)
        name = self.layout.folder.name
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            local = self.uri.startswith("sqlite:///")
            artifacts = (self.layout.folder.parent / "mlartifacts").as_uri() if local else None
            try:
                self._experiment = client.create_experiment(name, artifact_location=artifacts)
            except MlflowException:  # another process was faster
                self._experiment = client.get_experiment_by_name(name).experiment_id
        else:
            self._experiment = experiment.experiment_id
        return client


_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _read_json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def _hash(*parts: Any) -> str:
    return hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=16).hexdigest()


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {without_password(' '.join(str(error).split()))[:300]}"


def without_password(text: str) -> str:
    """``text`` with what stands before the host in its URLs replaced: ``https://user:password@host``."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)


def _flatten(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        if isinstance(item, dict):
            yield from _flatten(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(item)


def _numbers(value: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a nested mapping, named by their path; ``step`` is not one of them."""
    numbers = {}
    for key, item in value.items():
        name = f"{prefix}/{key}" if prefix else key
        if isinstance(item, dict):
            numbers |= _numbers(item, name)
        elif isinstance(item, int | float) and not isinstance(item, bool) and key != "step":
            numbers[name] = float(item)
    return numbers


def _step_values(event: dict[str, Any]) -> dict[str, float]:
    rest = {key: value for key, value in event.items() if key != "metrics"}
    return {**event["metrics"], **_numbers(rest)}


def _evaluation_metrics(path: Path) -> dict[str, tuple[int, float]]:
    """Name -> (step, value) of every number of every budget."""
    return {
        name: (budget["step"], number)
        for key, budget in _read_json(path)["budgets"].items()
        if budget is not None
        for name, number in _numbers(budget, f"evaluation/{key}").items()
    }


def _metrics(values: dict[str, float], timestamp: int, step: int) -> Iterator[Metric]:
    from mlflow.entities import Metric

    return (Metric(key, value, timestamp, step) for key, value in values.items())
