"""The workflow: what would run, that a change reruns what depends on the change, and that nothing stays missing."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml
from paths import ROOT
from snakemake_command import dry_run, snakemake
from synthetic import tiny_experiment

from srpo.experiment.compose import load_experiment
from srpo.ground.repository import CONFIGS, REFERENCE, REPORTS
from srpo.questions.splits import read_split

pytestmark = pytest.mark.fault

SHAPES = ["paper", "paper-in-small", "smoke", "rehearsal", "tuning", "gpu-spelling", "real-cpu-spelling", "embedded"]
"""Experiments of which each has a kind of model, matrix or data that the others do not have."""


def planned_jobs(folder: Path, *arguments: object) -> dict[str, int]:
    """Jobs of a dry run, by rule. Snakemake expands ``<exp>`` in inputs and outputs, but not in parameters."""
    status, said = dry_run(folder, *arguments, "--quiet", "host", "--printshellcmds")
    assert status == 0, said
    assert "<exp>" not in said
    table = said.partition("Job stats:")[2].split("\n\n")[0]
    jobs = {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", table, re.MULTILINE)}
    assert jobs.pop("total", 0) == sum(jobs.values())
    return jobs


def write_experiment(folder: Path, **changes: object) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(tiny_experiment(**changes), sort_keys=False))
    return path


def matrix(methods: list[str], seeds: list[int]) -> list[dict[str, list]]:
    return [
        {"models": ["miniature-tiny"], "benchmarks": ["miniature/physics"], "methods": methods, "seeds": seeds},
        {"models": ["miniature-tiny"], "benchmarks": ["miniature/tooluse"]},
    ]


# ---------------------------------------------------------------- what would run


@pytest.mark.parametrize("name", SHAPES)
def test_shipped_experiments_plan_their_matrix_with_the_same_rules(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(path := CONFIGS / "experiments" / f"{name}.yaml")
    trained, data_sets = {run.benchmark for run in experiment.runs()}, experiment.data_sets().values()
    linked = sum(model.is_linked for model in experiment.every_base_model().values())
    wanted = {
        "all": 1,
        "experiment": 1,
        "split": len(data_sets) + sum(data.name in trained for data in data_sets),
        "statistics": len(data_sets),
        "linked_model": linked,
        "base_model": len(experiment.every_base_model()) - linked,
        "train": len(experiment.runs()),
    }
    if not experiment.is_search:
        wanted |= {
            "evaluate": len(experiment.runs()),
            "evaluate_base": len(experiment.base_evaluations()),
            "gap": len(experiment.gaps()),
            "write_report": 1,
            "mlflow": 1,
        }
    jobs = planned_jobs(tmp_path, "--configfile", path)
    assert jobs == {rule: count for rule, count in wanted.items() if count}
    assert not (tmp_path / "results").exists()


def test_inputs_outside_of_results(tmp_path: Path) -> None:
    """The report's are what a user may edit. A hub model has none: no file of the working directory is newer."""
    _, said = dry_run(tmp_path, "--filegraph", "--configfile", CONFIGS / "experiments" / "registered.yaml")
    for path in (REPORTS / "report.css", REFERENCE / "splits.csv", CONFIGS / "registered.yaml"):
        assert f">{path}<" in said
    made = Path("results/one-gpu/models/qwen3-0.6b/base.json")
    (tmp_path / made).parent.mkdir(parents=True)
    for path in (made, "config.json"):
        (tmp_path / path).touch()
    assert not planned_jobs(tmp_path, made, "--configfile", CONFIGS / "experiments" / "one-gpu.yaml")


def test_smoke_runs_every_rule_for_models_that_are_built(tmp_path: Path) -> None:
    files = "".join(path.read_text() for path in [ROOT / "Snakefile", *(ROOT / "rules").glob("*.smk")])
    rules = {*re.findall(r"^(?:rule|use rule \w+ as) (\w+)", files, re.MULTILINE)}
    built = rules - {"linked_model"}
    assert planned_jobs(tmp_path, "--configfile", CONFIGS / "experiments" / "smoke.yaml").keys() == built
    assert {*re.findall(r">(\w+)</text>", (ROOT / "docs" / "dag.svg").read_text())} == built  # README's picture


