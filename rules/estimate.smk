# Prints two lines about the cost of the experiment, in a dry run too, but not in each job of a cluster.

from snakemake.common.configfile import load_configfile

from srpo.plan.measurements import product_rate_here
from srpo.plan.plan import make_plan
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


def estimate():
    """What the experiment costs here, or why that is not known."""
    jobs = workflow.resource_settings.nodes or (workflow.resource_settings.cores or 1) // DEVICES["threads"] or 1
    try:
        rate = product_rate_here(EXPERIMENT)
        plan = make_plan(EXPERIMENT, 1 if ON_GPUS else jobs, product_rate=rate)
        said = [f"warning: {line}" for line in warnings(plan)]
        return "\n".join([headline(plan, known_as()), *said])
    except SrpoError as error:  # a model whose shape is not known yet
        return f"{EXPERIMENT.name}: no estimate, {error}"


if workflow.is_main_process:
    print(estimate(), file=sys.stderr)
