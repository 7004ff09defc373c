# Prints two lines about the cost of the experiment, in a dry run too, but not in each job of a cluster.

from snakemake.common.configfile import load_configfile

from srpo.plan.measurements import read_measurements
from srpo.plan.plan import NOTHING, make_plan
from srpo.plan.text import headline
from srpo.plan.warnings import warnings


def known_as():
    """What `srpo plan` takes: the file that was given, if it alone says the experiment; or else the resolved one."""
    if not CONFIG:
        return EXPERIMENT.name
    given = workflow.overwrite_configfiles
    alone = len(given) == 1 and load_configfile(given[0]) == CONFIG
    file = given[0].absolute() if alone else STORED
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file


def measured_here():
    """What its own finished runs measured, if their clock measures and their settings are these."""
    try:
        return read_measurements([LAYOUT.folder], EXPERIMENT)
    except SrpoError:
        return NOTHING


def estimate():
    """What the experiment costs here, and how much of that is there already; or why that is not known."""
    finished = {run for run in RUNS if LAYOUT.run_files(run).summary.exists()} - TRAINED_WITH_OTHERS.keys()
    jobs = workflow.resource_settings.nodes or (workflow.resource_settings.cores or 1) // DEVICES["threads"] or 1
    try:
        plan = make_plan(EXPERIMENT, 1 if ON_GPUS else jobs, measured_here() if finished else NOTHING)
        said = [f"warning: {line}" for line in warnings(plan)]
        return "\n".join([headline(plan, known_as(), finished), *said])
    except SrpoError as error:  # a model whose shape is not known yet
        return f"{EXPERIMENT.name}: no estimate, {error}"


if workflow.is_main_process:
    print(estimate(), file=sys.stderr)
