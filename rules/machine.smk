# What jobs need of the machine, checked before the first one if they run on this machine: without GPUs an experiment
# would begin with the download of its models. On a cluster the jobs' machines are others, and each job checks its own.
# Snakemake does not run `onstart` of a module, nor in a dry run, which does not know yet whether jobs run here: it says
# what the processor lacks. That a machine has no GPUs is no news where one plans for a cluster.

from srpo.ground.machine import check_gpus, check_products

COMPUTING = {"train", "evaluate_run", "evaluate_base", "gap"}


def check_machine():
    execution = EXPERIMENT.execution
    if execution.rollout_engine == "sglang":
        check_gpus(execution.ranks)
    else:
        check_products(execution.precision)


def lacks():
    """What keeps this machine from computing the experiment without GPUs; None if nothing does."""
    try:
        return None if EXPERIMENT.execution.rollout_engine == "sglang" else check_machine()
    except SrpoError as error:
        return str(error)


if workflow.is_main_process and (lacking := lacks()):
    print(f"No run starts on this machine: {lacking}", file=sys.stderr)


onstart:
    here = workflow.is_main_process and workflow.local_exec and not workflow.touch
    if here and any(job.rule.name in COMPUTING for job in workflow.dag.needrun_jobs()):
        try:
            check_machine()
        except SrpoError as error:
            raise WorkflowError(str(error)) from None
