# Questions: the splits of each benchmark as parquet files, and their statistics.


rule split:
    output:
        LAYOUT.split("{benchmark}", "{split}"),
    log:
        LAYOUT.log("data", "{benchmark}", "{split}"),
    priority: 95  # after the base models, which take much longer
    conda:
        CONDA
    container:
        CONTAINER
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
        f"srpo data {EXPERIMENT_OPTIONS} " "--benchmark {wildcards.benchmark} --split {wildcards.split} " "> {log} 2>&1"


rule statistics:
    input:
        splits=lambda wildcards: split_files(wildcards.benchmark),
    output:
        LAYOUT.statistics("{benchmark}"),
    log:
        LAYOUT.log("data", "{benchmark}", "statistics"),
    conda:
        CONDA
    container:
        CONTAINER
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
        f"srpo data {EXPERIMENT_OPTIONS} " "--benchmark {wildcards.benchmark} --statistics > {log} 2>&1"
