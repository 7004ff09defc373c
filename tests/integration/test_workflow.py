"""The workflow: what it would run, what it refuses, and that a change reruns only what depends on it."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from paths import ROOT, SUPPORT
from snakemake_command import snakemake, start
from synthetic import tiny_experiment, write_results

from srpo import __version__
from srpo.experiment.compose import experiment_file, load_experiment
from srpo.ground.layout import Layout
from srpo.ground.repository import CONFIGS
from srpo.questions.splits import read_split

pytestmark = pytest.mark.fault

RUN = "results/embedded/runs/miniature-large/tooluse/{method}/seed{seed}/evaluation.json"
"""A file of a run of the embedded experiment."""

EXPERIMENTS = sorted((CONFIGS / "experiments").glob("*.yaml"))


def planned_jobs(folder: Path, *arguments: object) -> dict[str, int]:
    """Jobs of a dry run, by rule."""
    return jobs_of(snakemake(folder, "--dry-run", *arguments))


def jobs_of(result: subprocess.CompletedProcess[str]) -> dict[str, int]:
    assert result.returncode == 0, result.stderr + result.stdout
    output = result.stdout + result.stderr
    if "Nothing to be done" in output:
        return {}
    table = output.split("Job stats:")[1]
    return {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", table.split("\n\n")[0], re.MULTILINE)}


def write_experiment(folder: Path, **changes: object) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_experiment(**changes), sort_keys=False))
    return path


def matrix(methods: list[str], seeds: list[int]) -> list[dict[str, list]]:
    return [
        {"models": ["miniature-small"], "benchmarks": ["miniature/physics"], "methods": methods, "seeds": seeds},
        {"models": ["miniature-small"], "benchmarks": ["miniature/tooluse"]},
    ]


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_shipped_experiments_plan_their_matrix(path: Path, tmp_path: Path) -> None:
    experiment = load_experiment(path)
    jobs = planned_jobs(tmp_path, "--configfile", path)
    trained, data_sets = {run.benchmark for run in experiment.runs()}, experiment.data_sets().values()
    wanted = {
        "all": 1,
        "split": len(data_sets) + sum(data.name in trained for data in data_sets),
        "base_model": len(experiment.every_base_model()),
        "lengths": len(experiment.base_evaluations()),
        "train": len(experiment.runs()),
    }
    if experiment.is_search:  # it ends with what it has found
        wanted["tune"] = 1
    else:
        wanted |= {
            "statistics": len(data_sets),
            **({"evaluate_run": len(experiment.runs())} if experiment.execution.rollout_engine == "sglang" else {}),
            "evaluate_base": len(experiment.base_evaluations()),
            **({"gap": pairs} if (pairs := len(experiment.gaps())) else {}),
            "write_report": 1,
            "mirror": 1,
        }
    assert jobs == wanted | {"total": sum(wanted.values())}


def test_default_is_the_embedded_experiment(tmp_path: Path) -> None:
    experiment = load_experiment(CONFIGS / "experiments" / "embedded.yaml")
    assert planned_jobs(tmp_path, "--config", f"mirror={tmp_path}")["train"] == len(experiment.runs())


def test_a_report_from_an_earlier_start_is_named(tmp_path: Path) -> None:
    """Snakemake, if nothing is to be done, says nothing of the results."""
    report = tmp_path / "results" / "tiny" / "report.html"
    said = [snakemake(tmp_path, "--dry-run", "--configfile", write_experiment(tmp_path)).stderr]
    report.parent.mkdir(parents=True)
    report.touch()
    said.append(snakemake(tmp_path, "--dry-run", "--configfile", tmp_path / "tiny.yaml").stderr)
    assert ["earlier start: results/tiny/report.html" in each for each in said] == [False, True]


def test_a_folder_with_another_experiment_is_refused(tmp_path: Path) -> None:
    """Snakemake, if nothing is to be done, starts no job that would say it."""
    folder = tmp_path / "results" / "tiny"
    folder.mkdir(parents=True)
    (folder / "experiment.yaml").write_text("name: other\n")
    refused = snakemake(tmp_path, "--dry-run", "--configfile", write_experiment(tmp_path))
    assert refused.returncode != 0
    said = "results/tiny/experiment.yaml has the experiment other; choose another folder\n"
    assert said in refused.stdout + refused.stderr


def program(folder: Path, script: str) -> Path:
    """A folder with a program ``srpo`` that does this instead of our verbs."""
    path = folder / "bin" / "srpo"
    path.parent.mkdir()
    path.write_text(script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path.parent


def test_mistake_stops_before_anything_runs(tmp_path: Path) -> None:
    result = snakemake(tmp_path, "--configfile", write_experiment(tmp_path, colour="red"))
    assert result.returncode != 0
    assert "colour: unknown key" in result.stderr


TYPO = "actor_rollout_ref.rollout.quantisation"


@pytest.mark.parametrize(
    ("execution", "settings", "says"),
    [
        ({}, ["--config", "mirror=/data/NOPE"], "mirror=/data/NOPE: no such folder"),
        ({}, ["--config", "results=~/out"], "~/out/mine: this would make a folder ~; write $HOME or the whole path"),
        (
            {},
            ["--configfile", *(str(ROOT / f"configs/experiments/{name}.yaml") for name in ("smoke", "demo"))],
            "configs/experiments/demo.yaml: each is an experiment, and they would be mixed; give one",
        ),
        ({}, ["--config", "nope"], "--config nope: give NAME=VALUE"),
        (
            {},
            ["--config", "training.max_steps=2"],
            "--config training.max_steps=2: give NAME=VALUE, nested as training='{max_steps: 2}'",
        ),
        ({"ranks": 16}, [], "execution.ranks = 16: a run has one node, and a node 8 GPUs (resources: gpu)"),
        (
            {"verl_overrides": {TYPO: "fp8"}},
            [],
            f"execution.verl_overrides: {TYPO}: verl has no such key; did you mean {TYPO.replace('isa', 'iza')}?",
        ),
    ],
)
def test_a_dry_run_names_what_would_fail_later(tmp_path: Path, execution: dict, settings: list, says: str) -> None:
    source = tmp_path / "mine.yaml"
    matrix = [{"models": ["qwen3-4b"], "benchmarks": ["sdpo/physics"], "methods": ["srpo"]}]
    mine = {"name": "mine", "title": "Mine", "extends": "paper-arms", "matrix": matrix, "execution": execution}
    source.write_text(yaml.safe_dump(mine))
    result = snakemake(tmp_path, "--dry-run", "--configfile", source, *settings)
    assert result.returncode != 0
    assert says in result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "results").exists()


def test_results_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = snakemake(tmp_path, "--dry-run", "--config", f"results={tmp_path / 'file'}")
    assert result.returncode != 0
    assert "is not a directory" in result.stdout + result.stderr
    result = snakemake(tmp_path, "--dry-run", "--config", f"results={tmp_path / 'my results'}")
    assert "my results': give a folder without blanks" in result.stdout + result.stderr


def test_an_experiment_for_gpus_does_not_begin_on_a_machine_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first jobs would download models of 8 and 16 GB. What needs no GPU runs: data, a report of finished runs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    fake = program(tmp_path, f"echo $1 >> {tmp_path}/verbs\nexit 1")
    arguments = ("--configfile", CONFIGS / "experiments" / "paper.yaml", "--cores", 1)
    result = snakemake(tmp_path, *arguments, path=fake)
    assert result.returncode != 0
    assert "execution.ranks = 8: 0 GPUs are visible here" in result.stdout + result.stderr
    assert not (tmp_path / "verbs").exists()
    assert snakemake(tmp_path, *arguments, "--dry-run", path=fake).returncode == 0
    snakemake(tmp_path, *arguments, "results/paper/data/physics/test.parquet", path=fake)
    assert (tmp_path / "verbs").read_text().split() == ["data"]


@pytest.mark.parametrize(
    ("folders", "says"),
    [
        (["results="], "results = None: give a folder, such as results=results"),
        (["results=it's"], "results = \"it's\": give a folder without '"),
        (["results=$HOME/{x}"], "results = '$HOME/{x}': give a folder without $"),
        (["results=-x"], "results = '-x': give a folder without -"),
        (["results=out/smoke"], "results = out/smoke: the folder of one experiment (it has an experiment.yaml); give"),
        (["results=shared"], "results = shared: shared/one holds a published result; give another folder"),
        (["results=a", "results=b"], "--config results=a results=b: the same NAME twice; give one"),
    ],
)
def test_a_results_folder_that_would_be_another_is_refused(tmp_path: Path, folders: list[str], says: str) -> None:
    (tmp_path / "out" / "smoke" / "runs").mkdir(parents=True)
    (tmp_path / "out" / "smoke" / "experiment.yaml").touch()
    (tmp_path / "shared" / "one").mkdir(parents=True)
    (tmp_path / "shared" / "one" / "runs.jsonl.gz").touch()
    arguments = ("--dry-run", "--configfile", write_experiment(tmp_path), "--cores", 1, "--config", *folders)
    result = snakemake(tmp_path, *arguments)
    assert result.returncode != 0
    assert says in result.stdout + result.stderr


EMULATES = """
import srpo.ground.machine
from srpo.ground.errors import SrpoError

