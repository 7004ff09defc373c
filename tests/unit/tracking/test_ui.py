"""MLflow's pages open on training runs and their scores."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
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


@pytest.mark.slow
def test_without_a_server_one_is_started_and_ended(results: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answers: list[int] = []

    def look(address: str) -> None:
        answers.append(urllib.request.urlopen(address, timeout=60).status)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(results, port, look)
    assert answers == [200]
    deadline = time.monotonic() + 20
    while listens(port) and time.monotonic() < deadline:  # its processes end one after the other
        time.sleep(0.2)
    assert not listens(port)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_runs_that_are_not_copied_yet(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results.rename(results.parent / "other")
    with pytest.raises(SrpoError, match=r"MLflow has no run of it; srpo track sync .*other copies them"):
        page(results.parent / "other")
    assert cli.main(["track", "ui", str(results.parent)]) == 2
    assert "no experiment.yaml here" in capsys.readouterr().err
