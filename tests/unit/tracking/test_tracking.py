"""The MLflow mirror: complete, never twice, and never in the way of training."""

from __future__ import annotations

import itertools
import json
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest
import tiny
from resume_driver import NoMirror
from run_content import assert_same, content
from synthetic import tiny_experiment, write_results
from tiny import hash_reward

from srpo.errors import SrpoError
from srpo.evaluation import avg_at_k
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.files import append_event, read_events
from srpo.layout import RunId
from srpo.tracking import LiveMirror, Mirror, is_mirrored_live, mirrored, sync
from srpo.training import loop
from srpo.watch import Signal

pytestmark = pytest.mark.fault

RUN = RunId(model="miniature-small", benchmark="physics", method="srpo", seed=1)
AWAY = "http://127.0.0.1:9"


@pytest.fixture
def experiment() -> Experiment:
    return load_experiment(tiny_experiment())


@pytest.fixture(autouse=True)
def _default_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def results(tmp_path: Path, experiment: Experiment) -> Path:
    """A results directory in which one run has finished."""
    folder = tmp_path / "results" / "tiny"
    write_results(folder, experiment, keep=lambda run: run == RUN)
    return folder


def mlflow_runs(folder: Path, stage: str | None = None) -> list:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")
    names = (folder.name, f"{folder.name}/inputs")
    experiments = [client.get_experiment_by_name(name) for name in names]
    found = client.search_runs([experiment.experiment_id for experiment in experiments if experiment])
    return [run for run in found if stage in (None, run.data.tags["stage"])]


def history(folder: Path, run_id: str, metric: str) -> list[tuple[int, float]]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")
    return sorted((point.step, point.value) for point in client.get_metric_history(run_id, metric))


def logged(path: Path, metric: str) -> list[tuple[int, float]]:
    return [(event["step"], event["metrics"][metric]) for event in read_events(path / "steps.jsonl")]


def truncate(path: Path, lines: int) -> list[dict]:
    events = list(read_events(path))
    path.write_text("".join(json.dumps(event) + "\n" for event in events[:lines]))
    return events[lines:]


def test_training_run_is_mirrored_whole(results: Path) -> None:
    folder = results / "runs" / RUN.path
    Mirror(results).sync_run(folder)
    (run,) = mlflow_runs(results)
    assert run.info.status == "FINISHED"
    assert {run.data.tags[key] for key in ("model", "benchmark", "method", "seed")} == {
        "miniature-small", "physics", "srpo", "1"
    }  # fmt: skip
    assert run.data.tags["commit"].startswith("13707f0")
    assert float(run.data.params["method.learning_rate"]) == 5e-6
    for metric in ("reward/mean", "teacher/entropy", "loss/total"):
        assert history(results, run.info.run_id, metric) == logged(folder, metric)
    assert len(history(results, run.info.run_id, "phase_seconds/generate")) == len(logged(folder, "reward/mean"))
    validations = [(event["step"], event["avg_at_k"]) for event in read_events(folder / "validations.jsonl")]
    assert history(results, run.info.run_id, "validation/avg_at_k") == validations
    assert (results.parent / "mlartifacts" / run.info.run_id / "artifacts" / "summary.json").exists()


def test_signals_of_the_watch_are_a_tag(results: Path) -> None:
    folder = results / "runs" / RUN.path
    Mirror(results).sync_run(folder)
    assert "srpo.watch" not in mlflow_runs(results)[0].data.tags
    for early in (Signal(9, "gap", "warn", 0.5, 0.7), Signal(12, "length", "warn", 400, 200)):
        append_event(folder / "watch.jsonl", early.event())
    Mirror(results).sync_run(folder)
    assert mlflow_runs(results)[0].data.tags["srpo.watch"] == "warn: gap, length"
    append_event(folder / "watch.jsonl", Signal(20, "gap", "alarm", 0.4, 0.7).event())
    Mirror(results).sync_run(folder)
    assert mlflow_runs(results)[0].data.tags["srpo.watch"] == "alarm: gap; warn: length"
    (folder / "watch.jsonl").write_text("")  # as after a resume before the first signal
    for _ in range(2):
        Mirror(results).sync_run(folder)
        assert "srpo.watch" not in mlflow_runs(results)[0].data.tags


