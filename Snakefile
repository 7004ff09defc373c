# Trains, evaluates and reports one experiment:
#
#   snakemake                                                   the embedded experiment
#   snakemake --configfile configs/experiments/smoke.yaml       another one
#   snakemake --config mirror=DIR results=DIR                   where sources are and results go

from snakemake.utils import min_version

min_version("9.0")


# Only without --configfile: Snakemake merges the two, and what one experiment has and the other lacks stays.
if not config.keys() - {"mirror", "results"}:

    configfile: f"{workflow.basedir}/configs/experiments/embedded.yaml"


include: "rules/common.smk"
include: "rules/data.smk"
include: "rules/models.smk"
include: "rules/training.smk"
include: "rules/evaluation.smk"
include: "rules/report.smk"


report: "reports/workflow.rst"


# A profile's number of GPUs is a machine's: it limits what runs on one, not how many jobs a cluster gets.
resource_scopes:
    gpu="local",


localrules:
    all,


# Not a rule: every job would be downstream of it, and Snakemake does not look at the parameters of jobs
# downstream of one that runs, not even behind ancient(). So a changed method would not be trained anew.
onstart:
    write_resolved(EXPERIMENT, LAYOUT.experiment)


rule all:
    default_target: True
    input:
        f"{RESULTS}/report.html",
