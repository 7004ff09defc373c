# Settings of the workflow that are not part of the experiment (--config mirror=DIR results=DIR).

SETTINGS = ("mirror", "results")
# An empty configuration means the embedded experiment. A copy: a module's configuration belongs to the importer.
CONFIG = {key: value for key, value in config.items() if key not in SETTINGS}
RESULTS_ROOT = config.get("results", "results")
