"""Shows runs in MLflow: a view of their files, made while a run trains or at the end.

The key of an MLflow run are two tags: ``srpo.folder``, an id of the results folder, and ``srpo.path``, the run's place
in it. A third, ``srpo.shown``, says what MLflow has of the run's files; it is written last.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from srpo.experiment.config import Training, identity_of
from srpo.ground.errors import SrpoError
from srpo.ground.files import exclusive_access, read_events, read_json, read_mapping, write_text
from srpo.ground.layout import Layout, RunFiles, RunId
from srpo.ground.schema import flattened
from srpo.ground.text import plural
from srpo.training.watch import Signal, summary_of

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

LOCK_SECONDS = 60.0
LIVE_SECONDS = 10.0
"""How often a run that trains is shown; up to three times as long where that takes a fiftieth of a core."""

# An unreachable server is an error soon and in one line, and telemetry is off.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}

_PARAMETERS = re.compile(
    r"id\..*|benchmark\.(reward|facts|(train|test)_questions)|evaluation\..*|method\.(learning_rate|mini_batch_questions|"
    r"routing\..*|teacher\.kind|teacher_update_rate|entropy_beta|clip_ratio_(low|high)|module)|training\.("
    r"questions_per_batch|rollouts_per_question|max_\w+_length|temperature|warmup_steps|clock\.kind)|"
    r"execution\.(driver|ranks|precision|rollout_engine|verl_overrides\..*)"
)
"""Settings that a person would change; ``run.yaml`` has all."""

_PROLONGS = re.compile(r"training\.(budget_seconds|max_steps|stop_on)")
"""Settings with which a run may go on, ``stop_on`` in earlier versions; MLflow's parameters cannot change."""
_VIEW = {"searchFilter": "", "orderByKey": "attributes.start_time", "orderByAsc": False, "startTime": "ALL"}
_VIEW |= {"lifecycleFilter": "Active", "datasetsFilter": [], "modelVersionFilter": "All Runs"}


def sync(folder: Path) -> str:
    """Make MLflow show all runs of ``results/<experiment>`` and the report as their files are now; where, in words."""
    mirror = Mirror(Layout(folder))
    every, bases = mirror.layout.any_run.origin, mirror.layout.base_files("{model}", "{benchmark}").evaluation
    found = mirror.layout.found(every) + mirror.layout.found(bases)
    for file in found:
        mirror.show(RunFiles(file.parent))
    return f"MLflow at {without_password(mirror.uri)} shows {plural(len(found), 'run')}: {mirror.show_report()}"


@contextmanager
def live(folder: Path) -> Iterator[None]:
    """Show a run in MLflow while it trains, from a thread: nothing waits for it but the end, for a minute at most."""
    files, over = RunFiles(Path(os.path.abspath(folder))), threading.Event()
    mirror = Mirror(Layout(folder / "../../../../.."))

    def follow() -> None:
        ended, pause = False, LIVE_SECONDS
        while not ended:
            ended, start = over.wait(pause), time.thread_time()
            mirror.update(files, running=not ended)
            pause = min(3 * LIVE_SECONDS, max(LIVE_SECONDS, 50 * (time.thread_time() - start)))

    (thread := threading.Thread(target=follow, daemon=True)).start()
    try:
        yield
    finally:
        over.set()
        thread.join(LOCK_SECONDS)