def check_products(precision):
    if precision == "bfloat16":
        raise SrpoError("execution.precision = bfloat16: emulated")

srpo.ground.machine.check_products = check_products
"""


def test_a_dry_run_says_that_the_processor_would_emulate_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run stops before its first job; a dry run says why."""
    (tmp_path / "sitecustomize.py").write_text(EMULATES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    arguments = ("--configfile", write_experiment(tmp_path, execution={"precision": "bfloat16"}), "--cores", 1)
    said = "No run starts on this machine: execution.precision = bfloat16: emulated"
    dry = snakemake(tmp_path, *arguments, "--dry-run")
    assert dry.returncode == 0
    assert dry.stderr.count(said) == 1
    run = snakemake(tmp_path, *arguments)
    assert run.returncode != 0
    assert not (tmp_path / "results" / "tiny" / "data").exists()
    plain = snakemake(tmp_path, "--configfile", write_experiment(tmp_path), "--dry-run")
    assert "on this machine" not in plain.stderr


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a clone that another account shares; Snakemake's own files can be in another folder."""
    denied = f"import os; access = os.access; os.access = lambda path, *_: str(path) != {str(tmp_path)!r}"
    (tmp_path / "sitecustomize.py").write_text(f"{denied} and access(path, *_)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    (mine := tmp_path / "mine").mkdir()
    arguments = ("--dry-run", "--configfile", write_experiment(tmp_path), "--config", f"results={mine}")
    result = snakemake(tmp_path, *arguments)
    assert result.returncode != 0
    assert result.stderr.splitlines()[1].startswith(f"{tmp_path}: cannot be written, and Snakemake keeps its own files")
    assert snakemake(tmp_path, *arguments, "--directory", mine).returncode == 0


def test_a_second_workflow_on_the_same_results_stops(tmp_path: Path) -> None:
    """The first one's jobs go on."""
    fake = program(tmp_path, f"touch {tmp_path}/begun\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.1; done\nexit 1")
    arguments = ("--configfile", write_experiment(tmp_path), "--cores", 1, "results/tiny/data/physics/train.parquet")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(snakemake, tmp_path, *arguments, path=fake)
        while not (tmp_path / "begun").exists():
            assert not first.done(), first.result().stderr
            time.sleep(0.1)
        try:
            second = snakemake(tmp_path, *arguments, path=fake)
            assert not first.done()
        finally:
            (tmp_path / "go").touch()
    assert second.returncode != 0
    assert "LockException" in second.stderr
    assert "split" in first.result().stderr


def test_lint_is_clean(tmp_path: Path) -> None:
    result = snakemake(tmp_path, "--lint")
    assert result.returncode == 0, result.stderr
    assert "good condition" in result.stderr


def test_outputs_are_what_the_analysis_writes(tmp_path: Path) -> None:
    from srpo.analysis.outline import figures_of, tables_of

    for changes in ({}, {"variants": {"grid": {"learning_rate": [1e-4, 1e-3]}}}, {"matrix": matrix(["grpo"], [1, 2])}):
        path = write_experiment(tmp_path, **changes)
        experiment = load_experiment(path)
        plan = snakemake(tmp_path, "--summary", "--configfile", path).stdout
        assert set(re.findall(r"tables/(\w+)\.csv", plan)) == set(tables_of(experiment))
        assert set(re.findall(r"figures/(\w+)\.png", plan)) == set(figures_of(experiment))


def test_a_dry_run_says_what_it_costs_and_how_many_jobs_there_are(tmp_path: Path) -> None:
    from srpo.plan.plan import make_plan
    from srpo.plan.text import headline

    path = write_experiment(tmp_path, matrix=matrix(["grpo", "srpo"], [1, 2]))
    arguments = ("--dry-run", "--configfile", path, "--cores", "3")
    plain = snakemake(tmp_path, *arguments, stderr=subprocess.STDOUT).stdout
    assert len(plain.splitlines()) < 50
    cost = headline(make_plan(load_experiment(path), nodes=3), "tiny.yaml")
    assert "1 base model, 4 runs" in cost
    assert plain.index(cost) < plain.index("Job stats:")
    assert not any(text in plain for text in ("Train ", "rule ", "Reason: ", "srpo train", "Host: "))
    asked = snakemake(tmp_path, "-np", "--quiet", "host", "--configfile", path).stdout
    assert "Train miniature-small on physics with grpo, seed 1" in asked
    assert "Reason: Missing output files" in asked
    assert "srpo train --experiment" in asked


def test_a_dry_run_takes_the_seconds_that_its_own_runs_measured(tmp_path: Path) -> None:
    training = {**tiny_experiment()["training"], "clock": {"kind": "wall"}}
    path = write_experiment(tmp_path, matrix=matrix(["grpo", "srpo"], [1]), training=training)
    write_results(tmp_path / "results" / "tiny", load_experiment(path), keep=lambda run: run.method == "grpo")
    said = snakemake(tmp_path, "--dry-run", "--configfile", path, "--cores", "1").stderr
    assert re.search(r"with 1 run at a time; 1 finished, the other 1 about [\d.]+ core-", said)
    assert "An estimate from measured seconds per step; srpo plan tiny.yaml says more." in said


def test_after_an_error_the_end_says_where_runs_stopped_and_what_to_do(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, matrix=matrix(["grpo"], [1]))
    experiment = load_experiment(path)
    write_results(tmp_path / "results" / "tiny", experiment, stop_at=5.0, evaluate=False)
    arguments = ("--cores", "1", "--configfile", path)
    result = snakemake(tmp_path, *arguments, path=program(tmp_path, "exit 1"), stderr=subprocess.STDOUT)
    assert result.returncode != 0
    (run,) = experiment.runs()
    log = (tmp_path / "results" / "tiny" / "runs" / run.path / "steps.jsonl").read_text().splitlines()
    said = result.stdout.split(f"{run.path} stopped after step {len(log)}\n")[1]
    assert said.startswith("A job failed, see above. Start it again to go on; nothing is lost.\n")


def test_after_ctrl_c_no_job_is_said_to_have_failed(tmp_path: Path) -> None:
    """Also if no run has taken a step."""
    fake = program(tmp_path, f"touch {tmp_path}/begun\nexec sleep 60")
    arguments = ("--configfile", write_experiment(tmp_path), "--cores", 1)
    process = start(tmp_path, *arguments, path=fake, stderr=subprocess.STDOUT)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "\nStart it again to go on; nothing is lost.\n" in said


@pytest.mark.parametrize("place", ["config/config.yaml", ".test/config/config.yaml"])
def test_the_standard_places_of_a_workflow(place: str, tmp_path: Path) -> None:
    """What snakedeploy copies and the workflow catalogue runs."""
    standard = ("--snakefile", ROOT / "workflow" / "Snakefile", "--configfile", ROOT / place)
    assert planned_jobs(tmp_path, *standard)["train"] == len(load_experiment(ROOT / place).runs())


def test_the_working_directorys_config_is_the_experiment_if_no_other_is_given(tmp_path: Path) -> None:
    """As the catalogue runs ``.test``; another file and a result folder are taken as elsewhere."""
    snakefile = ("--snakefile", ROOT / "workflow" / "Snakefile")
    shutil.copytree(ROOT / ".test" / "config", tmp_path / "config")
    own = len(load_experiment(ROOT / ".test" / "config" / "config.yaml").runs())
    assert planned_jobs(tmp_path, *snakefile)["train"] == own
    assert planned_jobs(tmp_path, *snakefile, "--config", "results=elsewhere")["train"] == own
    smoke = experiment_file("smoke")
    assert planned_jobs(tmp_path, *snakefile, "--configfile", smoke)["train"] == len(load_experiment(smoke).runs())
    for content, says in (("", "matrix: Field required"), ("colour: red\n", "colour: unknown key")):
        (tmp_path / "config" / "config.yaml").write_text(f"name: mine\ntitle: Mine\nextends: smoke\n{content}")
        refused = snakemake(tmp_path, "--dry-run", *snakefile)
        assert f"\nconfig/config.yaml: {says}\n" in refused.stdout + refused.stderr


@pytest.mark.parametrize("option", [("--configfile", "nowhere.yaml"), ("--configfile=nowhere.yaml",)])
def test_a_missing_file_is_one_line(option: tuple[str, ...], tmp_path: Path) -> None:
    result = snakemake(tmp_path, "--dry-run", *option)
    assert result.returncode != 0
    assert result.stderr.splitlines()[1:] == ["--configfile nowhere.yaml: cannot be read (No such file or directory)"]


def test_every_kind_of_file_of_the_matrix_is_a_target(tmp_path: Path) -> None:
    base = "results/embedded/base/miniature-large-1/tooluse"
    data = "results/embedded/data/tooluse-facts1"
    files = [
        f"{base}/gap.json",
        f"{base}/samples.jsonl",
        f"{data}/train.parquet",
        f"{data}/lengths/miniature-large-1.json",
    ]
    run = RUN.format(method="srpo", seed=1)
    jobs = planned_jobs(tmp_path, *files, run, "results/embedded/models/miniature-large-1/base.json")
    assert {"gap", "evaluate_base", "split", "lengths", "train", "base_model"} <= jobs.keys()


@pytest.mark.skipif(find_spec("snakemake_executor_plugin_slurm") is not None, reason="the plugin is installed")
def test_the_profile_of_a_cluster_names_the_environment_that_has_its_plugin(tmp_path: Path) -> None:
    result = snakemake(tmp_path, "--dry-run", "--profile", ROOT / "profiles" / "slurm")
    assert result.returncode != 0
    assert "make env-paper" in result.stderr.splitlines()[-1]


def test_every_rule_runs_in_an_image_that_has_a_recipe() -> None:
    """The image is global: it applies to the rules that come after it."""
    included = re.findall(r'^include: "(.*)"', (ROOT / "Snakefile").read_text(), re.MULTILINE)
    text = "\n".join((ROOT / name).read_text() for name in included)
    before, *rules = re.split(r"^rule ", text, flags=re.MULTILINE)
    assert '\ncontainer: f"srpo-{EXPERIMENT.scale}.sif"\n' in before
    assert not any("container:" in rule for rule in rules)
    for scale in ("embedded", "paper"):
        assert f"apptainer build srpo-{scale}.sif envs/{scale}.def" in (ROOT / "envs" / f"{scale}.def").read_text()


def test_what_is_said_of_the_cost_names_a_command_that_works(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, results="elsewhere")  # a file that sets more than the experiment
    printed = snakemake(tmp_path, "--dry-run", "--configfile", path, "--config", "title=Mine").stderr
    (named,) = re.findall(r"srpo plan (\S+) says more", printed)
    assert load_experiment(tmp_path / named).title == "Mine"


def test_questions_of_ones_own_files(tmp_path: Path) -> None:
    """They are planned and read; another content, and only that, makes the splits again."""

    def write(name: str, count: int) -> None:
        lines = (json.dumps({"prompt": f"{name}: {i}+{i}?", "answer": str(2 * i)}) for i in range(count))
        (tmp_path / name).write_text("\n".join(lines))

    def describe(train_file: str) -> None:
        files = {"train_file": train_file, "test_file": "test.jsonl"}
        content = {"kind": "files", "title": "Sums", "reward": "answer_match", **files}
        (tmp_path / "sums.yaml").write_text(yaml.safe_dump(content))

    write("train.jsonl", 40)
    write("test.jsonl", 6)
    describe("train.jsonl")
    block = {"models": ["miniature-small"], "benchmarks": ["sums.yaml"], "methods": ["grpo"]}
    arguments = ("--configfile", write_experiment(tmp_path, matrix=[block]))
    jobs = planned_jobs(tmp_path, *arguments)
    assert (jobs["split"], jobs["train"]) == (2, 1)
    splits = [f"results/tiny/data/sums/{split}.parquet" for split in ("train", "test")]
    made = snakemake(tmp_path, *splits, *arguments, "--cores", 1)
    assert made.returncode == 0, made.stderr
    assert [len(read_split(tmp_path / split)) for split in splits] == [40, 6]
    (tmp_path / "train.jsonl").rename(tmp_path / "moved.jsonl")
    describe("moved.jsonl")
    assert planned_jobs(tmp_path, *splits, *arguments) == {}
    write("test.jsonl", 7)
    assert planned_jobs(tmp_path, *splits, *arguments)["split"] == 2


def settings(*arguments: str) -> dict[str, str]:
    """Settings that Snakemake takes from its profiles."""
    code = (
        "import sys; from snakemake.cli import parse_args; args = parse_args(None)[1]; "
        "print({name: str(getattr(args, name)) for name in ('cores', 'jobs', 'retries', 'latency_wait', 'resources')})"
    )
    result = subprocess.run([sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return ast.literal_eval(result.stdout)


def test_default_profile_steps_aside(tmp_path: Path) -> None:
    """Snakemake would prefer what it says to a profile that is asked for."""
    (tmp_path / "config.yaml").write_text("jobs: 7\nretries: 5\n")
    assert settings()["cores"] == str(len(os.sched_getaffinity(0)))
    assert "gpu" in settings()["resources"]
    named = settings("--profile", str(tmp_path))
    assert (named["cores"], named["jobs"], named["retries"], named["resources"]) == ("None", "7", "5", "{}")


def test_a_machine_s_gpus_limit_no_cluster() -> None:
    assert 'resource_scopes:\n    gpu="local"' in (ROOT / "Snakefile").read_text()


def test_slurm_takes_the_gpus_of_a_job_from_one_node() -> None:
    set_resources = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())["set-resources"]
    files = "".join(path.read_text() for path in (ROOT / "rules").glob("*.smk"))
    on_gpus = [
        rule.split(":")[0] for rule in re.split(r"^ *rule ", files, flags=re.M)[1:] if 'gpu=DEVICES["gpu"]' in rule
    ]
    assert {"train", "evaluate_base", "gap"} < {*on_gpus}
    assert {name: set_resources[name]["nodes"] for name in on_gpus} == dict.fromkeys(on_gpus, 1)


def test_slurm_profile(tmp_path: Path) -> None:
    """The plugin reads the site's partitions from it, and puts each job of the paper's experiment where it belongs."""
    pytest.importorskip("snakemake_executor_plugin_slurm")
    from types import SimpleNamespace

    from snakemake_executor_plugin_slurm.partitions import read_partition_file

    profile = ROOT / "profiles" / "slurm"
    partitions = read_partition_file(profile / "config.yaml")

    def place(**resources: int) -> str:
        job = SimpleNamespace(threads=1, resources=resources)
        scores = {partition.name: partition.score_job_fit(job) for partition in partitions}
        return max((name for name, score in scores.items() if score is not None), key=scores.get)

    segment = yaml.safe_load((profile / "config.yaml").read_text())["set-resources"]["train"]["runtime"]
    assert place(gpu=8, mem_mb=320_000, runtime=segment) == "gpu"
    assert place(gpu=0, mem_mb=1000, runtime=10) == "cpu"
    assert place(gpu=0, mem_mb=2000, runtime=segment) == "cpu"
    experiment = CONFIGS / "experiments" / "paper.yaml"
    assert planned_jobs(tmp_path, "--profile", profile, "--configfile", experiment)["train"] == 42


@pytest.mark.slow
def test_a_matrix_of_five_thousand_runs_plans(tmp_path: Path) -> None:
    source = write_experiment(tmp_path, matrix=matrix(["grpo", "sdpo", "srpo"], list(range(1, 1668))))
    assert planned_jobs(tmp_path, "--configfile", source)["train"] > 5000


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the tiny experiment has run to its end, with verbs that only write their outputs' names."""
    from srpo.analysis.figures.registry import FIGURES
    from srpo.analysis.outline import COST_TABLES
    from srpo.analysis.tables.registry import TABLES

    folder = tmp_path_factory.mktemp("finished")
    found = f"import sys; sys.path.append({str(SUPPORT)!r}); TABLES, FIGURES = {list(TABLES)}, {list(FIGURES)}"
    found += f"; COST_TABLES = {COST_TABLES}"
    stub = program(folder, f"#!{sys.executable}\n{found}\n{STUB}")
    source = write_experiment(folder, matrix=matrix(["grpo", "srpo"], [1]))
    result = snakemake(folder, "--configfile", source, "--cores", 2, path=stub)
    assert result.returncode == 0, result.stderr
    return folder


STUB = """
import sys

from command_line import parse

from srpo import cli
from srpo.ground.layout import RunId
from srpo.ground.layout import Layout

verb, options = parse(sys.argv[1:])
if verb == "attempt":
    sys.exit(cli.main())
if verb == "track sync":
    sys.exit()
layout = Layout(options["experiment"].parent)
if verb == "data":
    split, benchmark = options["split"], options["benchmark"]
    outputs = [layout.split(benchmark, split) if split else layout.statistics(benchmark)]
    if options["lengths"]:
        outputs = [layout.lengths(benchmark, options["lengths"])]
elif verb == "gap":
    outputs = [layout.gap(options["model"], options["benchmark"])]
elif verb == "model":
    outputs = [layout.model(options["model"]) / "base.json"]
elif verb == "report":
    tables = [layout.tables / f"{name}.{kind}" for name in TABLES for kind in ("csv", "md", "rst")]
    tables += [layout.cost_table(kind, name) for name in COST_TABLES for kind in ("csv", "md", "rst")]
    figures = [layout.figures / f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg", "csv", "rst")]
    page = [layout.report, layout.report.with_suffix(".rst")]
    outputs = [*tables, *figures, *page]
else:
    if options["method"] is None:
        folder = layout.base(options["model"], options["benchmark"])
    else:
        folder = layout.run(RunId(**{key: options[key] for key in RunId.model_fields}))
    names = ["summary.json"] if verb == "train" else []
    if verb == "evaluate" or options["evaluate"]:
        names += ["evaluation.json", "samples.jsonl"]
    outputs = [folder / name for name in names]
for path in outputs:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(path))
"""


def reruns(finished: Path, source: Path) -> dict[str, int]:
    jobs = planned_jobs(finished, "--configfile", source, "--config", f"mirror={finished}")
    return {rule: count for rule, count in jobs.items() if rule != "total"}


REPORT = {"write_report": 1, "all": 1}
MIRROR = {"mirror": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"title": "Another"}, REPORT),
        ({"matrix": matrix(["grpo", "srpo", "sdpo"], [1])}, {"train": 1, **MIRROR, **REPORT}),
        ({"matrix": matrix(["grpo", "srpo"], [1, 2])}, {"train": 2, **MIRROR, **REPORT}),
        ({"overrides": {"srpo": {"learning_rate": 0.5}}}, {"train": 1, **MIRROR, **REPORT}),
        # a run that is over only evaluates
        ({"evaluation": {"rollouts": 3}}, {"train": 2, "evaluate_base": 2, **MIRROR, **REPORT}),
    ],
    ids=["nothing", "title", "method added", "seed added", "one method changed", "evaluation changed"],
)
def test_change_reruns_what_depends_on_it(changes: dict, expected: dict[str, int], finished: Path) -> None:
    source = write_experiment(finished, **{"matrix": matrix(["grpo", "srpo"], [1]), **changes})
    assert reruns(finished, source) == expected


