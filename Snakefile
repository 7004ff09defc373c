# One experiment, from questions to report:
#
#   snakemake --cores all                                                     the default experiment
#   snakemake --cores all --configfile configs/experiments/smoke.yaml         another one

from snakemake.utils import min_version

min_version("9.27.1")


include: "rules/common.smk"


pathvars:
    exp=RESULTS,


include: "rules/data.smk"
include: "rules/models.smk"
include: "rules/training.smk"
include: "rules/evaluation.smk"
include: "rules/report.smk"


report: "reports/workflow.rst"


# GPUs are counted per machine, not over all jobs of a cluster.
resource_scopes:
    gpu="local",


# Each kind of file is named: Snakemake ignores a missing file whose consumers are up to date.
rule all:
    default_target: True
    input:
        rules.experiment.output,
        [[*splits(name), f"<exp>/data/{name}/statistics.json"] for name in DATA_SETS],
        [model_files(base) for base in BASE_MODELS],
        [[f"<exp>/runs/{run.path}/summary.json", f"<exp>/runs/{run.path}/weights"] for run in RUNS],
        # a search compares the validations of its trials, and ends with `srpo tune`
        [] if EXPERIMENT.is_search else [*evaluations("evaluation.json"), *evaluations("samples.jsonl"), *GAPS],
        [] if EXPERIMENT.is_search else [*rules.write_report.output, *rules.mlflow.output],
