"""The workflow through the SLURM profile on a real SLURM, undisturbed and disturbed: the tables are the local run's."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import slurm_cluster
import yaml
from paths import ROOT
from slurm_cluster import Cluster
from synthetic import tiny_experiment

from srpo.ground.files import read_events

PROFILE = ROOT / "profiles" / "slurm" / "config.yaml"
PATIENCE = 3600.0
"""Seconds until something hangs, however busy the machine."""

RUNS = "results/segments/runs/miniature-tiny/materials"

# Long enough for several segments of a minute, of which the start of Python and the margin at the end take a third.
EXPERIMENT = tiny_experiment(
    name="segments",
    title="Segments",
    matrix=[{"models": ["miniature-tiny"], "benchmarks": ["miniature/materials"], "methods": ["grpo", "srpo"]}],
    overrides={"srpo": {"learning_rate": 6.0e-4, "mini_batch_questions": 16}, "grpo": {"learning_rate": 4.0e-4}},
    training={
        "questions_per_batch": 16,
        "max_prompt_length": 96,
        "max_response_length": 56,
        "max_reprompt_len": 256,
        "validate_every": 4,
        "validation": {"rollouts": 2},
        "clock": {"kind": "modelled"},
        "budget_seconds": {"1h": 6, "5h": 30, "10h": 60},
    },
    evaluation={"rollouts": 2},
)

pytestmark = [
    pytest.mark.fault,
    pytest.mark.slow,
    pytest.mark.skipif(bool(slurm_cluster.missing()), reason=f"not installed: {', '.join(slurm_cluster.missing())}"),
    pytest.mark.skipif(
        importlib.util.find_spec("snakemake_executor_plugin_slurm") is None,
        reason="not installed: snakemake-executor-plugin-slurm",
    ),
]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the experiment ran without a scheduler."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "experiment.yaml").write_text(yaml.safe_dump(EXPERIMENT, sort_keys=False))
    process = start(folder, {}, "--cores", 2)
    assert process.wait() == 0, (folder / "snakemake.log").read_text()
    return folder


@pytest.fixture(scope="module")
def limit(local: Path) -> int:
    """Minutes of a job on the GPU partition: one, more on a machine so busy that a trainer would only just start."""
    runs = list((local / "results/segments/runs").glob("*/*/*/seed1"))
    begin = [next(read_events(run / "attempts.jsonl"))["time"] for run in runs]
    start = max((run / "run.yaml").stat().st_mtime - time for run, time in zip(runs, begin, strict=True))
    return max(1, round(5 * start / 60))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, limit: int) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("slurm"), limit) as cluster:
        yield cluster


@pytest.fixture
def folder(local: Path, tmp_path: Path, limit: int) -> Path:
    """The same with data and base models only, and a profile: the shipped one with a site's changes."""
    folder = tmp_path / "work"
    shutil.copytree(local, folder)
    for name in ("runs", "tables", "figures", "cost", "report.html"):
        path = folder / "results" / "segments" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    profile = yaml.safe_load(PROFILE.read_text())
    profile["set-resources"]["train"] |= {"runtime": limit, "gpu": 1}
    profile["partitions"]["gpu"] |= {"max_runtime": limit, "max_gpu": 4}
    profile |= {"slurm-init-seconds-before-status-checks": 2, "latency-wait": 10}
    (folder / "profile").mkdir()
    (folder / "profile" / "config.yaml").write_text(yaml.safe_dump(profile, sort_keys=False))
    return folder


def start(folder: Path, environment: dict[str, str], *arguments: object) -> subprocess.Popen:
    """Snakemake in ``folder``, with what it prints in ``snakemake.log``."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", "--directory", folder]
    search = environment.get("PATH", os.environ["PATH"])
    environment = {**environment, "PATH": os.pathsep.join([str(Path(sys.executable).parent), search])}
    with (folder / "snakemake.log").open("ab") as log:
        return subprocess.Popen(
            [*map(str, command), "--configfile", str(folder / "experiment.yaml"), *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "MLFLOW_TRACKING_URI": "", **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # ignored, where the tests are a shell's background job
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


@contextmanager
def submit(folder: Path, cluster: Cluster) -> Iterator[subprocess.Popen]:
    """The workflow through the profile; nothing of it is left at the end of the context."""
    # this cluster has no accounting database
    search = os.pathsep.join([str(PROFILE.parent / "without-database"), cluster.environment["PATH"]])
    process = start(folder, {"PATH": search}, "--profile", folder / "profile")
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for job in cluster.command("squeue", "--noheader", "--format=%i").split():
            cluster.command("scancel", job)


def finish(process: subprocess.Popen, folder: Path, local: Path) -> str:
    """Wait for the workflow, compare its tables with the local run's and return what it printed."""
    status = process.wait(timeout=PATIENCE)
    log = (folder / "snakemake.log").read_text()
    assert status == 0, log
    tables = {path.name: path.read_bytes() for path in (local / "results/segments/tables").iterdir()}
    assert {path.name: path.read_bytes() for path in (folder / "results/segments/tables").iterdir()} == tables
    return log