@pytest.mark.slow
def test_another_title_of_anything_costs_a_report(finished: Path) -> None:
    renamed = load_experiment(write_experiment(finished, matrix=matrix(["grpo", "srpo"], [1]))).model_dump(mode="json")
    for kind in ("methods", "models", "benchmarks"):
        for definition in renamed[kind].values():
            definition["title"] += " of old"
    source = finished / "renamed.yaml"
    source.write_text(yaml.safe_dump(renamed, sort_keys=False))
    assert reruns(finished, source) == REPORT


TRAINED = {"train": 1, **MIRROR, **REPORT}
ALL_AGAIN = {"train": 2, "evaluate_base": 1, "lengths": 1, **MIRROR, **REPORT}
BOTH_BASES = {"evaluate_base": 2, "lengths": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "arguments", "expected"),
    [
        ("title", "Another", [], {}),
        ("methods.srpo.learning_rate", 0.5, [], TRAINED),
        ("methods.srpo.learning_rate", 0.5, ["--rerun-triggers", "mtime"], {}),
        ("training.budget_seconds.20h", 40.0, [], TRAINED | {"train": 2}),
        ("benchmarks.physics.seed", 1, [], {"split": 2, "statistics": 1, "gap": 1, **ALL_AGAIN}),
        ("models.miniature-small.warm_start.steps", 9, [], {"base_model": 1, "gap": 1, **ALL_AGAIN, **BOTH_BASES}),
    ],
)
def test_a_copied_run_of_other_settings_is_trained_again(
    key: str, value: object, arguments: list[str], expected: dict[str, int], finished: Path, tmp_path: Path
) -> None:
    """Snakemake has stored nothing of it. One of the same settings is finished, whatever the experiment's name."""
    experiment = load_experiment(write_experiment(finished, matrix=matrix(["grpo", "srpo"], [1])))
    layout = Layout(tmp_path / "results" / "other")
    shutil.copytree(finished / "results" / "tiny", layout.folder)
    for run in experiment.runs():
        record = {"spec": experiment.run(run).model_dump(mode="json"), "provenance": {"srpo": __version__}}
        layout.run_files(run).origin.write_text(yaml.safe_dump(record, sort_keys=False))
    changed = experiment.model_dump(mode="json") | {"name": "other"}
    *parents, last = key.split(".")
    reduce(dict.__getitem__, parents, changed)[last] = value
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))
    result = snakemake(tmp_path, "--dry-run", "--configfile", tmp_path / "other.yaml", *arguments)
    assert jobs_of(result) == expected | ({"total": sum(expected.values())} if expected else {})
    runs = {1: "srpo/seed1 was", 2: "grpo/seed1 (and 1 other run) was"}.get(expected.get("train"))
    assert ("was trained with other settings" in result.stderr) is (runs is not None)
    if runs:
        names = {"methods": "method", "benchmarks": "benchmark", "models": "model"}
        named = ".".join([names.get(parents[0], parents[0]), *parents[2 if parents[0] in names else 1 :], last])
        assert f"{runs} trained with other settings; snakemake trains it again or further: {named} = " in result.stderr


