"""MLflow's web pages, opened at an experiment's training runs, with their scores."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
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
    scores = dict.fromkeys(name for run in runs for name in run.data.metrics if name.endswith("avg_at_k"))
    columns = [*_COLUMNS, *(f"metrics.`{name}`" for name in scores)]
    # a view that MLflow's pages share; without workflowType they open on traces, of which there are none
    state = json.dumps({"selectedColumns": columns})
    client.set_experiment_tag(experiment.experiment_id, f"mlflow.sharedViewState.{_VIEW}", state)
    return f"#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={_VIEW}"


def serve(folder: Path, port: int, show: Callable[[str], object]) -> int:
    """Start MLflow's server for an experiment, if it has none yet, and ``show`` the address of its runs.

    Returns:
        The server's exit status, when it ends; 0 at once if ``MLFLOW_TRACKING_URI`` names a server.

    Raises:
        SrpoError: if MLflow has none of the runs, or the server does not start.
    """
    uri = tracking_uri(folder)
    with reachable(uri):
        place = page(folder)
    if uri.startswith("http"):
        show(f"{uri.rstrip('/')}/{place}")
        return 0
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri, "--port", str(port)]
    nothing = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=nothing, stderr=nothing, start_new_session=True) as server:
        try:
            _wait(server, port)
            show(f"http://127.0.0.1:{port}/{place}")
            return server.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGTERM)  # the server's processes, too


def _wait(server: subprocess.Popen, port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
            return
        time.sleep(0.2)
    raise SrpoError(f"MLflow's server does not start on port {port}; try another --port")
