# avg@k of the checkpoints that the budgets selected, and of the untrained models; and, before any training, how much
# better an untrained model is when it is shown a correct rollout.


rule evaluate:
    input:
        unpack(starts_from),
        summary=rules.train.output.summary,
        weights=rules.train.output.weights,
    output:
        evaluation="<exp>/runs/{model}/{benchmark}/{method}/seed{seed}/evaluation.json",
        samples="<exp>/runs/{model}/{benchmark}/{method}/seed{seed}/samples.jsonl",
    log:
        "<exp>/logs/runs/{model}/{benchmark}/{method}/seed{seed}/evaluate.log",
    benchmark:
        "<exp>/benchmarks/evaluate/{model}/{benchmark}/{method}/seed{seed}.tsv"
    priority: 10
    conda:
        TRAINING
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=60,
    params:
        experiment=setting("experiment"),
        model=setting("model"),
        benchmark=setting("benchmark"),
        method=setting("method"),
        training=setting("training"),
        execution=setting("execution"),
        evaluation=setting("evaluation"),
        code=setting("code"),
        version=setting("version"),
    message:
        "Evaluate {wildcards.method}, seed {wildcards.seed}, of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "srpo evaluate {output.evaluation} {params:q} > {log} 2>&1"


rule evaluate_base:
    input:
        unpack(starts_from),
    output:
        evaluation="<exp>/base/{model}/{benchmark}/evaluation.json",
        samples="<exp>/base/{model}/{benchmark}/samples.jsonl",
    log:
        "<exp>/logs/base/{model}/{benchmark}.log",
    benchmark:
        "<exp>/benchmarks/evaluate_base/{model}/{benchmark}.tsv"
    priority: 10
    conda:
        TRAINING
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=60,
    params:
        model=setting("model"),
        benchmark=setting("benchmark"),
        training=setting("training"),
        execution=setting("execution"),
        evaluation=setting("evaluation"),
        code=setting("code"),
        version=setting("version"),
    message:
        "Evaluate the base model {wildcards.model} on {wildcards.benchmark}"
    shell:
        "srpo evaluate {output.evaluation} {params:q} > {log} 2>&1"


rule gap:
    input:
        unpack(starts_from),
    output:
        "<exp>/base/{model}/{benchmark}/gap.json",
    log:
        "<exp>/logs/gap/{model}/{benchmark}.log",
    benchmark:
        "<exp>/benchmarks/gap/{model}/{benchmark}.tsv"
    # before all runs, so that the answer is there before hours are spent
    priority: 80
    conda:
        TRAINING
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=60,
    params:
        model=setting("model"),
        benchmark=setting("benchmark"),
        training=setting("training"),
        execution=setting("execution"),
        code=setting("code"),
        version=setting("version"),
    message:
        "Measure whether self-distillation would help {wildcards.model} on {wildcards.benchmark}"
    shell:
        "srpo gap {output} {params:q} > {log} 2>&1"
