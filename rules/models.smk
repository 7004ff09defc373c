# Base models: toys are made here, other models are fetched or linked, and checked. `base.json` describes them.

BUILT = "|".join(name for name, model in BASE_MODELS.items() if not model.is_linked) or "none"
LINKED = "|".join(name for name, model in BASE_MODELS.items() if model.is_linked) or "none"
LOCAL = {name: model.path.expanduser() for name, model in BASE_MODELS.items() if model.kind == "local"}


rule base_model:
    input:
        data=warm_start_data,
    output:
        description=f"<exp>/models/{{model,{BUILT}}}/base.json",
        weights=f"<exp>/models/{{model,{BUILT}}}/model.safetensors",
    log:
        "<exp>/logs/models/{model}.log",
    benchmark:
        "<exp>/benchmarks/base_model/{model}.tsv"
    conda:
        TRAINING
    resources:
        mem_mb=MEMORY,
        runtime=60,
    params:
        **settings("model", "version"),
        data=lambda wildcards, input: [f"--data={path}" for path in input.get("data", [])],
    message:
        "Make the base model {wildcards.model}"
    shell:
        "srpo model {output.description} {params.model:q} {params.version:q} {params.data} > {log} 2>&1"


# Weights of others stay where they are, in as many files as there are; only their description is declared.
use rule base_model as linked_model with:
    input:
        lambda wildcards: checkpoint_files(LOCAL[wildcards.model]) if wildcards.model in LOCAL else [],
    output:
        description=f"<exp>/models/{{model,{LINKED}}}/base.json",
    resources:
        mem_mb=4000,
        runtime=60,
    message:
        "Link the base model {wildcards.model}"