@pytest.mark.slow
def test_a_deleted_file_is_made_again(finished: Path, tmp_path: Path) -> None:
    """Although the report is there, and newer than all that is left."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    arguments = ("--configfile", write_experiment(tmp_path, matrix=matrix(["grpo", "srpo"], [1])))
    results = tmp_path / "results" / "tiny"
    for name in ("runs/*/*/grpo/*/samples.jsonl", "base/*/*/evaluation.json", "base/*/*/gap.json", "data/*/*.json"):
        [*map(Path.unlink, results.glob(name))]
    again = {"train": 1, "evaluate_base": 2, "gap": 1, "statistics": 2, **MIRROR, **REPORT}
    assert planned_jobs(tmp_path, *arguments) == again | {"total": sum(again.values())}
    next(results.glob("models/*/base.json")).unlink()
    assert planned_jobs(tmp_path, *arguments)["base_model"] == 1


@pytest.mark.slow
def test_a_figure_that_is_not_there_costs_a_report(finished: Path) -> None:
    """A figure that was added to the outline after the report was made is not there."""
    source = write_experiment(finished, matrix=matrix(["grpo", "srpo"], [1]))
    next(finished.glob("results/*/figures/*.png")).unlink()
    assert reruns(finished, source) == REPORT


def test_the_end_names_only_what_is_there(tmp_path: Path) -> None:
    result = snakemake(tmp_path, "--configfile", write_experiment(tmp_path), "--until", "split")
    assert result.returncode == 0
    assert "\nDone.\nsrpo status " in result.stderr