def test_a_mistake_is_one_line_before_anything_runs(tmp_path: Path) -> None:
    path = write_experiment(tmp_path, colour="red")
    result = snakemake(tmp_path, "--cores", 1, "--configfile", path)
    assert result.returncode != 0
    assert [line for line in result.stderr.splitlines() if "colour" in line and str(path) in line]
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("place", ["config/config.yaml", ".test/config/config.yaml"])
def test_the_standard_places_of_a_workflow(place: str, tmp_path: Path) -> None:
    """What snakedeploy copies and the workflow catalogue runs: the working directory's config is the experiment."""
    (tmp_path / "config").mkdir()
    shutil.copy(ROOT / place, tmp_path / "config" / "config.yaml")
    standard = ("--snakefile", ROOT / "workflow" / "Snakefile")
    assert planned_jobs(tmp_path, *standard)["train"] == len(load_experiment(ROOT / place).runs())


def test_profiles_are_plain_and_set_nothing_that_is_wrong_elsewhere() -> None:
    """Snakemake reads the default profile beside another one, and prefers the default profile."""
    profiles = (ROOT / f"profiles/{name}/config.yaml" for name in ("default", "slurm"))
    default, slurm = (yaml.safe_load(profile.read_text()) for profile in profiles)
    assert not {"cores", "jobs", "resources", "retries", "__use_yte__"} & {*default}
    assert not {"cores", "retries", "__use_yte__"} & {*slurm}
    on_gpus = ("train", "evaluate", "evaluate_base", "gap")
    assert {name: slurm["set-resources"][name]["nodes"] for name in on_gpus} == dict.fromkeys(on_gpus, 1)


def test_slurm_profile(tmp_path: Path) -> None:
    """The plugin reads the site's partitions from the profile, and puts each job of the paper where the job belongs."""
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
    experiment = CONFIGS / "experiments" / "paper.yaml"
    assert planned_jobs(tmp_path, "--profile", profile, "--configfile", experiment)["train"] == 42


def test_a_matrix_of_a_thousand_runs_plans(tmp_path: Path) -> None:
    source = write_experiment(tmp_path, matrix=matrix(["grpo", "sdpo", "srpo"], list(range(1, 335))))
    assert planned_jobs(tmp_path, "--configfile", source)["train"] > 1000


def write_questions(file: Path, count: int) -> None:
    lines = (json.dumps({"prompt": f"{file.name}: {i}+{i}?", "answer": str(2 * i)}) for i in range(count))
    file.write_text("\n".join(lines))


def with_own_files(folder: Path, reward: str) -> tuple[str, Path]:
    """The option with an experiment on one's own files of questions."""
    files = {"train_file": "train.jsonl", "test_file": "test.jsonl"}
    for file, count in zip(files.values(), (40, 6), strict=True):
        write_questions(folder / file, count)
    (folder / "sums.yaml").write_text(yaml.safe_dump({"kind": "files", "title": "Sums", "reward": reward, **files}))
    block = {"models": ["miniature-tiny"], "benchmarks": ["sums.yaml"], "methods": ["grpo"]}
    return "--configfile", write_experiment(folder, matrix=[block])


def test_questions_of_ones_own_files(tmp_path: Path) -> None:
    """The files are planned and read; another content, and only that, makes the splits again."""
    arguments = with_own_files(tmp_path, "answer_match")
    splits = [f"results/tiny/data/sums/{split}.parquet" for split in ("train", "test")]
    made = snakemake(tmp_path, *splits, *arguments, "--cores", 1)
    assert made.returncode == 0, made.stderr
    assert [len(read_split(tmp_path / split)) for split in splits] == [40, 6]
    assert planned_jobs(tmp_path, *splits, *arguments) == {}
    write_questions(tmp_path / "test.jsonl", 7)
    assert planned_jobs(tmp_path, *splits, *arguments)["split"] == 2