def jobs(cluster: Cluster, state: str = "") -> list[dict[str, str]]:
    shown = cluster.command("scontrol", "--oneliner", "show", "jobs").splitlines()
    return [dict(re.findall(r"(\w+)=(\S*)", line)) for line in shown if f"JobState={state}" in line]


def training(cluster: Cluster, method: str = "srpo") -> dict[str, str] | None:
    """The running job of a training run."""
    name = f"rule_train_wildcards_miniature-tiny_materials_{method}_1"
    return next((job for job in jobs(cluster) if (job["Comment"], job["JobState"]) == (name, "RUNNING")), None)


def steps(folder: Path, method: str = "srpo") -> int:
    return sum(1 for _ in read_events(folder / RUNS / method / "seed1" / "steps.jsonl"))


def attempts(folder: Path, method: str = "srpo") -> list[dict]:
    return list(read_events(folder / RUNS / method / "seed1" / "attempts.jsonl"))


def wait_for(condition: Callable[[], object], process: subprocess.Popen, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "the workflow ended too early"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.5)


def test_runs_longer_than_their_jobs(folder: Path, local: Path, cluster: Cluster) -> None:
    """Segments take no retries, keep their job's number, and only they see a GPU partition."""
    with submit(folder, cluster) as process:
        log = finish(process, folder, local)
    assert "Trying to restart" not in log
    for method in ("grpo", "srpo"):
        ends = [event for event in attempts(folder, method) if event["event"] == "end"]
        assert [event["status"] for event in ends] == [75] * (len(ends) - 1) + [0]
        assert len(ends) > 1
        assert len({event["job"] for event in attempts(folder, method) if event["event"] == "start"}) == 1
    partitions = {(job["Comment"].split("_wildcards")[0], job["Partition"]) for job in jobs(cluster)}
    assert {partition for rule, partition in partitions if rule == "rule_train"} == {"gpu"}
    assert {partition for rule, partition in partitions if rule != "rule_train"} == {"cpu"}
    assert {job["JobName"].split("_")[0] for job in jobs(cluster)} == {"srpo"}


def requeue(cluster: Cluster) -> None:
    cluster.command("scontrol", "requeue", training(cluster)["JobId"])


def node_down_and_up(cluster: Cluster) -> None:
    cluster.command("scontrol", "update", f"nodename={cluster.host}", "state=down", "reason=test")
    time.sleep(15)  # a node that returns while it still ends its jobs is drained
    cluster.command("scontrol", "update", f"nodename={cluster.host}", "state=resume")


def controller_killed(cluster: Cluster) -> None:
    cluster.kill("slurmctld")
    time.sleep(60)  # more than the five attempts, nine seconds each, after which the plugin on its own forgets its jobs
    cluster.start("slurmctld")


@pytest.mark.parametrize("disturb", [requeue, node_down_and_up, controller_killed])
def test_disturbed(disturb: Callable[[Cluster], None], folder: Path, local: Path, cluster: Cluster) -> None:
    with submit(folder, cluster) as process:
        wait_for(lambda: steps(folder) >= 6 and training(cluster), process)
        disturb(cluster)
        finish(process, folder, local)


def test_an_experiment_edited_while_jobs_wait(folder: Path, local: Path, cluster: Cluster) -> None:
    """No report shows the run beside the old settings; the next start makes the report and trains no step again."""
    cluster.command("scontrol", "update", "partitionname=gpu", "state=down")
    with submit(folder, cluster) as process:
        wait_for(lambda: [job["Partition"] for job in jobs(cluster, "PENDING")] == ["gpu", "gpu"], process)
        edited = folder / "experiment.yaml"
        edited.write_text(edited.read_text().replace("learning_rate: 0.0006", "learning_rate: 0.0005"))
        cluster.command("scontrol", "update", "partitionname=gpu", "state=up")
        assert process.wait(timeout=PATIENCE) == 1
    assert not (folder / "results/segments/report.html").exists()
    with submit(folder, cluster) as process:
        assert process.wait(timeout=PATIENCE) == 0
    assert [event["step"] for event in attempts(folder)[-2:]] == [steps(folder)] * 2


def test_ctrl_c_ends_the_jobs(folder: Path, local: Path, cluster: Cluster) -> None:
    """They stop with a checkpoint, are not requeued, and the next workflow goes on from there."""
    with submit(folder, cluster) as process:
        wait_for(lambda: steps(folder) >= 6 and training(cluster), process)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while cluster.command("squeue", "--noheader"):
            assert time.monotonic() < end
            time.sleep(1)
    stopped = attempts(folder)[-1]
    assert (stopped["event"], stopped["status"]) == ("end", 75)
    assert stopped["step"] >= 6
    with submit(folder, cluster) as process:
        finish(process, folder, local)
    assert attempts(folder)[-1]["status"] == 0
