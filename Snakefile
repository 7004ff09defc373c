# Trains, evaluates and reports one experiment:
#
#   snakemake                                                   the embedded experiment
#   snakemake --configfile configs/experiments/smoke.yaml       another one
#   snakemake --config mirror=DIR results=DIR                   read data from DIR, write results to DIR

from snakemake.utils import min_version

min_version("9.0")


include: "rules/settings.smk"
include: "rules/paths.smk"
include: "rules/experiment.smk"
include: "rules/matrix.smk"
include: "rules/inputs.smk"
include: "rules/resources.smk"
include: "rules/machine.smk"
include: "rules/data.smk"
include: "rules/models.smk"
include: "rules/training.smk"
include: "rules/tuning.smk"
include: "rules/evaluation.smk"
include: "rules/report.smk"
include: "rules/ending.smk"


report: "reports/workflow.rst"


# The number of GPUs in a profile is that of one machine. It limits the jobs on that machine, not those of a cluster.
resource_scopes:
    gpu="local",


localrules:
    all,


rule all:
    default_target: True
    input:
        made_before_a_report(),
        # a search ends with what it has found; its report and copies in MLflow are made on request
        [LAYOUT.tuned] if EXPERIMENT.is_search else [*rules.write_report.output, LAYOUT.in_mlflow],
    message:
        "All results are there"


include: "rules/estimate.smk"
