# The experiment with every name resolved, and its questions.


rule experiment:
    output:
        f"{RESULTS}/experiment.yaml",
    log:
        f"{RESULTS}/logs/experiment.log",
    priority: 200
    conda:
        "../envs/embedded.yaml"
    threads: 1
    resources:
        mem_mb=200,
        runtime=1,
    params:
        name=EXPERIMENT.name,
        config=json.dumps(config),
        resolved=EXPERIMENT.model_dump_json(),
    message:
        "Resolve experiment {params.name}"
    shell:
        "srpo experiment - --output {output} <<< {params.config:q} > {log} 2>&1"


rule split:
    input:
        experiment=ancient(rules.experiment.output),
    output:
        f"{RESULTS}/data/{{benchmark}}/{{split}}.parquet",
    log:
        f"{RESULTS}/logs/data/{{benchmark}}/{{split}}.log",
    priority: 150
    conda:
        "../envs/embedded.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        benchmark=lambda wildcards: EXPERIMENT.benchmarks[wildcards.benchmark].model_dump_json(),
    message:
        "Write the {wildcards.split} split of {wildcards.benchmark}"
    shell:
        "srpo data --experiment {input.experiment} --benchmark {wildcards.benchmark} --split {wildcards.split} "
        "> {log} 2>&1"


rule statistics:
    input:
        experiment=ancient(rules.experiment.output),
        splits=lambda wildcards: split_files(wildcards.benchmark),
    output:
        f"{RESULTS}/data/{{benchmark}}/statistics.json",
    log:
        f"{RESULTS}/logs/data/{{benchmark}}/statistics.log",
    conda:
        "../envs/embedded.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        benchmark=lambda wildcards: EXPERIMENT.benchmarks[wildcards.benchmark].model_dump_json(),
    message:
        "Describe {wildcards.benchmark}"
    shell:
        "srpo data --experiment {input.experiment} --benchmark {wildcards.benchmark} --statistics > {log} 2>&1"
