# Base models: miniatures are built and warm-started, others are checked and described.


rule base_model:
    input:
        splits=lambda wildcards: [
            str(LAYOUT.split(benchmark, "train")) for benchmark in warm_start_benchmarks(wildcards.model)
        ],
    output:
        f"{RESULTS}/models/{{model}}/base.json",
    log:
        f"{RESULTS}/logs/models/{{model}}.log",
    priority: lambda wildcards: 100 + size_rank(wildcards.model)
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=2000,
        runtime=60,
    params:
        experiment=RESOLVED,
        model=lambda wildcards: EXPERIMENT.models[wildcards.model].model_dump_json(exclude={"title"}),
    message:
        "Make the base model {wildcards.model}"
    shell:
        "srpo model --experiment {params.experiment} --model {wildcards.model} > {log} 2>&1"
