"""The MLflow mirror: complete, never twice, and never in the way of training."""

from __future__ import annotations

import json
import logging
import multiprocessing
from pathlib import Path

import pytest
from synthetic import tiny_experiment, write_results

from srpo.config import Experiment, RunId, load_experiment
from srpo.errors import SrpoError
from srpo.files import append_event, read_events
from srpo.tracking import LiveMirror, Mirror, mirrored, sync

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
    found = client.search_runs([client.get_experiment_by_name(folder.name).experiment_id])
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
    push = Mirror._log_metrics

    def fail_after_push(self: Mirror, *arguments: object) -> None:
        push(self, *arguments)
        raise ConnectionError("killed")

    monkeypatch.setattr(Mirror, "_log_metrics", fail_after_push)
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
