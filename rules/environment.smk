# Settings of the workflow that are not part of the experiment (--config mirror=DIR results=DIR).

SETTINGS = ("mirror", "results")
# An empty configuration means the embedded experiment. A copy: a module's configuration belongs to the importer.
CONFIG = {key: value for key, value in config.items() if key not in SETTINGS}
RESULTS_ROOT = config.get("results", "results")


def with_prefix(path):
    """A path as jobs see it: below the prefix, if another workflow imports this one as a module with a prefix.

    Snakemake adds the prefix to inputs, outputs and logs, but not to parameters and captions.
    """
    return str(workflow.modifier.path_modifier.modify(str(path)))
