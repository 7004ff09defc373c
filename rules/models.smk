# Base models: miniatures are built and warm-started; other models are checked and described in base.json.


rule base_model:
    input:
        splits=lambda wildcards: warm_start_splits(wildcards.model),
    output:
        LAYOUT.model_description("{model}"),
    log:
        LAYOUT.log("models", "{model}"),
    priority: lambda wildcards: 100 + size_rank(wildcards.model)
    conda:
        CONDA
    container:
        CONTAINER
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
        f"srpo model {EXPERIMENT_OPTIONS} " "--model {wildcards.model} > {log} 2>&1"
