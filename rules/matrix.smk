# The run matrix: the experiment, checked before anything runs, and the paths of its files.

import hashlib
import json
import re

from snakemake.exceptions import WorkflowError

import srpo
from srpo.compose import experiment_file, load_experiment, resolved_text
from srpo.config import RunId
from srpo.analysis.outline import figures_of, tables_of
from srpo.errors import SrpoError
from srpo.files import write_text
from srpo.layout import RUN_PATH, Layout, check_writable

try:
    EXPERIMENT = load_experiment(
        CONFIG or experiment_file("embedded"),
        where=" and ".join(map(str, workflow.overwrite_configfiles)) or "--config" if CONFIG else None,
        also_known=SETTINGS,
    )
    LAYOUT = Layout(Path(RESULTS_ROOT) / EXPERIMENT.name)
    check_writable(Path(with_prefix(LAYOUT.folder)))
except SrpoError as error:
    raise WorkflowError(str(error)) from None

RUNS = EXPERIMENT.runs()
BASES = EXPERIMENT.bases()
ANY_RUN = LAYOUT.any_run  # with wildcards
ANY_BASE = LAYOUT.base_files("{model}", "{benchmark}")


def evaluations_of(model):
    """The evaluations of a model's runs and of the model itself."""
    runs = [LAYOUT.run_files(run).evaluation for run in RUNS if run.model == model]
    return runs + [LAYOUT.base_files(*base).evaluation for base in BASES if base[0] == model]


# The workflow and the report page use the same list.
TABLES = tables_of(EXPERIMENT)
FIGURES = figures_of(EXPERIMENT)
EVALUATIONS = [path for model in EXPERIMENT.models for path in evaluations_of(model)]
STATISTICS = [LAYOUT.statistics(benchmark) for benchmark in EXPERIMENT.benchmarks]

# Every job reads the resolved experiment. It is not the output of a rule: then every job would be downstream of it, and
# Snakemake does not check the parameters of jobs downstream of a job that runs, not even with ancient(), so a changed
# method would not be trained again. `onstart` cannot write it either, because it does not run in a module. Instead it
# is stored here under its hash, an environment variable names it, and each job copies it to RESOLVED (--resolved).
RESOLVED = with_prefix(LAYOUT.experiment)
resolved = resolved_text(EXPERIMENT)
source = Path(".snakemake", "srpo", f"{hashlib.sha256(resolved.encode()).hexdigest()[:16]}.yaml").absolute()
if not source.exists():
    write_text(source, resolved)
RESOLVED_FROM = f"SRPO_EXPERIMENT_{re.sub(r'[^A-Za-z0-9]', '_', RESOLVED)}"
os.environ[RESOLVED_FROM] = str(source)
EXPERIMENT_OPTIONS = f'--experiment {{params.experiment}} --resolved "${RESOLVED_FROM}"'


wildcard_constraints:
    model="[^/]+",
    benchmark="[^/]+",
    method="[^/]+",
    seed=r"-?\d+",
    split="train|test",


def run_spec(wildcards):
    """Everything that determines a run's result. As a parameter, it makes Snakemake retrain only the affected runs."""
    try:
        return json.dumps({"srpo": srpo.__version__, **EXPERIMENT.run(RunId(**wildcards)).identity()})
    except SrpoError as error:
        raise WorkflowError(str(error)) from None


def splits_of(benchmark):
    """The splits of a benchmark: only the test split if nothing is trained on it."""
    return ("train", "test") if benchmark in {run.benchmark for run in RUNS} else ("test",)


def split_files(benchmark):
    return [LAYOUT.split(benchmark, split) for split in splits_of(benchmark)]


def warm_start_splits(model):
    """The train splits that a model's warm start reads, if its corpus is the splits."""
    warm_start = getattr(EXPERIMENT.models[model], "warm_start", None)
    if warm_start is None or warm_start.corpus != "splits":
        return []
    benchmarks = [benchmark for name, benchmark in BASES if name == model and "train" in splits_of(benchmark)]
    return [LAYOUT.split(benchmark, "train") for benchmark in benchmarks]


def with_caption(path, category):
    """An output that the workflow's report shows, with the computed caption in the .rst file next to it."""
    caption = str(Path(with_prefix(path)).with_suffix(".rst").absolute())
    labels = {"name": path.stem.replace("_", " "), "format": path.suffix[1:]}
    return report(path, caption=caption, category=category, labels=labels)
