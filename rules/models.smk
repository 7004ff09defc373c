# Base models: miniatures are made here, other models are fetched or linked, and checked. `base.json` describes them.

BUILT = [name for name, model in BASE_MODELS.items() if not model.is_linked]
LINKED = [name for name, model in BASE_MODELS.items() if model.is_linked]


rule base_model:
    input:
        lambda wildcards: warm_start_data(wildcards.model),
    output:
        description="<exp>/models/{model}/base.json",
        weights="<exp>/models/{model}/model.safetensors",
    log:
        "<exp>/logs/models/{model}.log",
    benchmark:
        "<exp>/benchmarks/base_model/{model}.tsv"
    wildcard_constraints:
        model="|".join(map(re.escape, BUILT)) or "none",
    priority: 100
    conda:
        TRAINING
    resources:
        mem_mb=DEVICES["mem_mb"],
        runtime=60,
    params:
        model=setting("model"),
        version=setting("version"),
        data=lambda wildcards, input: [f"--data={path}" for path in input],
    message:
        "Make the base model {wildcards.model}"
    shell:
        "srpo model {output.description} {params.model:q} {params.version:q} {params.data} > {log} 2>&1"


# Weights of others stay where they are, in as many files as there are; only their description is declared.
rule linked_model:
    input:
        lambda wildcards: source_files(wildcards.model),
    output:
        "<exp>/models/{model}/base.json",
    log:
        "<exp>/logs/models/{model}.log",
    wildcard_constraints:
        model="|".join(map(re.escape, LINKED)) or "none",
    priority: 100
    conda:
        TRAINING
    resources:
        mem_mb=1000,
        runtime=60,
    params:
        model=setting("model"),
        version=setting("version"),
    message:
        "Link the base model {wildcards.model}"
    shell:
        "srpo model {output} {params:q} > {log} 2>&1"
