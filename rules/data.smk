# Questions: the splits of each benchmark as parquet files, and their statistics.


rule split:
    output:
        LAYOUT.split("{benchmark}", "{split}"),
    log:
        LAYOUT.log("data", "{benchmark}", "{split}"),
    priority: 95  # after the base models, which take much longer
    conda:
        CONDA
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        options=EXPERIMENT_OPTIONS,
        benchmark=benchmark_spec,
    message:
        "Write the {wildcards.split} split of {wildcards.benchmark}"
    shell:
        "srpo data {params.options} --benchmark {wildcards.benchmark} --split {wildcards.split} > {log} 2>&1"


rule statistics:
    input:
        splits=lambda wildcards: split_files(wildcards.benchmark),
    output:
        LAYOUT.statistics("{benchmark}"),
    log:
        LAYOUT.log("data", "{benchmark}", "statistics"),
    conda:
        CONDA
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        options=EXPERIMENT_OPTIONS,
        benchmark=benchmark_spec,
    message:
        "Describe {wildcards.benchmark}"
    shell:
        "srpo data {params.options} --benchmark {wildcards.benchmark} --statistics > {log} 2>&1"
