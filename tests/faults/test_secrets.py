"""Tokens and passwords stay in the environment: no log, result or MLflow record has one (Ray's files: test_cluster)."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from cluster_driver import experiment
from paths import SUPPORT
from secret import SECRET, VARIABLES, files_with_the_secret
from snakemake_command import snakemake
from synthetic import tiny_experiment, write_results
from tiny import prepare

from srpo import cli
from srpo.experiment.compose import load_experiment
from srpo.training.mirror import sync

pytestmark = pytest.mark.fault

AWAY = f"http://somebody:{SECRET}@127.0.0.1:9"


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, SECRET)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.mark.slow
def test_a_run_writes_no_secret(tmp_path: Path) -> None:
    spec, layout = prepare(experiment(0), tmp_path)
    driver = SUPPORT / "cluster_driver.py"
    train = [sys.executable, driver, layout.folder, "0", "99", "SIGTERM"]  # it takes fewer events
    train.append(layout.run_files(spec.id).summary)  # tells the attempt its folder
    attempt = [sys.executable, "-m", "srpo.cli", "attempt"]
    log = layout.run_log(spec.id, "train")
    done = subprocess.run([*map(str, [*attempt, "--log", log, "--", *train])], capture_output=True, text=True)
    assert done.returncode == 0, log.read_text()
    (tmp_path / "output").write_text(done.stdout + done.stderr)
    assert (layout.run(spec.id) / "summary.json").exists()
    sync(layout.folder)
    assert (tmp_path / "mlflow.db").exists()
    assert files_with_the_secret(tmp_path) == []


def test_the_workflow_writes_no_secret(tmp_path: Path) -> None:
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_experiment(), sort_keys=False))
    target = "results/tiny/data/physics/statistics.json"
    done = snakemake(tmp_path, "--configfile", tmp_path / "tiny.yaml", "--cores", 1, "--printshellcmds", target)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / target).exists()
    (tmp_path / "output").write_text(done.stdout + done.stderr)
    assert files_with_the_secret(tmp_path) == []


def test_an_error_has_no_password_of_the_tracking_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_results(tmp_path / "tiny", load_experiment(tiny_experiment()))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", AWAY)
    assert cli.main(["track", "sync", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "MLflow at http://***@127.0.0.1:9: " in printed.err
    assert SECRET not in printed.out + printed.err
    assert files_with_the_secret(tmp_path) == []
