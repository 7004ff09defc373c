# The experiment, and what its rules ask of it.

import functools
import os
from pathlib import Path

import srpo
from srpo.analysis.outline import COST_TABLES, figures_of, tables_of
from srpo.experiment.compose import experiment_file, load_experiment, resolved_text
from srpo.experiment.job import job_of
from srpo.experiment.memory import process_memory_mb
from srpo.ground.files import read_mapping
from srpo.ground.repository import CONFIGS, REPORTS
from srpo.starts.resolve import checkpoint_files
from srpo.training.lengths import check_experiment
from srpo.training.mirror import without_password
from srpo.training.provenance import COMPUTING, source_hash

DEFAULT = "paper-in-small"

files = workflow.overwrite_configfiles or workflow.configfiles
for file in files:
    read_mapping(Path(file))  # Snakemake keeps the last of two equal keys, and reads 010 as 8
given = {key: value for key, value in config.items() if key != "results"}
EXPERIMENT = load_experiment(given or experiment_file(DEFAULT), where=" and ".join(map(str, files)) or "--config")
check_experiment(EXPERIMENT)

RESULTS = f"{config.get('results', 'results')}/{EXPERIMENT.name}"
WRITTEN = Path(RESULTS, "experiment.yaml")
IS_OUTDATED = WRITTEN.exists() and WRITTEN.read_text() != resolved_text(EXPERIMENT)
OUTDATED = [f"<exp>/.outdated/{WRITTEN.stat().st_mtime_ns}"] if IS_OUTDATED else []
RUNS = EXPERIMENT.runs()
BASE_MODELS = EXPERIMENT.every_base_model()
DATA_SETS = EXPERIMENT.data_sets()
BASES = EXPERIMENT.base_evaluations()
GAPS = [f"<exp>/base/{base}/{benchmark}/gap.json" for base, benchmark in EXPERIMENT.gaps()]
TABLES = [f"tables/{name}" for name in tables_of(EXPERIMENT, bool(GAPS))] + [f"cost/{name}" for name in COST_TABLES]
FIGURES = [f"figures/{name}" for name in figures_of(EXPERIMENT)]

TRAINING = f"../envs/{EXPERIMENT.scale}.yaml"
ON_GPUS = EXPERIMENT.execution.rollout_engine == "sglang"
RANKS = EXPERIMENT.execution.ranks
THREADS = RANKS * (8 if ON_GPUS else 1)
MEMORY = RANKS * (40_000 if ON_GPUS else max(map(process_memory_mb, EXPERIMENT.models.values())))
DEVICES = {"gpu": RANKS if ON_GPUS else 0, "mem_mb": MEMORY}


container: f"srpo-{EXPERIMENT.scale}.sif"


def job(wildcards):
    """What the job with these wildcards reads of the experiment."""
    return job_with(tuple(wildcards.items()))


@functools.cache
def job_with(names):
    return job_of(EXPERIMENT, dict(names))


def settings(*sections):
    """Sections of the experiment as a job reads them: arguments of its command, and so reasons to run it again."""
    return {section: lambda wildcards, section=section: job(wildcards).text(section) for section in sections}


def splits(data_set):
    """The splits of a data set: only the test split if nothing is trained on it."""
    names = ["train", "test"] if DATA_SETS[data_set].name in {run.benchmark for run in RUNS} else ["test"]
    return [f"<exp>/data/{data_set}/{name}.parquet" for name in names]


def model_files(base):
    """The files of a base model. Weights that are only linked are as many as their source has."""
    weights = [] if BASE_MODELS[base].is_linked else [f"<exp>/models/{base}/model.safetensors"]
    return [f"<exp>/models/{base}/base.json", *weights]


def warm_start_data(wildcards):
    """The train splits that a base model's warm start reads."""
    warm_start = getattr(BASE_MODELS[wildcards.model], "warm_start", None)
    if warm_start is None or warm_start.corpus == "families":
        return []
    data_sets = [EXPERIMENT.data_set(benchmark, base).data_set for base, benchmark in BASES if base == wildcards.model]
    return [path for data_set in data_sets for path in splits(data_set) if path.endswith("train.parquet")]


def evaluations(name):
    """A file of each evaluation, of runs and of untrained models."""
    runs = [f"<exp>/runs/{run.path}/{name}" for run in RUNS]
    return runs + [f"<exp>/base/{base}/{benchmark}/{name}" for base, benchmark in BASES]


def starts_from(wildcards):
    """What a run, or an untrained model's evaluation, reads: questions and the base model."""
    read = job(wildcards)
    return {"splits": splits(read.benchmark.data_set), "base": model_files(read.model.name)}


def shown(path, category):
    """An output that Snakemake's own report shows, with the caption in the .rst file beside it."""
    labels = {"name": Path(path).stem.replace("_", " "), "format": Path(path).suffix[1:]}
    caption = Path(path.replace("<exp>", RESULTS)).with_suffix(".rst").absolute()
    return report(path, caption=str(caption), category=category, labels=labels)
