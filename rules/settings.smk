# Settings of the workflow that are not part of the experiment (--config mirror=DIR results=DIR).

from snakemake.exceptions import WorkflowError

SETTINGS = ("mirror", "results")
# The experiment's name in messages: its files, but a module does not know from which one its importer took it.
ORIGIN = " and ".join(map(str, workflow.overwrite_configfiles or workflow.configfiles)) or "--config"
if workflow.modifier.parent_modifier:
    ORIGIN = "config of the module"
if not isinstance(config, dict):
    raise WorkflowError(
        f"{ORIGIN} = {config!r}: give a mapping with the keys of an experiment (name, title, extends, matrix)"
    )
# An empty configuration means the embedded experiment. A copy: a module's configuration belongs to the importer.
CONFIG = {key: value for key, value in config.items() if key not in SETTINGS}
MIRROR = str(config["mirror"] or "") if "mirror" in config else None
if workflow.is_main_process and MIRROR is not None and not (MIRROR and Path(MIRROR).is_dir()):
    raise WorkflowError(f"mirror={MIRROR}: no such folder")
RESULTS_ROOT = config.get("results", "results")