def test_an_edited_reward_of_ones_own_trains_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings are the same; the numbers would be those of the old reward."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    reward = tmp_path / "mine.py"
    reward.write_text("def same(response, truth):\n    return response == truth\n")
    arguments = with_own_files(tmp_path, "mine:same")
    stub = program(tmp_path)
    assert snakemake(tmp_path, *arguments, "--cores", 1, path=stub).returncode == 0
    assert planned_jobs(tmp_path, *arguments) == {}
    reward.write_text("def same(response, truth):\n    return truth in response\n")
    again = planned_jobs(tmp_path, *arguments)
    assert (again["train"], again["evaluate"], again["evaluate_base"], again["gap"]) == (1, 1, 1, 1)


# ---------------------------------------------------------------- what runs again


STUB = """
import sys
from pathlib import Path

verb, *arguments = sys.argv[1:]
if verb == "attempt":
    verb, *arguments = arguments[arguments.index("--") + 2 :]
beside = {"evaluate": ["samples.jsonl"], "model": ["model.safetensors"]}
if verb == "report":
    from srpo.analysis.outline import COST_TABLES, figures_of, tables_of
    from srpo.experiment.compose import load_experiment

    folder, experiment = Path(arguments[0]).parent, load_experiment(Path(arguments[0]))
    outputs = [folder / "report.html", folder / "report.rst"]
    tables = [("tables", name) for name in tables_of(experiment, bool(experiment.gaps()))]
    for place, name in [*tables, *(("cost", name) for name in COST_TABLES)]:
        outputs += [folder / place / f"{name}.{kind}" for kind in ("csv", "md", "rst")]
    outputs += [folder / "figures" / f"{n}.{k}" for n in figures_of(experiment) for k in ("png", "svg", "csv", "rst")]
elif verb == "track":
    outputs = []
else:
    file = Path(arguments[0])
    outputs = [file, *(file.with_name(name) for name in beside.get(verb, []))]
    if verb == "train":
        (file.parent / "weights").mkdir()
for path in outputs:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(str(path))
"""
"""Writes the outputs of each verb, and computes nothing."""


def program(folder: Path) -> Path:
    """A folder with a program ``srpo`` that does what :data:`STUB` does."""
    path = folder / "bin" / "srpo"
    path.parent.mkdir()
    path.write_text(f"#!{sys.executable}\n{STUB}")
    path.chmod(0o755)
    return path.parent


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the tiny experiment has run to its end, with outputs that nothing computed."""
    folder = tmp_path_factory.mktemp("finished")
    source = write_experiment(folder, matrix=matrix(["grpo", "srpo"], [1]))
    result = snakemake(folder, "--configfile", source, "--cores", 2, path=program(folder))
    assert result.returncode == 0, result.stderr
    return folder


REPORT = {"write_report": 1, "mlflow": 1, "all": 1}
NEW = {"experiment": 1, **REPORT}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {}),
        ({"title": "Another"}, NEW),
        ({"matrix": matrix(["grpo", "srpo", "sdpo"], [1])}, {"train": 1, "evaluate": 1, **NEW}),
        ({"matrix": matrix(["grpo", "srpo"], [1, 2])}, {"train": 2, "evaluate": 2, **NEW}),
        ({"overrides": {"srpo": {"learning_rate": 0.5}}}, {"train": 1, "evaluate": 1, **NEW}),
        ({"evaluation": {"rollouts": 3}}, {"evaluate": 2, "evaluate_base": 2, **NEW}),
    ],
    ids=["nothing", "title", "method added", "seed added", "one method changed", "evaluation changed"],
)
def test_change_reruns_what_depends_on_it(changes: dict, expected: dict[str, int], finished: Path) -> None:
    source = write_experiment(finished, **{"matrix": matrix(["grpo", "srpo"], [1]), **changes})
    assert planned_jobs(finished, "--configfile", source) == expected


def test_copied_results_have_the_experiment_of_now(finished: Path, tmp_path: Path) -> None:
    """Snakemake's records of parameters do not come along, and the copy is newer than the file of configuration."""
    shutil.copytree(finished / "results", tmp_path / "results")
    source = write_experiment(tmp_path, title="Another", matrix=matrix(["grpo", "srpo"], [1]))
    os.utime(source, (0, 0))
    assert planned_jobs(tmp_path, "--configfile", source) == NEW