class Mirror:
    """MLflow's view of one results folder: at ``MLFLOW_TRACKING_URI``, or in a SQLite file beside the folder."""

    def __init__(self, layout: Layout) -> None:
        self.layout = Layout(Path(os.path.abspath(layout.folder)))
        self.uri = (
            os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{os.path.abspath(self.layout.tracking_database)}"
        )
        self._database = Path(self.uri.removeprefix("sqlite:///")).absolute() if self.uri.startswith("sqlite") else None
        self._client: MlflowClient | None = None
        self._failed = False

    def update(self, files: RunFiles, running: bool = False) -> None:
        """Show a run if it is live and has begun; that this fails is one warning."""
        try:
            if (files.origin.exists() or files.evaluation.exists()) and _is_live(_description(files)[0]):
                self.show(files, running)
        except Exception as error:
            if not self._failed:
                print(f"srpo: warning: {' '.join(str(error).split())}; `srpo track sync` repairs it", file=sys.stderr)
            self._failed = True

    def show(self, files: RunFiles, running: bool = False) -> None:
        """Log what a run's files have more than before; all, as another run, if lost steps have other values now."""
        spec, provenance = _description(files)
        status, state = _state(self.layout, files, spec, running)
        # in this order: a validation comes after its step
        validations, steps = list(read_events(files.validations)), list(read_events(files.steps))
        begin = next(read_events(files.attempts), {}).get("time")
        same = {key: value for key, value in identity_of(spec).items() if not _PROLONGS.match(key)}
        again = [path.name for path in sorted(files.superseded.glob("*"))]  # of a run that started over
        origin = _hash(begin, *again, same, *map(provenance.get, ("srpo", "source", "data", "base_model", "code")))
        seed = f"s{spec['id']['seed']} " if "method" in spec else ""
        name = f"{{method}} {{benchmark}} {seed}{{model}}".format(**spec["id"])
        with self._turn() as client:
            from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag

            run = self._run(client, files.folder, origin, begin, name)
            known = _shown(run)
            last = max((event["step"] for event in validations), default=0)
            there = len(steps) >= known["step"] and last >= known["validation"]
            if there and known.get("values", "") not in ("", _values(known, steps, validations)):
                client.set_tag(run.info.run_id, "srpo.origin", "lost")
                known = _shown(run := self._run(client, files.folder, origin, begin, name))
            number = run.info.run_id
            parts = (*files.logs, files.summary, files.evaluation)
            now = {
                "step": max(known["step"], len(steps)),
                "validation": max(known["validation"], last),
                "files": _hash(state, *(path.exists() and path.read_bytes() for path in parts)),
            }
            now["values"] = _values(now, steps, validations) if there else known.get("values", "")
            if known == now:
                return
            # training time: without waiting in a queue, validations and checkpoints
            seconds = itertools.accumulate((event.get("wall_seconds", 0.0) for event in steps), initial=0.0)
            times = [run.info.start_time + int(1000 * s) for s in seconds]
            points = [(event["step"], step_values(event)) for event in steps[known["step"] :]]
            checked = (event for event in validations if event["step"] > known["validation"])
            points += [(event["step"], numbers(event, "validation")) for event in checked]
            metrics = [
                Metric(name, x, times[min(at, len(steps))], at) for at, found in points for name, x in found.items()
            ]
            metrics += [Metric(*found) for found in _scores(files)] if files.evaluation.exists() else []
            # the last point of a name first: then MLflow replaces the name's latest value once, which saves a sixth
            metrics.sort(key=lambda metric: (metric.key, -metric.step))
            tags = _tags(spec, provenance, files) | {"state": state, "experiment": self.layout.folder.name}
            client.log_batch(number, metrics, tags=[RunTag(*each) for each in tags.items()])
            if "files" not in known:
                params = {key: str(x) for key, x in flattened(spec).items() if _PARAMETERS.fullmatch(key)}
                client.log_batch(number, params=[Param(*each) for each in params.items()])
                for split, sha256 in provenance.get("data", {}).items():
                    data = Dataset(spec["benchmark"]["name"], sha256[:8], "local", sha256)
                    client.log_inputs(number, [DatasetInput(data, [InputTag("mlflow.data.context", split)])])
            if "files" not in known or status != "RUNNING":
                self._log_artifacts(client, run, files.origin, files.evaluation, files.samples)
            client.set_terminated(number, status, times[-1] if status != "RUNNING" else None)
            client.set_tag(number, "srpo.shown", json.dumps(now))

    def show_report(self) -> str:
        """Make MLflow show report, tables and figures as a run, and all runs with their scores; return the address."""
        layout = self.layout
        with self._turn() as client:
            if layout.report.exists():
                run = self._run(client, layout.folder, "report", None, "report")
                self._log_artifacts(client, run, layout.report, layout.tables, layout.cost, layout.figures)
                client.set_terminated(run.info.run_id)
            found = {key for run in client.search_runs([self._experiment]) for key in run.data.metrics}
            scores = sorted((key for key in found if key.startswith("score_")), key=lambda key: (len(key), key))
            columns = [f"metrics.`{key}`" for key in scores]
            view = json.dumps(_VIEW | {"selectedColumns": columns})
            client.set_experiment_tag(self._experiment, "mlflow.sharedViewState.scores", view)
        server = "http://localhost:5000" if self._database else without_password(self.uri)
        return f"{server}/#/experiments/{self._experiment}/runs?workflowType=machine_learning&viewStateShareKey=scores"

    @contextmanager
    def _turn(self) -> Iterator[MlflowClient]:
        """MLflow's client. One process at a time makes the schema and what runs share, or writes to SQLite."""
        os.environ.update({key: value for key, value in _ENVIRONMENT.items() if key not in os.environ})
        place, alone = self._database or self.layout.folder / ".mlflow", self._database or self._client is None
        try:
            from mlflow import MlflowClient

            place.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{place}.lock", timeout=LOCK_SECONDS) if alone else nullcontext():
                self._client = self._client or self._open(MlflowClient(self.uri))
                yield self._client
        except Exception as error:
            reason = without_password(" ".join(str(error).split()))[:300]
            raise SrpoError(f"MLflow at {without_password(self.uri)}: {type(error).__name__}: {reason}") from None

    def _open(self, client: MlflowClient) -> MlflowClient:
        """Find, restore or make the experiment, and the id of the results folder."""
        name, identity = self.layout.folder.name, self.layout.tracking_id
        known, _, place = (identity.read_text() if identity.exists() else "").strip().partition(" ")
        here = str(self.layout.folder.resolve())
        if not known or place != here:
            there = Path(place, identity.name)
            is_copy = place and there.exists() and there.read_text().startswith(known) and not there.samefile(identity)
            known = uuid.uuid4().hex if is_copy or not known else known  # a copy must not delete the other's runs
            write_text(identity, f"{known} {here}\n")
        # of the file beside the folder the name is enough, also after the folder was deleted and made again
        self._id = known if os.environ.get("MLFLOW_TRACKING_URI") else name
        found = client.get_experiment_by_name(name)
        self._experiment = found.experiment_id if found else client.create_experiment(name, self._artifacts(name))
        if found and found.lifecycle_stage == "deleted":
            client.restore_experiment(self._experiment)
        return client

    def _artifacts(self, name: str) -> str | None:
        """Where the artifacts of an experiment are; None: where the server wants them."""
        return (self._database.parent / "mlartifacts" / name).as_uri() if self._database else None

    def _run(self, client: MlflowClient, folder: Path, origin: str, begin: float | None, name: str) -> Run:
        """The MLflow run of a folder: found, restored, or made. One of another origin goes to the trash."""
        from mlflow.entities import ViewType

        key = {"srpo.folder": self._id, "srpo.path": os.path.relpath(folder, self.layout.folder)}
        which = " and ".join(f"tags.`{tag}` = '{value}'" for tag, value in key.items())
        mine = None
        for run in client.search_runs([self._experiment], which, ViewType.ALL):
            active = run.info.lifecycle_stage == "active"
            if mine is None and run.data.tags.get("srpo.origin") == origin:
                mine = run
                if not active:
                    client.restore_run(run.info.run_id)
            elif active:
                client.delete_run(run.info.run_id)
        start, tags = int(1000 * (begin or time.time())), key | {"srpo.origin": origin}
        return mine or client.create_run(self._experiment, start, tags, name)

    def _log_artifacts(self, client: MlflowClient, run: Run, *paths: Path) -> None:
        if not run.info.artifact_uri.startswith(self._artifacts("") or ""):
            return  # the database has moved: MLflow would write where it was
        for path in filter(Path.exists, paths):
            client.log_artifact(run.info.run_id, str(path))


