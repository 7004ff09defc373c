# What a job depends on, if that follows from its wildcards: input files, and the parameters of a run; and which runs
# are trained again.

import functools
import hashlib
import json
from textwrap import shorten

import srpo
from srpo.experiment.config import NOT_PART_OF_IDENTITY, listed
from srpo.ground.layout import RunId
from srpo.ground.repository import REPORTS
from srpo.ground.text import plural
from srpo.training.provenance import trained_otherwise


def splits_of(data_set):
    """The splits of a data set: only the test split if nothing is trained on it."""
    return ("train", "test") if DATA_SETS[data_set].name in {run.benchmark for run in RUNS} else ("test",)


def split_files(data_set):
    return [LAYOUT.split(data_set, split) for split in splits_of(data_set)]


def data_of(run):
    """The name of the data set of a run, or of a base model's evaluation, from its wildcards."""
    base = base_of(run) if hasattr(run, "seed") else run.model
    return EXPERIMENT.benchmarks[run.benchmark].for_model(BASE_MODELS[base]).data_set


def warm_start_splits(model):
    """The train splits that a base model's warm start reads."""
    warm_start = getattr(BASE_MODELS[model], "warm_start", None)
    if warm_start is None or warm_start.corpus == "families":
        return []
    data_sets = [EXPERIMENT.data_set(benchmark, model).data_set for name, benchmark in BASES if name == model]
    return [LAYOUT.split(data_set, "train") for data_set in data_sets if "train" in splits_of(data_set)]


def evaluations_of(model):
    """The evaluations of a model's runs and of the model itself."""
    bases = {base.name for base in EXPERIMENT.base_models(model).values()}
    runs = [LAYOUT.run_files(run).evaluation for run in RUNS if run.model == model]
    return runs + [LAYOUT.base_files(*base).evaluation for base in BASES if base[0] in bases]


def made_before_a_report():
    """All results but the report: asked for by name, because Snakemake makes no missing input of a file that is there."""
    files = [LAYOUT.split(name, split) for name in DATA_SETS for split in splits_of(name)]
    files += map(LAYOUT.model_description, BASE_MODELS)
    for model, benchmark in BASES:
        files.append(LAYOUT.lengths(EXPERIMENT.data_set(benchmark, model).data_set, model))
    runs = [LAYOUT.run_files(run) for run in RUNS]
    files += [run.summary for run in runs]
    if not EXPERIMENT.is_search:
        evaluated = [*runs, *(LAYOUT.base_files(*base) for base in BASES)]
        files += [path for each in evaluated for path in (each.evaluation, each.samples)]
        files += [*(LAYOUT.gap(*pair) for pair in GAPS), *STATISTICS]
    return files


def base_of(run):
    """The name of the base model that a run starts from, from the run's wildcards."""
    return EXPERIMENT.models[run.model].base_model(int(run.seed)).name


def benchmark_spec(wildcards):
    """What determines a data set's splits, as a parameter of the rules that make and describe them."""
    return DATA_SETS[wildcards.benchmark].model_dump_json(exclude=NOT_PART_OF_IDENTITY["benchmark"])


def report_definition():
    """The report's sections and claims. As a parameter, a new figure or claim makes Snakemake write the report again."""
    files = [REPORTS / name for name in ("outline.yaml", "claims.yaml")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def run_spec(wildcards):
    """Everything that determines a run's result. As a parameter, it makes Snakemake retrain only the affected runs."""
    try:
        return json.dumps({"srpo": srpo.__version__, **EXPERIMENT.run(RunId(**wildcards)).identity()})
    except SrpoError as error:
        raise WorkflowError(str(error)) from None


def trained_with_others():
    """Runs that were trained with other settings, and what differs."""
    try:
        return trained_otherwise(EXPERIMENT, Layout(Path(with_prefix(LAYOUT.folder))))
    except SrpoError as error:
        raise WorkflowError(str(error)) from None


TRAINED_WITH_OTHERS = trained_with_others() if workflow.is_main_process else {}


@functools.cache
def say_what_differs():
    (run, differs), *others = TRAINED_WITH_OTHERS.items()
    more = f" (and {plural(len(others), 'other run')})" if others else ""
    keys = shorten(listed(differs), 300, placeholder=" ...")
    print(
        f"{run.path}{more} was trained with other settings; snakemake trains it again or further: {keys}",
        file=sys.stderr,
    )


def train_split(wildcards):
    """The train split of a run. If its folder says that it was trained with other settings, it is trained again.

    Snakemake knows the parameters of runs that it trained from this folder, not of others. Unlike the files of
    --forcerun, a forced file of the graph is no target.
    """
    if (differs := TRAINED_WITH_OTHERS.get(run := RunId(**wildcards))) and "params" in map(
        str, workflow.rerun_triggers
    ):
        say_what_differs()
        forced = [LAYOUT.run_files(run).summary]
        if any(key.startswith("model.") for key in differs):
            forced.append(LAYOUT.model_description(base_of(wildcards)))
        if any(key.startswith("benchmark.") for key in differs):
            forced += split_files(data_of(wildcards))
        workflow.dag.forcefiles.update(map(with_prefix, forced))
    return LAYOUT.split(data_of(wildcards), "train")
