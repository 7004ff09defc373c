"""The view in MLflow shows the files, whatever happened before."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from synthetic import tiny_experiment, write_results

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import append_event, read_events
from srpo.ground.layout import RunId
from srpo.training.mirror import sync
from srpo.training.watch import Signal

pytestmark = pytest.mark.fault

RUN = RunId(model="miniature-tiny", benchmark="physics", method="srpo", seed=1)


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


def client(folder: Path):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")


def mlflow_runs(folder: Path) -> list:
    return client(folder).search_runs([client(folder).get_experiment_by_name(folder.name).experiment_id])


def history(folder: Path, run_id: str, metric: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in client(folder).get_metric_history(run_id, metric))


def logged(path: Path, metric: str) -> list[tuple[int, float]]:
    return [(event["step"], event["metrics"][metric]) for event in read_events(path / "steps.jsonl")]


def truncate(path: Path, lines: int) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))


def test_a_training_run_is_shown_whole(results: Path) -> None:
    folder = results / "runs" / RUN.path
    append_event(folder / "attempts.jsonl", {"attempt": 1, "event": "start", "time": 1.7e9, "step": 0})
    assert sync(results).endswith(" shows 1 run")
    (run,) = mlflow_runs(results)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "physics s1 srpo miniature-tiny")
    tags = run.data.tags
    assert {key: tags[key] for key in RunId.model_fields} == {
        key: str(value) for key, value in RUN.model_dump().items()
    }
    assert tags["mlflow.source.git.commit"] == tags["commit"] == "13707f0" + "0" * 33
    assert tags["mlflow.note.content"] == "SRPO of Miniature-XS on Physics, seed 1, experiment tiny"
    assert "srpo.watch" not in tags
    assert float(run.data.params["method.learning_rate"]) == 5e-6
    for metric in ("reward/mean", "teacher/entropy", "loss/total"):
        assert history(results, run.info.run_id, metric) == logged(folder, metric)
    assert len(history(results, run.info.run_id, "phase_seconds/generate")) == len(logged(folder, "reward/mean"))
    validations = [(event["step"], event["avg_at_k"]) for event in read_events(folder / "validations.jsonl")]
    assert history(results, run.info.run_id, "validation/avg_at_k") == validations
    for name, budget in json.loads((folder / "evaluation.json").read_text())["budgets"].items():
        point = (budget["step"], budget["avg_at_k"])
        assert history(results, run.info.run_id, f"evaluation/{name}/avg_at_k") == [point]
    wall = [event["wall_seconds"] for event in read_events(folder / "steps.jsonl")]
    times = {p.step: p.timestamp for p in client(results).get_metric_history(run.info.run_id, "reward/mean")}
    assert run.info.start_time == 1_700_000_000_000
    assert times[10] == pytest.approx(1000 * (1.7e9 + sum(wall[:10])), abs=2)
    assert run.info.end_time == pytest.approx(1000 * (1.7e9 + sum(wall)), abs=2)


def test_a_run_is_made_again_when_its_files_have_changed_and_only_then(results: Path) -> None:
    folder = results / "runs" / RUN.path
    files = {name: (folder / name).read_text() for name in ("steps.jsonl", "validations.jsonl", "summary.json")}
    # killed after step 12, resumed from the checkpoint of step 10, finished
    (folder / "summary.json").unlink()
    for steps, validations in ((12, 2), (10, 2), (11, 2)):
        (folder / "steps.jsonl").write_text(files["steps.jsonl"])
        truncate(folder / "steps.jsonl", steps)
        truncate(folder / "validations.jsonl", validations)
        sync(results)
        (run,) = mlflow_runs(results)
        assert run.info.status == "RUNNING"
        assert len(history(results, run.info.run_id, "reward/mean")) == steps
    for name, text in files.items():
        (folder / name).write_text(text)
    sync(results)
    (run,) = mlflow_runs(results)
    assert history(results, run.info.run_id, "reward/mean") == logged(folder, "reward/mean")
    sync(results)
    assert [each.info.run_id for each in mlflow_runs(results)] == [run.info.run_id]


def test_signals_of_the_watch_are_a_tag(results: Path) -> None:
    watch = results / "runs" / RUN.path / "watch.jsonl"
    for early in (Signal(9, "format", "warn", 0.5, 0.7), Signal(12, "length", "warn", 400, 200)):
        append_event(watch, early.event())
    append_event(watch, Signal(20, "format", "alarm", 0.4, 0.7).event())
    sync(results)
    assert mlflow_runs(results)[0].data.tags["srpo.watch"] == "alarm: format; warn: length"


def test_a_copy_that_was_killed_is_made_again(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    push = MlflowClient.log_batch

    def fail_after_push(self: MlflowClient, *arguments: object) -> None:
        push(self, *arguments)
        raise ConnectionError("killed")

    monkeypatch.setattr(MlflowClient, "log_batch", fail_after_push)
    with pytest.raises(SrpoError, match=r"MLflow at sqlite:///.*mlflow\.db: ConnectionError: killed"):
        sync(results)
    monkeypatch.undo()
    sync(results)
    (run,) = mlflow_runs(results)
    assert history(results, run.info.run_id, "reward/mean") == logged(results / "runs" / RUN.path, "reward/mean")


def test_processes_share_one_database(tmp_path: Path, experiment: Experiment) -> None:
    folder = tmp_path / "results" / "tiny"
    write_results(folder, experiment)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=sync, args=(folder,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    runs = mlflow_runs(folder)
    assert len(runs) == len(experiment.runs())
    for run in runs:
        source = folder / run.data.tags["srpo.path"]
        assert history(folder, run.info.run_id, "reward/mean") == logged(source, "reward/mean")


def test_a_moved_folder_is_shown_as_before(results: Path, tmp_path: Path) -> None:
    sync(results)
    (before,) = mlflow_runs(results)
    moved = tmp_path / "elsewhere" / "tiny"
    os.renames(results.parent, moved.parent)
    sync(moved)
    (after,) = mlflow_runs(moved)
    assert after.info.run_id == before.info.run_id
    assert not results.parent.exists()
