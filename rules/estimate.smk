# Prints two lines about the cost of the experiment, in a dry run too, but not in each job of a cluster.

from srpo.plan import make_plan
from srpo.plan_text import headline

if workflow.is_main_process:
    at_once = workflow.resource_settings.nodes or (workflow.resource_settings.cores or 1) // DEVICES["threads"] or 1
    try:
        estimate = headline(make_plan(EXPERIMENT, 1 if ON_GPUS else at_once))
    except SrpoError as error:  # a model whose shape is not known yet
        estimate = f"{EXPERIMENT.name}: no estimate, {error}"
    print(estimate, file=sys.stderr)
