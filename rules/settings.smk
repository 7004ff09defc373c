# Settings of the workflow that are not part of the experiment (--config mirror=DIR results=DIR).

from snakemake.exceptions import WorkflowError

SETTINGS = ("mirror", "results")
# An empty configuration means the embedded experiment. A copy: a module's configuration belongs to the importer.
CONFIG = {key: value for key, value in config.items() if key not in SETTINGS}
MIRROR = str(config["mirror"] or "") if "mirror" in config else None
if workflow.is_main_process and MIRROR is not None and not (MIRROR and Path(MIRROR).is_dir()):
    raise WorkflowError(f"mirror={MIRROR}: no such folder")
if CONFIG and "matrix" not in CONFIG and not workflow.overwrite_configfiles:
    raise WorkflowError(
        f"--config {' '.join(CONFIG)}: settings are {' and '.join(SETTINGS)}; to change an experiment, give it, too, "
        "such as --configfile configs/experiments/smoke.yaml"
    )
RESULTS_ROOT = config.get("results", "results")