def test_everything_is_mirrored_once(results: Path) -> None:
    (results / "report.html").write_text("<html></html>")
    (results / "tables").mkdir()
    (results / "tables" / "table1.csv").write_text("a,b\n")
    for _ in range(3):
        sync(results)
    runs = mlflow_runs(results)
    stages = sorted(run.data.tags["stage"] for run in runs)
    # 2 benchmarks, 1 model, 2 bases + 1 evaluated run, the report, 1 run
    assert stages == ["data"] * 2 + ["evaluation"] * 3 + ["model", "report", "training"]
    assert all(run.info.status == "FINISHED" for run in runs)
    (training,) = mlflow_runs(results, "training")
    folder = results / "runs" / RUN.path
    assert history(results, training.info.run_id, "reward/mean") == logged(folder, "reward/mean")
    (nested,) = [run for run in mlflow_runs(results, "evaluation") if "mlflow.parentRunId" in run.data.tags]
    assert nested.data.tags["mlflow.parentRunId"] == training.info.run_id
    budgets = json.loads((folder / "evaluation.json").read_text())["budgets"]
    for name, budget in budgets.items():
        point = (budget["step"], budget["avg_at_k"])
        assert history(results, nested.info.run_id, f"evaluation/{name}/avg_at_k") == [point]
    (report,) = mlflow_runs(results, "report")
    artifacts = results.parent / "mlartifacts" / report.info.run_id / "artifacts"
    assert (artifacts / "report.html").exists()
    assert (artifacts / "tables" / "table1.csv").exists()


def test_resumed_run_continues_its_mlflow_run(results: Path) -> None:
    folder = results / "runs" / RUN.path
    summary = (folder / "summary.json").read_text()
    (folder / "summary.json").unlink()
    expected = logged(folder, "reward/mean")
    rest = truncate(folder / "steps.jsonl", 12)
    late_validations = truncate(folder / "validations.jsonl", 2)
    Mirror(results).sync_run(folder)
    # killed after step 12, resumed from the checkpoint of step 10
    again = truncate(folder / "steps.jsonl", 10)
    Mirror(results).sync_run(folder)
    for event in again + rest:
        append_event(folder / "steps.jsonl", {**event, "wall_seconds": 9.0})
    for event in late_validations:
        append_event(folder / "validations.jsonl", event)
    (folder / "summary.json").write_text(summary)
    Mirror(results).sync_run(folder)
    (run,) = mlflow_runs(results)
    assert run.info.status == "FINISHED"
    assert history(results, run.info.run_id, "reward/mean") == expected
    assert len(history(results, run.info.run_id, "validation/avg_at_k")) == len(expected) // 5


def test_run_made_anew_replaces_its_mlflow_run(results: Path) -> None:
    folder = results / "runs" / RUN.path
    sync(results)
    before = {run.info.run_id for run in mlflow_runs(results)}
    events = truncate(folder / "steps.jsonl", 0)
    for event in events:
        append_event(folder / "steps.jsonl", {**event, "wall_seconds": event["wall_seconds"] + 0.01})
    sync(results)
    after = {run.info.run_id for run in mlflow_runs(results)}
    assert len(before) == len(after)
    assert len(after - before) == 2  # the run and its evaluation


def test_interrupted_push_is_completed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = results / "runs" / RUN.path
    mirror = Mirror(results)
    from mlflow import MlflowClient

    push = MlflowClient.log_batch

    def fail_after_push(self: MlflowClient, *arguments: object, **options: object) -> None:
        push(self, *arguments, **options)
        if options.get("metrics"):
            raise ConnectionError("killed")

    monkeypatch.setattr(MlflowClient, "log_batch", fail_after_push)
    with pytest.raises(ConnectionError):
        mirror.sync_run(folder)
    monkeypatch.undo()
    mirror.sync_run(folder)
    (run,) = mlflow_runs(results)
    assert history(results, run.info.run_id, "reward/mean") == logged(folder, "reward/mean")


def test_processes_share_one_database(tmp_path: Path, experiment: Experiment) -> None:
    folder = tmp_path / "results" / "tiny"
    write_results(folder, experiment)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_sync_run, args=(folder, run)) for run in experiment.runs()[:4]]
    processes.append(context.Process(target=sync, args=(folder,)))
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    runs = mlflow_runs(folder, "training")
    assert len(runs) == len(experiment.runs())
    for run in runs:
        source = folder / run.data.tags["srpo.path"]
        assert history(folder, run.info.run_id, "reward/mean") == logged(source, "reward/mean")


