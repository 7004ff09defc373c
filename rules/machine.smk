# What jobs need of the machine, checked before the first one if they run on this machine: without GPUs an experiment
# would begin with the download of its models. On a cluster the jobs' machines are others, and each job checks its own.
# Snakemake does not run `onstart` of a module.

from srpo.machine import check_gpus, check_products

COMPUTING = {"train", "evaluate_run", "evaluate_base"}


def check_machine():
    execution = EXPERIMENT.execution
    if execution.rollout_engine == "sglang":
        check_gpus(execution.ranks)
    else:
        check_products(execution.precision)


onstart:
    here = workflow.is_main_process and workflow.local_exec and not workflow.touch
    if here and any(job.rule.name in COMPUTING for job in workflow.dag.needrun_jobs()):
        try:
            check_machine()
        except SrpoError as error:
            raise WorkflowError(str(error)) from None
