# Questions: splits of each benchmark, as parquet, and what they look like.


rule split:
    output:
        f"{RESULTS}/data/{{benchmark}}/{{split}}.parquet",
    log:
        f"{RESULTS}/logs/data/{{benchmark}}/{{split}}.log",
    priority: 150
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        experiment=RESOLVED,
        benchmark=lambda wildcards: EXPERIMENT.benchmarks[wildcards.benchmark].model_dump_json(exclude={"title"}),
    message:
        "Write the {wildcards.split} split of {wildcards.benchmark}"
    shell:
        "srpo data --experiment {params.experiment} --benchmark {wildcards.benchmark} --split {wildcards.split} "
        "> {log} 2>&1"


rule statistics:
    input:
        splits=lambda wildcards: split_files(wildcards.benchmark),
    output:
        f"{RESULTS}/data/{{benchmark}}/statistics.json",
    log:
        f"{RESULTS}/logs/data/{{benchmark}}/statistics.log",
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        experiment=RESOLVED,
        benchmark=lambda wildcards: EXPERIMENT.benchmarks[wildcards.benchmark].model_dump_json(exclude={"title"}),
    message:
        "Describe {wildcards.benchmark}"
    shell:
        "srpo data --experiment {params.experiment} --benchmark {wildcards.benchmark} --statistics > {log} 2>&1"
