# Base models: miniatures are made here, other models are fetched or linked, and checked. `base.json` describes them.

BUILT = "|".join(re.escape(name) for name, model in BASE_MODELS.items() if not model.is_linked) or "none"
LINKED = "|".join(re.escape(name) for name, model in BASE_MODELS.items() if model.is_linked) or "none"


rule base_model:
    input:
        lambda wildcards: warm_start_data(wildcards.model),
    output:
        description=f"<exp>/models/{{model,{BUILT}}}/base.json",
        weights=f"<exp>/models/{{model,{BUILT}}}/model.safetensors",
    log:
        "<exp>/logs/models/{model}.log",
    benchmark:
        "<exp>/benchmarks/base_model/{model}.tsv"
    priority: 100
    conda:
        TRAINING
    resources:
        mem_mb=DEVICES["mem_mb"],
        runtime=60,
    params:
        model=setting("model"),
        version=setting("version"),
        data=lambda wildcards, input: [f"--data={path}" for path in input if path.endswith(".parquet")],
    message:
        "Make the base model {wildcards.model}"
    shell:
        "srpo model {output.description} {params.model:q} {params.version:q} {params.data} > {log} 2>&1"


# Weights of others stay where they are, in as many files as there are; only their description is declared.
use rule base_model as linked_model with:
    input:
        lambda wildcards: source_files(wildcards.model),
    output:
        description=f"<exp>/models/{{model,{LINKED}}}/base.json",
    message:
        "Link the base model {wildcards.model}"
