# The run matrix: what the experiment asks for, checked before anything runs.

import json
import shlex
import sys

from snakemake.exceptions import WorkflowError

import srpo
from srpo.cli import write_resolved
from srpo.compose import load_experiment
from srpo.config import RunId
from srpo.contents import figures_of, tables_of
from srpo.errors import SrpoError
from srpo.layout import Layout, check_writable
from srpo.plan import headline, make_plan

RESULTS_ROOT = config.pop("results", "results")

# One thread a process: results do not depend on the machine's cores, and cores go to more runs.
ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
ENVIRONMENT["TOKENIZERS_PARALLELISM"] = "false"
if mirror := config.pop("mirror", None):
    # Not a parameter of a rule: every byte is checked, so where it came from changes nothing downstream.
    ENVIRONMENT["SRPO_MIRROR"] = str(Path(mirror).absolute())
EXPORTS = " ".join(f"{name}={shlex.quote(value)}" for name, value in ENVIRONMENT.items())
# Last on the path: `.venv/bin/snakemake` finds its own `srpo` though the environment is not activated.
# SLURM names a job's GPUs for every vendor (gres.conf without AutoDetect), and verl refuses to see two.
shell.prefix(
    f'export {EXPORTS} PATH="$PATH":{shlex.quote(str(Path(sys.executable).parent))}; unset ROCR_VISIBLE_DEVICES; '
)

try:
    EXPERIMENT = load_experiment(config)
    RESULTS = f"{RESULTS_ROOT}/{EXPERIMENT.name}"
    check_writable(Path(RESULTS))
except SrpoError as error:
    raise WorkflowError(str(error)) from None

LAYOUT = Layout(Path(RESULTS))
RESOLVED = str(LAYOUT.experiment)
RUNS = EXPERIMENT.runs()
BASES = EXPERIMENT.bases()

CONDA = f"../envs/{EXPERIMENT.scale}.yaml"

# What a job takes that computes with a model: on GPUs the nodes' memory holds what the servers and a checkpoint need.
ON_GPUS = EXPERIMENT.execution.rollout_engine == "sglang"
RANKS = EXPERIMENT.execution.ranks
DEVICES = {
    "gpu": RANKS if ON_GPUS else 0,
    "mem_mb": RANKS * (40_000 if ON_GPUS else 2_000),
    "threads": RANKS * (8 if ON_GPUS else 1),
}
# Validations and checkpoints come on top of the training clock, whose modelled seconds are no measure of time.
HORIZON = max(EXPERIMENT.training.budgets.values())
RUNTIME = int(2 * HORIZON / 60) + 60 if EXPERIMENT.training.clock.kind == "wall" else 60

if workflow.is_main_process:  # before anything runs, in a dry run too; not in each job of a cluster
    at_once = workflow.resource_settings.nodes or (workflow.resource_settings.cores or 1) // DEVICES["threads"] or 1
    try:
        estimate = headline(make_plan(EXPERIMENT, 1 if ON_GPUS else at_once))
    except SrpoError as error:  # a model whose shape is not known yet
        estimate = f"{EXPERIMENT.name}: no estimate, {error}"
    print(estimate, file=sys.stderr)

# One list for the workflow and the page, which is laid out from it.
TABLES = tables_of(EXPERIMENT)
FIGURES = figures_of(EXPERIMENT)
EVALUATIONS = [f"{LAYOUT.run(run)}/evaluation.json" for run in RUNS]
EVALUATIONS += [f"{LAYOUT.base(*base)}/evaluation.json" for base in BASES]
STATISTICS = [str(LAYOUT.statistics(benchmark)) for benchmark in EXPERIMENT.benchmarks]


wildcard_constraints:
    model="[^/]+",
    benchmark="[^/]+",
    method="[^/]+",
    seed=r"-?\d+",
    split="train|test",


def run_spec(wildcards):
    """All that determines a run's result; as a parameter it makes Snakemake rerun exactly the runs it changes."""
    try:
        return json.dumps({"srpo": srpo.__version__, **EXPERIMENT.run(RunId(**wildcards)).identity()})
    except SrpoError as error:
        raise WorkflowError(str(error)) from None


def splits_of(benchmark):
    """A benchmark on which nothing is trained needs its test split only."""
    return ("train", "test") if benchmark in {run.benchmark for run in RUNS} else ("test",)


def split_files(benchmark):
    return [str(LAYOUT.split(benchmark, split)) for split in splits_of(benchmark)]


def warm_start_benchmarks(model):
    """The benchmarks whose train split the warm start reads, if its corpus is the splits."""
    warm_start = getattr(EXPERIMENT.models[model], "warm_start", None)
    if warm_start is None or warm_start.corpus != "splits":
        return []
    return [benchmark for name, benchmark in BASES if name == model and "train" in splits_of(benchmark)]


def size_rank(model):
    """0 for the smallest model: what takes longest starts first, so that no core waits for it at the end."""

    def size(name):
        architecture = getattr(EXPERIMENT.models[name], "architecture", None)
        return architecture.num_hidden_layers * architecture.hidden_size**2 if architecture else 10**9

    return sorted(EXPERIMENT.models, key=size).index(model)


def captioned(path, category):
    """An output that the workflow's report shows, with the computed caption that lies beside it."""
    return report(path, caption=str(Path(path).with_suffix(".rst").absolute()), category=category)
