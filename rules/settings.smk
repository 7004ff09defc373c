# Settings of the workflow that are not part of the experiment (--config mirror=DIR results=DIR).

from snakemake.exceptions import WorkflowError

SETTINGS = ("mirror", "results")
# An empty configuration means the embedded experiment. A copy: a module's configuration belongs to the importer.
CONFIG = {key: value for key, value in config.items() if key not in SETTINGS}
if workflow.is_main_process and config.get("mirror") and not Path(config["mirror"]).is_dir():
    raise WorkflowError(f"mirror={config['mirror']}: no such folder")
if CONFIG and "matrix" not in CONFIG and not workflow.overwrite_configfiles:
    raise WorkflowError(
        f"--config {' '.join(CONFIG)}: settings are {' and '.join(SETTINGS)}; to change an experiment, give it, too, "
        "such as --configfile configs/experiments/smoke.yaml"
    )
RESULTS_ROOT = config.get("results", "results")