def test_training_runs_say_who_they_are(results: Path) -> None:
    append_event(results / "runs" / RUN.path / "attempts.jsonl", {"event": "start", "time": 1.7e9, "step": 0})
    (results / "report.html").write_text("<html></html>")
    sync(results)
    (training,) = mlflow_runs(results, "training")
    assert training.info.run_name == "physics s1 srpo"
    tags = training.data.tags
    assert tags["mlflow.source.name"] == "srpo train"
    assert tags["mlflow.source.git.commit"] == tags["commit"] == "13707f0" + "0" * 33
    assert tags["mlflow.note.content"] == "SRPO of Miniature-S on Physics, seed 1, experiment tiny"
    assert tags["mlflow.user"]
    data = {entry.dataset.name: entry for entry in training.inputs.dataset_inputs}
    assert {name: entry.dataset.digest for name, entry in data.items()} == {
        "physics train": "cd" * 18, "physics test": "ef" * 18
    }  # fmt: skip
    assert json.loads(data["physics train"].dataset.source) == {"uri": "tiny/data/physics/train.parquet"}
    # the list of the experiment: runs by their start, newest first; what they were made of is elsewhere
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{results.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    shown = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"])
    assert {run.data.tags["stage"] for run in shown} == {"report", "evaluation", "training"}
    (report,) = mlflow_runs(results, "report")
    assert f"/runs/{report.info.run_id}/artifacts/report.html" in experiment.tags["mlflow.note.content"]


def test_times_are_those_of_the_logs(results: Path) -> None:
    """Two attempts: the second began an hour later, after step 10; a copy has other times of files."""
    folder = results / "runs" / RUN.path
    steps = list(read_events(folder / "steps.jsonl"))
    for attempt in ({"time": 1.7e9, "step": 0}, {"time": 1.7e9 + 3600, "step": 10}):
        append_event(folder / "attempts.jsonl", {"event": "start", **attempt})
    for path in folder.iterdir():
        os.utime(path, (2e9, 2e9))
    sync(results)
    (training,), (evaluation,) = mlflow_runs(results, "training"), [
        run for run in mlflow_runs(results, "evaluation") if "mlflow.parentRunId" in run.data.tags
    ]  # fmt: skip
    wall = [event["wall_seconds"] for event in steps]
    end = 1.7e9 + 3600 + sum(wall[10:])
    assert training.info.start_time == 1_700_000_000_000
    assert training.info.end_time == pytest.approx(1000 * end, abs=2)
    assert evaluation.info.start_time == training.info.end_time
    assert evaluation.info.end_time - evaluation.info.start_time == 9500
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{results.parent / 'mlflow.db'}")
    points = {p.step: p.timestamp for p in client.get_metric_history(training.info.run_id, "reward/mean")}
    assert points[10] == pytest.approx(1000 * (1.7e9 + sum(wall[:10])), abs=2)
    assert points[11] == pytest.approx(1000 * (1.7e9 + 3600 + wall[10]), abs=2)


def test_a_moved_store_is_named_and_made_again(results: Path, tmp_path: Path) -> None:
    sync(results)
    before = {run.info.run_name for run in mlflow_runs(results)}
    moved = tmp_path / "elsewhere" / "results" / results.name
    moved.parent.parent.mkdir()
    results.parent.rename(moved.parent)
    with pytest.raises(
        SrpoError, match=r"mlflow\.db was made in another folder, .*; delete it and .*mlartifacts, and srpo"
    ):
        sync(moved)
    assert not results.parent.exists()
    (moved.parent / "mlflow.db").unlink()
    shutil.rmtree(moved.parent / "mlartifacts")
    # another process: this one keeps the deleted file open
    code = "import sys, pathlib, srpo.tracking; srpo.tracking.sync(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", code, str(moved)], check=True)
    with closing(sqlite3.connect(moved.parent / "mlflow.db")) as database:
        runs = dict(database.execute("SELECT name, artifact_uri FROM runs").fetchall())
    assert runs.keys() == before
    assert all(place.startswith((moved.parent / "mlartifacts").as_uri()) for place in runs.values())


def _sync_run(folder: Path, run: RunId) -> None:
    Mirror(folder).sync_run(folder / "runs" / run.path)