def _shown(run: Run) -> dict[str, Any]:
    """Up to which step and validation a run in MLflow has points, and the hash of their values."""
    return json.loads(run.data.tags.get("srpo.shown", '{"step": 0, "validation": 0}'))


def _values(shown: dict[str, Any], steps: list[dict[str, Any]], validations: list[dict[str, Any]]) -> str:
    checked = (event["avg_at_k"] for event in validations if event["step"] <= shown["validation"])
    return _hash(*(event["metrics"] for event in steps[: shown["step"]]), *checked)


def _is_live(spec: dict[str, Any]) -> bool:
    """Whether MLflow shows a run while it trains: never in SQLite on a cluster's file system."""
    asked = spec["execution"].get("tracking") or ("copy" if spec["model"]["kind"] == "miniature" else "live")
    return asked == "live" and bool(os.environ.get("MLFLOW_TRACKING_URI") or "SLURM_JOB_ID" not in os.environ)


def _description(files: RunFiles) -> tuple[dict[str, Any], dict[str, Any]]:
    """Specification and provenance of a run, or of an untrained model's evaluation."""
    if files.origin.exists():
        found = read_mapping(files.origin)
        return found["spec"], found.get("provenance", {})
    evaluation = read_json(files.evaluation)
    made = evaluation.get("from", {"spec": {}, "provenance": {}})
    spec = {part: settings for part, settings in made["spec"].items() if part != "training"}
    return spec | {"id": {**evaluation["run"], "method": "untrained"}}, made["provenance"]


