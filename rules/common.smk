# The experiment, and what its rules ask of it.

import functools
import hashlib
import re
import sys
from pathlib import Path

import srpo
from snakemake.exceptions import WorkflowError
from srpo.analysis.outline import COST_TABLES, figures_of, tables_of
from srpo.experiment.compose import experiment_file, load_experiment, resolved_text
from srpo.experiment.job import job_of
from srpo.experiment.memory import process_memory_mb
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_mapping
from srpo.ground.repository import REPORTS
from srpo.starts.resolve import checkpoint_files
from srpo.training.lengths import check_experiment

DEFAULT = "paper-in-small"


def load():
    """The experiment that the configuration describes, checked before anything runs."""
    files = [*map(Path, workflow.overwrite_configfiles or workflow.configfiles)]
    for file in files:
        read_mapping(file)  # Snakemake keeps the last of two equal keys, and reads 010 as 8
    given = {key: value for key, value in config.items() if key != "results"}
    where = " and ".join(map(str, files)) or "--config"
    found = load_experiment(given, where=where) if given else load_experiment(experiment_file(DEFAULT))
    check_experiment(found)
    return found


try:
    EXPERIMENT = load()
except SrpoError as error:
    raise WorkflowError(str(error)) from None

RESULTS = f"{config.get('results', 'results')}/{EXPERIMENT.name}"
RUNS = EXPERIMENT.runs()
BASE_MODELS = EXPERIMENT.every_base_model()
DATA_SETS = EXPERIMENT.data_sets()
BASES = EXPERIMENT.base_evaluations()
GAPS = [f"<exp>/base/{base}/{benchmark}/gap.json" for base, benchmark in EXPERIMENT.gaps()]
TABLES = tables_of(EXPERIMENT, bool(GAPS))
FIGURES = figures_of(EXPERIMENT)

# `conda:` of the rules that train or sample; all others need no torch.
TRAINING = f"../envs/{EXPERIMENT.scale}.yaml"
ON_GPUS = EXPERIMENT.execution.rollout_engine == "sglang"
RANKS = EXPERIMENT.execution.ranks
DEVICES = {
    "threads": RANKS * (8 if ON_GPUS else 1),
    "gpu": RANKS if ON_GPUS else 0,
    "mem_mb": RANKS * (40_000 if ON_GPUS else max(map(process_memory_mb, EXPERIMENT.models.values()))),
}
# Minutes. A modelled clock does not measure time.
RUNTIME = 60
if EXPERIMENT.training.clock.kind != "modelled":
    RUNTIME += int(2 * max(EXPERIMENT.training.budget_seconds.values()) / 60)


container: f"srpo-{EXPERIMENT.scale}.sif"


wildcard_constraints:
    model="[^/]+",
    benchmark="[^/]+",
    method="[^/]+",
    seed=r"\d+",
    data_set="[^/]+",
    split="train|test",


@functools.cache
def job_with(names):
    return job_of(EXPERIMENT, dict(names))


def job(wildcards):
    """What the job with these wildcards reads of the experiment."""
    return job_with(tuple(wildcards.items()))


def setting(section):
    """A section of the experiment as a job reads it: an argument of its command, and so a reason to run it again."""
    return lambda wildcards: job(wildcards).text(section)


def digest(*files):
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def splits_of(data_set):
    """The splits of a data set: only the test split if nothing is trained on it."""
    return ["train", "test"] if DATA_SETS[data_set].name in {run.benchmark for run in RUNS} else ["test"]


def model_files(base):
    """The files of a base model. Weights that are only linked are as many as their source has."""
    weights = [] if BASE_MODELS[base].is_linked else [f"<exp>/models/{base}/model.safetensors"]
    return [f"<exp>/models/{base}/base.json", *weights]


def lengths_of(base, benchmark):
    return f"<exp>/data/{EXPERIMENT.data_set(benchmark, base).data_set}/lengths/{base}.json"


def evaluations(name):
    """A file of each evaluation, of runs and of untrained models."""
    runs = [f"<exp>/runs/{run.path}/{name}" for run in RUNS]
    return runs + [f"<exp>/base/{base}/{benchmark}/{name}" for base, benchmark in BASES]


def starts_from(wildcards):
    """What a run, or an untrained model's evaluation, reads: questions, base model and lengths of the prompts."""
    model, data_set = job(wildcards).model.name, job(wildcards).benchmark.data_set
    splits = {split: f"<exp>/data/{data_set}/{split}.parquet" for split in splits_of(data_set)}
    return {**splits, "base": model_files(model), "lengths": f"<exp>/data/{data_set}/lengths/{model}.json"}


def warm_start_data(base):
    """The train splits that a base model's warm start reads."""
    warm_start = getattr(BASE_MODELS[base], "warm_start", None)
    if warm_start is None or warm_start.corpus == "families":
        return []
    data_sets = [EXPERIMENT.data_set(benchmark, base).data_set for name, benchmark in BASES if name == base]
    return [f"<exp>/data/{name}/train.parquet" for name in data_sets if "train" in splits_of(name)]


def source_files(base):
    """The files of a local checkpoint."""
    path = getattr(BASE_MODELS[base], "path", None)
    return checkpoint_files(path.expanduser()) if BASE_MODELS[base].kind == "local" else []


def shown(path, category):
    """An output that Snakemake's own report shows, with the caption in the .rst file beside it."""
    labels = {"name": Path(path).stem.replace("_", " "), "format": Path(path).suffix[1:]}
    return report(
        path,
        caption=str(Path(path.replace("<exp>", RESULTS)).with_suffix(".rst").absolute()),
        category=category,
        labels=labels,
    )
