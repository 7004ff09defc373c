# avg@k of untrained models and, in one job because a server takes minutes to start, of the budgets' checkpoints; and the gap.


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
    conda:
        TRAINING
    threads: THREADS
    resources:
        **DEVICES,
        runtime=60,
    params:
        **settings("model", "benchmark", "training", "execution", "evaluation", "code", "version"),
    message:
        "Evaluate the base model {wildcards.model} on {wildcards.benchmark}"
    shell:
        "srpo evaluate {output.evaluation} {params:q} > {log} 2>&1"


use rule evaluate_base as evaluate with:
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
    params:
        **settings(
            "experiment", "model", "benchmark", "method", "training", "execution", "evaluation", "code", "version"
        ),
    message:
        "Evaluate {wildcards.method}, seed {wildcards.seed}, of {wildcards.model} on {wildcards.benchmark}"


rule gap:
    input:
        unpack(starts_from),
    output:
        "<exp>/base/{model}/{benchmark}/gap.json",
    log:
        "<exp>/logs/gap/{model}/{benchmark}.log",
    benchmark:
        "<exp>/benchmarks/gap/{model}/{benchmark}.tsv"
    conda:
        TRAINING
    threads: THREADS
    resources:
        **DEVICES,
        runtime=60,
    params:
        **settings("model", "benchmark", "training", "execution", "code", "version"),
    message:
        "Measure whether a shown sibling helps {wildcards.model} on {wildcards.benchmark}"
    shell:
        "srpo gap {output} {params:q} > {log} 2>&1"