def _state(layout: Layout, files: RunFiles, spec: dict[str, Any], running: bool) -> tuple[str, str]:
    """MLflow's status of a run, and the state in our words."""
    if "method" not in spec:
        return "FINISHED", "evaluated"
    from srpo.training.status import read_run

    found = read_run(RunId(**spec["id"]), Training.model_construct(**spec["training"]), layout)
    if found.stage == "training" and not running:
        with suppress(SrpoError), exclusive_access(files.folder, patience=0):
            return "KILLED", "its process is gone"
    why = found.error or (read_json(files.summary).get("stopped_by") if files.summary.exists() else None)
    ends = {"training": "RUNNING", "waiting": "KILLED", "failed": "FAILED"}
    return ends.get(found.stage, "FINISHED"), f"{found.stage}: {why}" if why else found.stage


def _hash(*parts: Any) -> str:
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _tags(spec: dict[str, Any], provenance: dict[str, Any], files: RunFiles) -> dict[str, str]:
    # rules of the watch that gave an alarm, then those that only warned
    levels = summary_of(Signal(**event) for event in read_events(files.watch))
    said = "; ".join(f"{level}: {', '.join(rules)}" for level, rules in levels.items() if rules)
    tags = {"mlflow.source.name": "srpo", "srpo.watch": said or "nothing"} | {k: str(v) for k, v in spec["id"].items()}
    if commit := provenance.get("commit"):
        tags |= {"commit": commit, "mlflow.source.git.commit": commit.removesuffix("-dirty")}
    if training := spec.get("training"):  # no parameter: a run may go on to another budget
        budgets = ", ".join(f"{name} = {seconds:g} s" for name, seconds in training["budget_seconds"].items())
        tags["budgets"] = f"{budgets} of the {training['clock']['kind']} clock"
    return tags


def _scores(files: RunFiles) -> Iterator[tuple[str, float, int, int]]:
    """Name, value, time and step of what the evaluation found; the short ones are in percent."""
    # another evaluation is later, so MLflow takes its scores for the last ones
    at = int(1000 * files.evaluation.stat().st_mtime)
    for budget, found in read_json(files.evaluation)["budgets"].items():
        if found is not None:
            yield f"score_{budget}", round(100 * found["avg_at_k"], 2), at, 0
            yield from ((name, x, at, found["step"]) for name, x in numbers(found, f"evaluation/{budget}").items())


def without_password(text: str) -> str:
    """``text`` without user and password in its URLs (``https://user:password@host``)."""
    return re.sub(r"://[^/@\s]+@", "://***@", text)


def numbers(value: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a nested mapping, named by their path; ``step`` is not one of them."""
    named = flattened({prefix: value} if prefix else value, "/").items()
    found = {name: item for name, item in named if isinstance(item, int | float) and not isinstance(item, bool)}
    return {name: float(number) for name, number in found.items() if name.rpartition("/")[2] != "step"}


def step_values(event: dict[str, Any]) -> dict[str, float]:
    """The metrics of a line of ``steps.jsonl``, and its other numbers."""
    rest = {key: value for key, value in event.items() if key != "metrics"}
    return {**event["metrics"], **numbers(rest)}
