"""Shows training runs in MLflow: a view of their files, made again when the files have changed.

An MLflow run has two tags of ours. ``srpo.path`` is the folder of the training run, relative to
``results/<experiment>``. ``srpo.files`` is a hash of the files that it shows, written last. An MLflow run with another
hash, or with none because its process was killed, moves to MLflow's trash and is made again.
"""

from __future__ import annotations

import getpass
import hashlib
import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from srpo.ground.errors import SrpoError
from srpo.ground.files import read_events, read_json, read_mapping
from srpo.ground.layout import Layout, RunFiles
from srpo.ground.schema import flattened
from srpo.ground.text import plural
from srpo.training.watch import Signal, summary_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

LOCK_SECONDS = 60.0

FORMAT = "4"
"""Version of the view; MLflow runs of another version are made again."""

# An unreachable server is an error soon and in one line, and telemetry is off.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
}


def tracking_uri(folder: Path) -> str:
    """``MLFLOW_TRACKING_URI``, or a SQLite file in the folder with the results of all experiments."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Layout(folder).tracking_database}"


def sync(folder: Path) -> str:
    """Make MLflow show every training run of ``results/<experiment>`` as its files are now.

    Args:
        folder: the experiment's folder; MLflow calls the experiment by its name.

    Returns:
        How many runs MLflow shows, in words.

    Raises:
        SrpoError: if MLflow cannot be reached, with the address of MLflow.
    """
    layout, uri = Layout(folder.absolute()), tracking_uri(folder)
    database = uri.removeprefix("sqlite:///")
    if Path(database).is_dir():  # MLflow would try for minutes
        raise SrpoError(f"MLFLOW_TRACKING_URI = {uri}: a folder; give the file of a database")
    # orders the creation of the schema and of runs, and SQLite's writers
    place = Path(database).absolute() if database != uri else layout.folder / ".mlflow"
    place.parent.mkdir(parents=True, exist_ok=True)
    with _reachable(uri), FileLock(f"{place}.lock", timeout=LOCK_SECONDS):
        client = _connect(uri)
        experiment = _experiment(client, layout.folder.name)
        shown = [_show(client, experiment, layout, RunFiles(at.parent)) for at in layout.found(layout.any_run.origin)]
    return f"MLflow at {without_password(uri)} shows {plural(sum(shown), 'run')}"


@contextmanager
def _reachable(uri: str) -> Iterator[None]:
    try:
        yield
    except SrpoError:
        raise
    except Exception as error:
        reason = without_password(" ".join(str(error).split()))[:300]
        raise SrpoError(f"MLflow at {without_password(uri)}: {type(error).__name__}: {reason}") from None


def _connect(uri: str) -> MlflowClient:
    for key, value in _ENVIRONMENT.items():
        os.environ.setdefault(key, value)
    from mlflow import MlflowClient

    return MlflowClient(uri)


def _experiment(client: MlflowClient, name: str) -> str:
    if (experiment := client.get_experiment_by_name(name)) is not None:
        return experiment.experiment_id
    made = client.create_experiment(name)
    client.set_experiment_tag(made, "mlflow.experimentKind", "custom_model_development")  # opens on its runs
    client.set_experiment_tag(made, "mlflow.note.content", "A copy of the logs; `srpo track sync` makes it again.")
    return made


def _show(client: MlflowClient, experiment: str, layout: Layout, files: RunFiles) -> bool:
    """Make the MLflow run of a training run, unless the present one shows the same files; False without any step."""
    from mlflow.entities import Metric, Param

    steps = list(read_events(files.steps))
    if not steps:
        return False
    place, source = files.folder.relative_to(layout.folder).as_posix(), _hash(files)
    found = client.search_runs([experiment], f"tags.`srpo.path` = '{place}'")
    if any(run.data.tags.get("srpo.files") == source for run in found):
        return True
    for run in found:
        client.delete_run(run.info.run_id)
    description = read_mapping(files.origin)
    spec, provenance = description["spec"], description.get("provenance", {})
    start = int(1000 * _start(files))
    # training time: without waiting in a queue, validations and checkpoints
    ends = [start + int(1000 * s) for s in itertools.accumulate(event.get("wall_seconds", 0.0) for event in steps)]
    time_of = {event["step"]: end for event, end in zip(steps, ends, strict=True)}
    number = client.create_run(
        experiment,
        run_name="{benchmark} s{seed} {method} {model}".format(**spec["id"]),  # lists show the beginning
        start_time=start,
        tags={"srpo.path": place, "mlflow.source.type": "LOCAL"} | _tags(spec, provenance, files),
    ).info.run_id
    params = flattened({**spec, "provenance": provenance})
    metrics = [
        Metric(name, value, time_of.get(step, start if step == 0 else ends[-1]), step)
        for step, values in _numbers_by_step(files, steps)
        for name, value in values.items()
    ]
    client.log_batch(number, metrics, [Param(key, str(value)) for key, value in sorted(params.items())])
    if files.summary.exists():
        client.set_terminated(number, "FINISHED", ends[-1])
    client.set_tag(number, "srpo.files", source)
    return True


def _hash(files: RunFiles) -> str:
    found = hashlib.blake2b(FORMAT.encode(), digest_size=16)
    for path in (files.origin, files.steps, files.validations, files.watch, files.summary, files.evaluation):
        found.update(path.read_bytes() if path.exists() else b"")
        found.update(path.name.encode())
    return found.hexdigest()


def _start(files: RunFiles) -> float:
    """Seconds since the epoch: of the first attempt, or without a record of attempts of ``run.yaml``."""
    attempt = next(read_events(files.attempts), None)
    return attempt["time"] if attempt else files.origin.stat().st_mtime


def _tags(spec: dict[str, Any], provenance: dict[str, Any], files: RunFiles) -> dict[str, str]:
    commit = str(provenance.get("commit", "unknown"))
    tags = {"commit": commit, "mlflow.source.name": "srpo train"}
    tags |= {key: str(value) for key, value in spec["id"].items()}
    tags["mlflow.note.content"] = (
        f"{spec['method']['title']} of {spec['model']['title']} on {spec['benchmark']['title']}, "
        f"seed {spec['id']['seed']}, experiment {spec['experiment']}"
    )
    if commit != "unknown":
        tags["mlflow.source.git.commit"] = commit.removesuffix("-dirty")
    # rules of the watch that gave an alarm, then those that only warned
    levels = summary_of(Signal(**event) for event in read_events(files.watch))
    if said := "; ".join(f"{level}: {', '.join(rules)}" for level, rules in levels.items() if rules):
        tags["srpo.watch"] = said
    with suppress(OSError, KeyError):  # a container's user may have no name
        tags["mlflow.user"] = getpass.getuser()
    return tags


def _numbers_by_step(files: RunFiles, steps: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, float]]]:
    for event in steps:
        yield event["step"], step_values(event)
    for event in read_events(files.validations):
        yield event["step"], numbers(event, "validation")
    if files.summary.exists():
        summary = read_json(files.summary)
        values = {key: summary.get(key) for key in ("peak_memory_gb", "wall_seconds")}
        yield int(summary["steps"]), numbers(values, "summary")
    if files.evaluation.exists():
        for budget, found in read_json(files.evaluation)["budgets"].items():
            if found is not None:
                yield found["step"], numbers(found, f"evaluation/{budget}")


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