def test_training_goes_on_without_the_server(
    results: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = results / "runs" / RUN.path
    monkeypatch.setenv("MLFLOW_TRACKING_URI", AWAY)
    seconds = 0.0
    live = LiveMirror(results, folder, interval=10.0, now=lambda: seconds)
    with caplog.at_level(logging.WARNING, logger="srpo"):
        for _ in range(3):
            seconds += 100.0
            live.step()
        live.sync()
        with mirrored(results) as mirror:
            mirror.sync_run(folder)
    assert [record.message.count("srpo track sync") for record in caplog.records] == [1, 1]
    assert not any("\n" in record.message for record in caplog.records)
    with pytest.raises(SrpoError, match="MLflow at http"):
        sync(results)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    sync(results)
    (run,) = mlflow_runs(results, "training")
    assert history(results, run.info.run_id, "reward/mean") == logged(folder, "reward/mean")


def test_live_mirror_waits_its_interval(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(Mirror, "sync_run", lambda self, folder: calls.append(folder))
    seconds = 0.0
    live = LiveMirror(results, results / "runs" / RUN.path, interval=30.0, now=lambda: seconds)
    for seconds in (10.0, 29.0, 30.0, 31.0, 59.0, 61.0):  # noqa: B007 read by the lambda
        live.step()
    assert len(calls) == 2


def test_without_anyone_watching_a_run_is_not_mirrored_while_it_trains(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(Mirror, "sync_run", lambda self, folder: calls.append(folder))
    live = LiveMirror(results, results / "runs" / RUN.path, interval=0.0, enabled=False)
    live.step()
    live.sync()
    assert calls == []


def test_a_server_or_a_wall_clock_is_mirrored_live(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = tiny_experiment()
    wall["training"]["clock"] = {"kind": "wall"}
    wall = load_experiment(wall)
    assert not is_mirrored_live(experiment)
    assert not is_mirrored_live(experiment.run(RUN))
    assert is_mirrored_live(wall)
    assert is_mirrored_live(wall.run(RUN))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", AWAY)
    assert is_mirrored_live(experiment)


def test_a_model_is_mirrored_without_the_others(tmp_path: Path) -> None:
    models = ["miniature-large", "miniature-small"]
    block = {"models": models, "benchmarks": ["miniature/physics"], "methods": ["srpo"]}
    results = tmp_path / "tiny"
    write_results(results, load_experiment(tiny_experiment(matrix=[block])))
    Mirror(results).sync_all(models[0])
    found = mlflow_runs(results)
    assert {run.data.tags["model"] for run in found if "model" in run.data.tags} == {models[0]}
    assert {"data", "model", "training", "evaluation"} == {run.data.tags["stage"] for run in found}
    sync(results)
    assert len({run.data.tags["srpo.path"] for run in mlflow_runs(results)}) == len(mlflow_runs(results))
    assert {run.data.tags["model"] for run in mlflow_runs(results, "training")} == set(models)


# ---------------------------------------------------------------- a real store that goes away and comes back


class Server:
    """An MLflow server in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen | None = None

    def back(self) -> None:
        store = [f"--backend-store-uri=sqlite:///{self.folder}/server.db", f"--artifacts-destination={self.folder}/art"]
        command = [sys.executable, "-m", "mlflow", "server", *store, f"--port={self.port}", "--workers=1"]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        while not self.answers():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            time.sleep(0.2)

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.uri}/health", trust_env=False, timeout=60).is_success
        except httpx.TransportError:
            return False

    def away(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


class Locked:
    """A SQLite file that somebody else holds, while it is away."""

    def __init__(self, folder: Path) -> None:
        self.uri = f"sqlite:///{folder}/locked.db"
        self.path = folder / "locked.db"
        self.holder: sqlite3.Connection | None = None

    def away(self) -> None:
        if self.holder is None:
            self.holder = sqlite3.connect(self.path, isolation_level=None)
            self.holder.execute("BEGIN EXCLUSIVE")

    def back(self) -> None:
        if self.holder is not None:
            self.holder.close()
            self.holder = None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("away_from", "until"),
    [(0, 3), (2, 5), (4, 99)],
    ids=["at the start", "in the middle", "at the end"],
)
@pytest.mark.parametrize("kind", [Server, Locked])
def test_a_store_that_goes_away_changes_nothing_and_catches_up(
    kind: type, away_from: int, until: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog
) -> None:
    """Events of the run: step 1, step 2, validation, step 3, step 4, validation."""
    from mlflow import MlflowClient

    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    monkeypatch.setattr(avg_at_k, "compute_reward", hash_reward)
    settings = tiny.tiny_experiment("srpo", validate_every=2)
    spec, layout = tiny.prepare(settings, tmp_path / "undisturbed")
    monkeypatch.setattr(loop, "LiveMirror", NoMirror)
    loop.train(spec, layout)
    expected = content(layout.run(spec.id))

    spec, layout = tiny.prepare(settings, tmp_path / "disturbed")
    store = kind(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    monkeypatch.setattr(loop, "LiveMirror", partial(LiveMirror, interval=0.0))  # after every step
    append, events = loop.append_event, itertools.count(1)

    def disturb(number: int) -> None:
        if number == away_from:
            store.away()
        elif number == until:
            store.back()

    monkeypatch.setattr(loop, "append_event", lambda *args: (append(*args), disturb(next(events))))
    try:
        if away_from:
            store.back()
        disturb(0)
        loop.train(spec, layout)
        assert_same(content(layout.run(spec.id)), expected)
        warned = [record.message for record in caplog.records if "continues without MLflow" in record.message]
        assert len(warned) == 1
        assert "\n" not in warned[0]
        if store.uri.startswith("http") and until == 99:
            with pytest.raises(SrpoError, match="MLflow at http"):
                sync(layout.folder)
        if until == 99:
            store.back()
        sync(layout.folder)
        client = MlflowClient(store.uri)
        (run,) = client.search_runs([client.get_experiment_by_name("tiny").experiment_id], "tags.stage = 'training'")
        assert run.info.status == "FINISHED"
        found = client.get_metric_history(run.info.run_id, "reward/mean")
        assert sorted((point.step, point.value) for point in found) == logged(layout.run(spec.id), "reward/mean")
    finally:
        store.away() if kind is Server else store.back()