RUN = "runs/miniature-tiny/physics/grpo/seed1"
BASE = "base/miniature-tiny/physics"
RETRAINED = {"train": 2, "evaluate": 2, "evaluate_base": 2, "gap": 1, **REPORT}


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("experiment.yaml", NEW),
        ("data/tooluse-facts0/test.parquet", {"split": 1, "statistics": 1, "evaluate_base": 1, **REPORT}),
        ("data/physics/statistics.json", {"statistics": 1, **REPORT}),
        ("models/miniature-tiny/model.safetensors", {"base_model": 1, **RETRAINED}),
        ("models/miniature-tiny/base.json", {"base_model": 1, **RETRAINED}),
        (f"{RUN}/summary.json", {"train": 1, "evaluate": 1, **REPORT}),
        (f"{RUN}/weights", {"train": 1, "evaluate": 1, **REPORT}),
        (f"{RUN}/evaluation.json", {"evaluate": 1, **REPORT}),
        (f"{RUN}/samples.jsonl", {"evaluate": 1, **REPORT}),
        (f"{BASE}/evaluation.json", {"evaluate_base": 1, **REPORT}),
        (f"{BASE}/gap.json", {"gap": 1, **REPORT}),
        ("tables/table1.md", REPORT),
        ("figures/learning_curves.svg", REPORT),
        ("cost/cost.csv", REPORT),
        ("report.html", REPORT),
        ("in_mlflow", {"mlflow": 1, "all": 1}),
    ],
)
def test_a_deleted_file_is_made_again_with_what_depends_on_it(
    file: str, expected: dict[str, int], finished: Path, tmp_path: Path
) -> None:
    source = write_experiment(finished, matrix=matrix(["grpo", "srpo"], [1]))
    path = finished / "results" / "tiny" / file.replace("tooluse-facts0", "tooluse")
    path.rename(tmp_path / "moved")
    try:
        assert planned_jobs(finished, "--configfile", source) == expected
    finally:
        (tmp_path / "moved").rename(path)


def test_a_rule_that_is_appended_to_the_workflow_is_planned(tmp_path: Path) -> None:
    own = tmp_path / "Snakefile"
    parts = {"input": '"<exp>/report.html"', "output": '"<exp>/mine.txt"', "shell": '"cp {input} {output}"'}
    rule = "rule mine:\n" + "".join(f"    {name}:\n        {value}\n" for name, value in parts.items())
    own.write_text(f'include: "{ROOT}/Snakefile"\n\n\n{rule}')
    smoke = CONFIGS / "experiments" / "smoke.yaml"
    assert planned_jobs(tmp_path, "results/smoke/mine.txt", "--snakefile", own, "--configfile", smoke)["mine"] == 1


# ---------------------------------------------------------------- truly run


@pytest.mark.slow
def test_each_kind_of_deleted_file_comes_back_with_the_same_bytes(tmp_path: Path) -> None:
    """One method of smoke is trained; then a file of each kind is deleted, and made again with what it needs."""
    path = ROOT / ".test" / "config" / "config.yaml"
    results = tmp_path / "results" / "test"

    def run(*targets: Path) -> dict[str, bytes]:
        result = snakemake(tmp_path, *targets, "--cores", 2, "--configfile", path)
        assert result.returncode == 0, result.stderr
        kinds = ("data/*/*.parquet", "runs/**/validations.jsonl", "runs/**/samples.jsonl", "models/*/*.safetensors")
        made = [file for kind in (*kinds, "base/*/*/gap.json") for file in results.glob(kind)]
        return {str(file.relative_to(results)): file.read_bytes() for file in made}

    first = run()
    assert (results / "report.html").exists()
    assert (results / "in_mlflow").exists()
    deleted = ("data/*/train.parquet", "models/*/model.safetensors", "runs/**/summary.json", "base/*/*/gap.json")
    files = [next(results.glob(kind)) for kind in deleted]
    for file in files:
        file.unlink()
    shutil.rmtree(next(results.glob("runs/**/weights")))
    evaluation = next(results.glob("runs/**/evaluation.json"))
    assert run(*(file.relative_to(tmp_path) for file in (*files, evaluation))) == first
