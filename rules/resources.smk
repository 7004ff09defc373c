# Resources of jobs that compute with a model: environment, devices, memory, time; and which of them start first.

import shlex
import sys

from srpo.experiment.memory import process_memory_mb

CONDA = f"../envs/{EXPERIMENT.scale}.yaml"


# Of every rule. Built by hand in the folder where Snakemake runs (docs/environments.md); used with --sdm apptainer only.
container: f"srpo-{EXPERIMENT.scale}.sif"


# On GPUs the rollout servers and a checkpoint need memory of the host.
ON_GPUS = EXPERIMENT.execution.rollout_engine == "sglang"
RANKS = EXPERIMENT.execution.ranks
# of one node, by the profile or --resources; a plain number in older Snakemake
NODE = workflow.global_resources.get("gpu")
if ON_GPUS and workflow.is_main_process and RANKS > (node := getattr(NODE, "value", NODE) or RANKS):
    raise WorkflowError(f"execution.ranks = {RANKS}: a run has one node, and a node {node} GPUs (resources: gpu)")
DEVICES = {
    "gpu": RANKS if ON_GPUS else 0,
    "mem_mb": RANKS * (40_000 if ON_GPUS else max(map(process_memory_mb, EXPERIMENT.models.values()))),
    "threads": RANKS * (8 if ON_GPUS else 1),
}
# On CPUs one thread per process: results do not depend on the number of cores, and idle cores train other runs. A job on
# GPUs uses the cores of its node: Ray gives its workers theirs, and the driver tokenizes and copies with several threads.
ENVIRONMENT = {} if ON_GPUS else dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
ENVIRONMENT["TOKENIZERS_PARALLELISM"] = "false"
if MIRROR:
    # Not a parameter of a rule: every byte is checked, so the source of the data cannot change a result.
    ENVIRONMENT["SRPO_MIRROR"] = str(Path(MIRROR).absolute())
EXPORTS = " ".join(f"{name}={shlex.quote(value)}" for name, value in ENVIRONMENT.items())
# This Python's folder comes last on the path: `.venv/bin/snakemake` finds `srpo` without an active environment.
# SLURM sets the GPU variables of every vendor (gres.conf without AutoDetect), and verl refuses two of them.
# In Snakemake shell.prefix is global: if this workflow is a module, it applies to the importer's rules too.
shell.prefix(
    f'export {EXPORTS} PATH="$PATH":{shlex.quote(str(Path(sys.executable).parent))}; unset ROCR_VISIBLE_DEVICES; '
)

# Minutes. Validations and checkpoints are not on the training clock; a modelled clock does not measure time.
LAST_BUDGET = max(EXPERIMENT.training.budget_seconds.values())
RUNTIME = int(2 * LAST_BUDGET / 60) + 60 if EXPERIMENT.training.clock.kind != "modelled" else 60


def size_rank(model):
    """0 for the smallest model. Larger models start first, so that no core waits for a long run at the end."""

    def size(name):
        architecture = getattr(models[name], "architecture", None)
        return architecture.num_hidden_layers * architecture.hidden_size**2 if architecture else 10**9

    models = {**EXPERIMENT.models, **BASE_MODELS}
    return sorted({size(name) for name in models}).index(size(model))
