"""MLflow shows the files, whatever happened before."""

import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from synthetic import tiny_experiment, write_results

from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import append_event, read_events
from srpo.ground.layout import RunId
from srpo.training import mirror
from srpo.training.attempts import attempt
from srpo.training.mirror import live, sync
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
    start = {"attempt": 1, "event": "start", "time": 1.7e9, "step": 0}
    append_event(folder / "runs" / RUN.path / "attempts.jsonl", start)
    return folder


def client(folder: Path):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{folder.parent / 'mlflow.db'}")


def mlflow_runs(folder: Path, trained: bool = True) -> list:
    """The trained runs, or the others: untrained models and the report."""
    experiment = client(folder).get_experiment_by_name(folder.name)
    runs = client(folder).search_runs([experiment.experiment_id] if experiment else [])
    return [run for run in runs if (run.data.tags.get("method", "untrained") != "untrained") == trained]


def history(folder: Path, run_id: str, metric: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in client(folder).get_metric_history(run_id, metric))


def logged(path: Path, metric: str) -> list[tuple[int, float]]:
    return [(event["step"], event["metrics"][metric]) for event in read_events(path / "steps.jsonl")]


def truncate(path: Path, lines: int) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:lines]))


def unfinish(folder: Path) -> None:
    for name in ("summary.json", "evaluation.json"):
        (folder / name).unlink()


def test_a_training_run_is_shown_whole(results: Path) -> None:
    folder = results / "runs" / RUN.path
    (results / "report.html").write_text("the report")
    for step, rule, level in ((9, "format", "warn"), (12, "length", "warn"), (20, "format", "alarm")):
        append_event(folder / "watch.jsonl", Signal(step, rule, level, 0.5, None).event())
    assert " shows 3 runs: http://localhost:5000/#/experiments/1/runs?" in sync(results)
    (run,) = mlflow_runs(results)
    assert (run.info.status, run.info.run_name) == ("FINISHED", "srpo physics s1 miniature-tiny")
    assert run.info.start_time == 1_700_000_000_000
    assert [run.data.tags[key] for key in RunId.model_fields] == ["miniature-tiny", "physics", "srpo", "1"]
    assert run.data.tags["mlflow.source.git.commit"] == run.data.tags["commit"] == "13707f0" + "0" * 33
    assert run.data.tags["srpo.watch"] == "alarm: format; warn: length"
    assert re.fullmatch(r"(\w+ = [\d.]+ s,? ?)+ of the \w+ clock", run.data.tags["budgets"])
    assert float(run.data.params["method.learning_rate"]) == 5e-6
    assert len(run.data.params) < 32
    assert history(results, run.info.run_id, "loss/total") == logged(folder, "loss/total")
    for name, budget in json.loads((folder / "evaluation.json").read_text())["budgets"].items():
        point = (budget["step"], budget["avg_at_k"])
        assert history(results, run.info.run_id, f"evaluation/{name}/avg_at_k") == [point]
        assert run.data.metrics[f"score_{name}"] == pytest.approx(100 * budget["avg_at_k"], abs=0.01)
    artifacts = [each.path for each in client(results).list_artifacts(run.info.run_id)]
    assert artifacts == ["evaluation.json", "run.yaml", "samples.jsonl"]
    assert [data.dataset.name for data in run.inputs.dataset_inputs] == ["physics", "physics"]
    names = {each.info.run_name for each in mlflow_runs(results, trained=False)}
    assert names == {"report", "untrained chemistry miniature-tiny", "untrained physics miniature-tiny"}


def test_a_killed_run_that_resumes_is_one_run_with_one_curve(results: Path) -> None:
    folder = results / "runs" / RUN.path
    names = ("steps.jsonl", "validations.jsonl", "summary.json", "evaluation.json")
    files = {name: (folder / name).read_text() for name in names}
    unfinish(folder)
    # killed after step 12, resumed from the checkpoint of step 10, finished
    seen = set()
    for steps, validations in ((12, 2), (10, 2), (11, 2)):
        for name, lines in (("steps.jsonl", steps), ("validations.jsonl", validations)):
            (folder / name).write_text(files[name])
            truncate(folder / name, lines)
        sync(results)
        (run,) = mlflow_runs(results)
        seen.add(run.info.run_id)
        assert run.info.status == "KILLED"
        assert len(history(results, run.info.run_id, "reward/mean")) == 12
    for name, text in files.items():
        # seconds differ when steps are trained again
        (folder / name).write_text(text.replace('"wall_seconds": ', '"wall_seconds": 1'))
    sync(results)
    (run,) = mlflow_runs(results)
    assert history(results, run.info.run_id, "reward/mean") == logged(folder, "reward/mean")
    assert len(history(results, run.info.run_id, "validation/avg_at_k")) == files["validations.jsonl"].count("\n")
    assert seen == {run.info.run_id}
    # as on a GPU: a step that was lost has another reward when it is trained again
    (folder / "steps.jsonl").write_text(files["steps.jsonl"].replace('"reward/mean": 0.', '"reward/mean": 0.9', 1))
    sync(results)
    (run,) = mlflow_runs(results)
    assert history(results, run.info.run_id, "reward/mean") == logged(folder, "reward/mean")
    assert run.info.run_id not in seen


