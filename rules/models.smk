# Base models: miniatures are built and warm-started; other models are checked and described in base.json. Then the
# lengths of all prompts with each model's tokenizer.


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
    resources:
        mem_mb=lambda wildcards: process_memory_mb(BASE_MODELS[wildcards.model]),
        runtime=60,
    params:
        options=EXPERIMENT_OPTIONS,
        model=lambda wildcards: BASE_MODELS[wildcards.model].model_dump_json(exclude={"title"}),
    message:
        "Make the base model {wildcards.model}"
    shell:
        "srpo model {params.options} --model {wildcards.model} > {log} 2>&1"


# Which prompts are too long depends on the model's tokenizer. Runs need this file, so that a question that is too long
# stops them before they start; its priority is above theirs.
rule lengths:
    input:
        splits=lambda wildcards: split_files(wildcards.benchmark),
        base=rules.base_model.output,
    output:
        LAYOUT.lengths("{benchmark}", "{model}"),
    log:
        LAYOUT.log("data", "{benchmark}", "lengths", "{model}"),
    priority: 90
    conda:
        CONDA
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        options=EXPERIMENT_OPTIONS,
        limits=[EXPERIMENT.training.max_prompt_length, EXPERIMENT.training.overlong_prompts],
    message:
        "Check the lengths of {wildcards.benchmark} for {wildcards.model}"
    shell:
        "srpo data {params.options} --benchmark {wildcards.benchmark} --lengths {wildcards.model} > {log} 2>&1"
