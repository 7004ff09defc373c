# avg@k of the checkpoints that the budgets selected, sampled anew, and of the untrained models.


rule evaluate_run:
    input:
        test=f"{RESULTS}/data/{{benchmark}}/test.parquet",
        summary=rules.train.output,
    output:
        evaluation=f"{RESULTS}/runs/{{model}}/{{benchmark}}/{{method}}/seed{{seed}}/evaluation.json",
        samples=f"{RESULTS}/runs/{{model}}/{{benchmark}}/{{method}}/seed{{seed}}/samples.jsonl",
    log:
        f"{RESULTS}/logs/runs/{{model}}/{{benchmark}}/{{method}}/seed{{seed}}/evaluate.log",
    priority: 10
    conda:
        CONDA
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=60,
    params:
        experiment=RESOLVED,
        sampling=EXPERIMENT.evaluation.model_dump_json(),
    message:
        "Evaluate {wildcards.method}, seed {wildcards.seed}, of {wildcards.model} on {wildcards.benchmark}"
    shell:
        "srpo evaluate --experiment {params.experiment} --model {wildcards.model} --benchmark {wildcards.benchmark} "
        "--method {wildcards.method} --seed {wildcards.seed} > {log} 2>&1"


rule evaluate_base:
    input:
        test=f"{RESULTS}/data/{{benchmark}}/test.parquet",
        base=rules.base_model.output,
    output:
        evaluation=f"{RESULTS}/base/{{model}}/{{benchmark}}/evaluation.json",
        samples=f"{RESULTS}/base/{{model}}/{{benchmark}}/samples.jsonl",
    log:
        f"{RESULTS}/logs/base/{{model}}/{{benchmark}}.log",
    priority: 10
    conda:
        CONDA
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=60,
    params:
        experiment=RESOLVED,
        sampling=EXPERIMENT.evaluation.model_dump_json(),
        lengths=[EXPERIMENT.training.max_prompt_length, EXPERIMENT.training.max_response_length],
    message:
        "Evaluate the base model {wildcards.model} on {wildcards.benchmark}"
    shell:
        "srpo evaluate --experiment {params.experiment} --model {wildcards.model} --benchmark {wildcards.benchmark} "
        "> {log} 2>&1"
