# One experiment, from questions to report:
#
#   snakemake --cores all                                                     the default experiment
#   snakemake --cores all --configfile configs/experiments/smoke.yaml         another one
#   snakemake --cores all --config results=DIR                                with results in DIR/NAME

from snakemake.utils import min_version

min_version("9.27.1")


include: "rules/common.smk"


pathvars:
    exp=f"{config.get('results', 'results')}/{EXPERIMENT.name}",


include: "rules/data.smk"
include: "rules/models.smk"
include: "rules/training.smk"
include: "rules/evaluation.smk"
include: "rules/report.smk"


report: "reports/workflow.rst"


# GPUs of one machine: they limit the jobs on a machine, not those of a cluster.
resource_scopes:
    gpu="local",


localrules:
    all,
    experiment,


# Each kind of file is named: Snakemake makes no missing file again that only a finished file needs.
rule all:
    default_target: True
    input:
        experiment="<exp>/experiment.yaml",
        splits=[f"<exp>/data/{name}/{split}.parquet" for name in DATA_SETS for split in splits_of(name)],
        statistics=[f"<exp>/data/{name}/statistics.json" for name in DATA_SETS],
        models=[path for base in BASE_MODELS for path in model_files(base)],
        lengths=[lengths_of(base, benchmark) for base, benchmark in BASES],
        summaries=[f"<exp>/runs/{run.path}/summary.json" for run in RUNS],
        weights=[f"<exp>/runs/{run.path}/weights" for run in RUNS],
        # a search compares the validations of its trials, and ends with `srpo tune`
        evaluations=[] if EXPERIMENT.is_search else evaluations("evaluation.json"),
        samples=[] if EXPERIMENT.is_search else evaluations("samples.jsonl"),
        gaps=[] if EXPERIMENT.is_search else GAPS,
        report=[] if EXPERIMENT.is_search else rules.write_report.output,
        in_mlflow=[] if EXPERIMENT.is_search else "<exp>/in_mlflow",
    message:
        "All results are there"


onsuccess:
    print(f"The results are in {Path(RESULTS).absolute()}", file=sys.stderr)


onerror:
    print(f"`srpo status {RESULTS}` lists the runs. Start again to go on: runs continue.", file=sys.stderr)