@pytest.mark.parametrize(("status", "state"), [(1, "FAILED"), (75, "KILLED")])
def test_an_attempt_that_ended_is_not_running(results: Path, status: int, state: str) -> None:
    folder = results / "runs" / RUN.path
    unfinish(folder)
    append_event(folder / "attempts.jsonl", {"attempt": 1, "event": "end", "time": 1.8e9, "step": 0, "status": status})
    sync(results)
    assert mlflow_runs(results)[0].info.status == state


def test_a_run_of_other_settings_is_another_run(results: Path) -> None:
    origin = results / "runs" / RUN.path / "run.yaml"
    runs = []
    for old, new in (
        ("no change", ""),
        ("max_steps: null", "max_steps: 99"),
        ("weight_decay: 0.01", "weight_decay: 0.5"),
        ("source: ab", "source: ef"),
    ):
        origin.write_text(origin.read_text().replace(old, new))
        sync(results)
        runs += [run.info.run_id for run in mlflow_runs(results)]
    (origin.parent / "superseded" / "1").mkdir(parents=True)
    sync(results)
    runs += [run.info.run_id for run in mlflow_runs(results)]
    assert len({*runs}) == 4
    assert runs[0] == runs[1]


def test_a_copy_that_was_killed_is_made_again(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_tag", Mock(side_effect=ConnectionError("killed")))
        with pytest.raises(SrpoError, match=r"MLflow at sqlite:///.*: ConnectionError: killed"):
            sync(results)
    sync(results)
    (run,) = mlflow_runs(results)
    assert history(results, run.info.run_id, "reward/mean") == logged(results / "runs" / RUN.path, "reward/mean")


def test_processes_share_one_database(tmp_path: Path, experiment: Experiment) -> None:
    folder = tmp_path / "results" / "tiny"
    write_results(folder, experiment)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=sync, args=(folder,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0] * len(processes)
    assert len(mlflow_runs(folder)) == len(experiment.runs())


def test_two_folders_of_one_name_do_not_touch_one_another(
    results: Path, tmp_path: Path, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{results.parent / 'mlflow.db'}")
    other = tmp_path / "other" / "tiny"
    write_results(other, experiment, keep=lambda run: run == RUN)
    runs = []
    for folder in (results, other, tmp_path / "copy" / "tiny"):
        if not folder.exists():
            shutil.copytree(results, folder)
        sync(folder)
        runs.append({run.info.run_id for run in mlflow_runs(results)})
    os.renames(results, moved := tmp_path / "moved" / "tiny")
    sync(moved)
    assert [len(each) for each in runs] == [1, 2, 3]
    assert runs[0] < runs[1] < runs[2] == {run.info.run_id for run in mlflow_runs(results)}


def test_what_was_deleted_is_restored_or_made_again(results: Path) -> None:
    sync(results)
    (run,) = mlflow_runs(results)
    client(results).delete_run(run.info.run_id)
    sync(results)
    client(results).delete_experiment(run.info.experiment_id)
    sync(results)
    assert [each.info.run_id for each in mlflow_runs(results)] == [run.info.run_id]
    client(results).delete_run(run.info.run_id)
    store = f"sqlite:///{results.parent / 'mlflow.db'}"
    command = [sys.executable, "-m", "mlflow", "gc", "--backend-store-uri", store, "--tracking-uri", store]
    subprocess.run(command, check=True)
    sync(results)
    (again,) = mlflow_runs(results)
    assert again.info.run_id != run.info.run_id
    assert history(results, again.info.run_id, "reward/mean") == logged(results / "runs" / RUN.path, "reward/mean")
    (results / "tracking_id").unlink()  # the folder is deleted, and the run trained anew
    truncate(results / "runs" / RUN.path / "attempts.jsonl", 0)
    sync(results)
    assert [each.info.run_id != again.info.run_id for each in mlflow_runs(results)] == [True]


@pytest.fixture
def training(results: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that trains and asks for MLflow."""
    folder = results / "runs" / RUN.path
    unfinish(folder)
    origin = (folder / "run.yaml").read_text()
    (folder / "run.yaml").write_text(origin.replace("  execution:\n", "  execution:\n    tracking: live\n"))
    monkeypatch.setattr(mirror, "LIVE_SECONDS", 0.1)
    return folder


def test_a_run_is_shown_while_it_trains(results: Path, training: Path) -> None:
    deadline = time.monotonic() + 60
    with live(training):
        while not (results / "tracking_id").exists() or not (runs := mlflow_runs(results)):
            assert time.monotonic() < deadline
            time.sleep(0.5)
    assert runs[0].info.status == "RUNNING"
    (run,) = mlflow_runs(results)
    assert run.info.status == "KILLED"
    assert history(results, run.info.run_id, "reward/mean") == logged(training, "reward/mean")


def test_training_does_not_fail_with_mlflow(
    training: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with live(training):
        assert attempt([sys.executable, "-c", "import time; time.sleep(5)"], training, tmp_path / "train.log") == 0
    assert capsys.readouterr().err.count("srpo: warning: MLflow at http://127.0.0.1:9: ") == 1
