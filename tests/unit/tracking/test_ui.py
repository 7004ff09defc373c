"""MLflow's pages open on training runs and their scores."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from synthetic import tiny_experiment, write_results

from srpo import cli
from srpo.errors import SrpoError
from srpo.experiment.compose import load_experiment
from srpo.layout import RunId
from srpo.tracking import sync
from srpo.tracking.mirror import connect, tracking_uri
from srpo.tracking.ui import page, serve

RUN = RunId(model="miniature-small", benchmark="physics", method="srpo", seed=1)


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder, experiment = tmp_path / "tiny", load_experiment(tiny_experiment())
    write_results(folder, experiment, keep=lambda run: run == RUN)
    (folder / "experiment.yaml").write_text(yaml.safe_dump(experiment.model_dump(mode="json")))
    sync(folder)
    return folder


def test_the_address_shows_training_runs_and_the_columns_scores(results: Path) -> None:
    client = connect(tracking_uri(results))
    experiment = client.get_experiment_by_name("tiny")
    assert page(results) == (
        f"#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning&viewStateShareKey=srpo"
    )
    tags = client.get_experiment_by_name("tiny").tags
    columns = json.loads(tags["mlflow.sharedViewState.srpo"])["selectedColumns"]
    assert {"tags.`method`", "tags.`seed`", "metrics.`summary/10h/avg_at_k`"} <= {*columns}
    (run,) = client.search_runs([experiment.experiment_id], "tags.stage = 'training'")
    assert {column.split("`")[1] for column in columns} <= run.data.metrics.keys() | run.data.tags.keys()


def test_the_server_that_is_named_is_used(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srpo.tracking.ui.page", lambda folder: "#/experiments/1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking:80/")
    shown: list[str] = []
    assert serve(results, 1, shown.append) == 0
    assert shown == ["http://tracking:80/#/experiments/1"]


def test_columns_are_in_the_order_of_the_budgets(results: Path) -> None:
    page(results)
    tags = connect(tracking_uri(results)).get_experiment_by_name("tiny").tags
    columns = json.loads(tags["mlflow.sharedViewState.srpo"])["selectedColumns"]
    labels = [column.split("/")[1] for column in columns if "summary/" in column]
    assert labels == [label for label in ("1h", "5h", "10h") if label in labels]
    assert {"5h", "10h"} <= {*labels}


@pytest.mark.parametrize("body", [b"<html>a stranger</html>", b"OK"])
def test_the_port_of_another_program_is_not_opened(results: Path, body: bytes) -> None:
    """Not even of one that is well, as another MLflow is."""

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        shown: list[str] = []
        with pytest.raises(SrpoError, match=rf"port {server.server_port} is in use by another program; give another"):
            serve(results, server.server_port, shown.append)
        server.shutdown()
    assert shown == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_too_and_a_second_command_takes_the_first_ones_server(
    results: Path, number: int
) -> None:
    port = free_port()
    program = [sys.executable, "-m", "srpo", "track", "ui", str(results), "--port", str(port)]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as first:
        address = first.stdout.readline().strip()
        assert address.startswith(f"http://127.0.0.1:{port}/#/experiments/")
        shown: list[str] = []
        assert serve(results, port, shown.append) == 0
        assert shown == [address]
        first.send_signal(number)
        assert first.wait(60) == 128 + number
    assert ends(port)


@pytest.mark.slow
def test_without_a_server_one_is_started_and_ended(results: Path) -> None:
    port = free_port()
    answers: list[int] = []

    def look(address: str) -> None:
        answers.append(urllib.request.urlopen(address, timeout=60).status)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(results, port, look)
    assert answers == [200]
    assert ends(port)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ends(port: int) -> bool:
    """Whether nothing listens soon; a server's processes end one after the other."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return True
        time.sleep(0.2)
    return False


def test_runs_that_are_not_copied_yet(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results.rename(results.parent / "other")
    with pytest.raises(SrpoError, match=r"MLflow has no run of it; srpo track sync .*other copies them"):
        page(results.parent / "other")
    assert cli.main(["track", "ui", str(results.parent)]) == 2
    assert "no experiment.yaml here" in capsys.readouterr().err
