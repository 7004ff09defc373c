# What is said at the end: where the results are; after an error or Ctrl-C, which runs stopped where. Of a module,
# Snakemake runs neither.

from srpo.training import status
from srpo.ground.text import plural
from srpo.training.mirror import tracking_uri


def ending():
    """Where to look after all jobs are done."""
    folder = LAYOUT.folder
    made = LAYOUT.tuned if EXPERIMENT.is_search else LAYOUT.report
    return [
        # with --until or other targets there may be none yet
        f"Done. {made} has the results." if made.exists() else "Done.",
        f"srpo status {folder} lists the runs; mlflow ui --backend-store-uri {tracking_uri(folder)} shows curves.",
    ]


# If nothing is to be done, Snakemake ends without a word of the results.
if workflow.is_main_process and LAYOUT.report.exists():
    print(f"There from an earlier start: {LAYOUT.report}", file=sys.stderr)


def stopped():
    """Which runs failed or stopped, and what to do."""
    runs = status.read(EXPERIMENT, LAYOUT)
    failed = [run for run in runs if run.stage == "failed"]
    begun = [run for run in runs if run.stage in ("waiting", "training") and run.step]
    said = [f"{run.run} failed: {run.error}"[:190] for run in failed[:3]]
    said += [f"{run.run} stopped after step {run.step}" for run in begun[:3]]
    if (more := len(failed) + len(begun) - len(said)) > 0:
        said.append(f"and {plural(more, 'other run')}: srpo status {LAYOUT.folder}")
    # after Ctrl-C no job has failed
    cause = "A job failed, see above. " if failed or workflow.scheduler.failed else ""
    return [*said, f"{cause}Start it again to go on; nothing is lost."]


onsuccess:
    if workflow.is_main_process and not workflow.touch:
        print("", *ending(), sep="\n", file=sys.stderr)


onerror:
    if workflow.is_main_process:
        print("", *stopped(), sep="\n", file=sys.stderr)
