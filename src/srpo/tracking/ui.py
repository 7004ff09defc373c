"""MLflow's web pages, opened at an experiment's training runs, with their scores."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path

from srpo.errors import SrpoError
from srpo.tracking.mirror import connect, reachable, tracking_uri

START_SECONDS = 120.0
"""Maximum seconds until MLflow's server answers."""

_VIEW = "srpo"
_COLUMNS = ("tags.`method`", "tags.`benchmark`", "tags.`seed`", "tags.`model`")


def page(folder: Path) -> str:
    """The address of an experiment's training runs, from the server's on; it selects the columns with scores.

    Raises:
        SrpoError: if MLflow has none of the runs.
    """
    client = connect(tracking_uri(folder))
    experiment = client.get_experiment_by_name(folder.absolute().name)
    runs = experiment and client.search_runs([experiment.experiment_id], "tags.stage = 'training'")
    if not runs:
        raise SrpoError(f"{folder}: MLflow has no run of it; srpo track sync {folder} copies them")
    scores = sorted({name for run in runs for name in run.data.metrics if name.endswith("avg_at_k")}, key=_natural)
    columns = [*_COLUMNS, *(f"metrics.`{name}`" for name in scores)]
    # a view that MLflow's pages share; without workflowType they open on traces, of which there are none
    state = json.dumps({"selectedColumns": columns})
    client.set_experiment_tag(experiment.experiment_id, f"mlflow.sharedViewState.{_VIEW}", state)
    return f"#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={_VIEW}"


def serve(folder: Path, port: int, show: Callable[[str], object]) -> int:
    """Start MLflow's server for an experiment, if it has none yet, and ``show`` the address of its runs.

    A signal that asks this process to end (SIGTERM; SIGHUP, of a closed terminal) ends the server, too.

    Returns:
        The server's exit status, when it ends; 0 at once if there is a server: that of ``MLFLOW_TRACKING_URI``, or one
        at the port that has the experiment.

    Raises:
        SrpoError: if MLflow has none of the runs, another program has the port, or the server does not start.
    """
    uri = tracking_uri(folder)
    with reachable(uri):
        place = page(folder)
    if uri.startswith("http"):
        show(f"{uri.rstrip('/')}/{place}")
        return 0
    address = f"http://127.0.0.1:{port}"
    if _is_taken(port):
        if not _has_the_experiment(address, folder):
            raise SrpoError(f"port {port} is in use by another program; give another --port")
        show(f"{address}/{place}")
        return 0
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--port", str(port)]
    nothing, environment = subprocess.DEVNULL, os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (
        _ended_by_signals(),
        subprocess.Popen(command, stdout=nothing, stderr=nothing, env=environment, start_new_session=True) as server,
    ):
        try:
            _wait(server, port)
            show(f"{address}/{place}")
            return server.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)  # the server's processes, too


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_mlflow(address: str) -> bool:
    from mlflow import __version__

    return _answer(f"{address}/health") == "OK" and _answer(f"{address}/version") == __version__


def _has_the_experiment(address: str, folder: Path) -> bool:
    """Whether it is MLflow of this version, and its experiment is ours: made at the same time, with the same files."""
    if not _is_mlflow(address):
        return False
    name = folder.absolute().name
    ours, theirs = (connect(uri).get_experiment_by_name(name) for uri in (tracking_uri(folder), address))
    return theirs is not None and (theirs.creation_time, theirs.artifact_location) == (
        ours.creation_time,
        ours.artifact_location,
    )


def _answer(address: str) -> str | None:
    """The text at an address of this machine, or None; no proxy is asked."""
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(address, timeout=5.0) as response:
            return response.read(100).decode(errors="replace")
    except (OSError, HTTPException):
        return None


def _wait(server: subprocess.Popen, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        if _is_mlflow(f"http://127.0.0.1:{port}"):
            return
        time.sleep(0.2)
    raise SrpoError(f"MLflow's server does not start on port {port}; try another --port")


def _natural(name: str) -> list[tuple[bool, int, str]]:
    """An order in which 5h is before 10h."""
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]
