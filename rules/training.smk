# Training runs. Logs and checkpoints are side files on purpose: Snakemake deletes the declared outputs of
# a job that fails, and the next attempt resumes from them.


rule train:
    input:
        train=f"{RESULTS}/data/{{benchmark}}/train.parquet",
        test=f"{RESULTS}/data/{{benchmark}}/test.parquet",
        base=rules.base_model.output,
    output:
        f"{RESULTS}/runs/{{model}}/{{benchmark}}/{{method}}/seed{{seed}}/summary.json",
    log:
        f"{RESULTS}/logs/runs/{{model}}/{{benchmark}}/{{method}}/seed{{seed}}/train.log",
    priority: lambda wildcards: 20 + size_rank(wildcards.model)
    retries: 2
    conda:
        CONDA
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=RUNTIME,
    params:
        experiment=RESOLVED,
        spec=run_spec,
    message:
        "Train {wildcards.model} on {wildcards.benchmark} with {wildcards.method}, seed {wildcards.seed}"
    shell:
        "srpo train --experiment {params.experiment} --model {wildcards.model} --benchmark {wildcards.benchmark} "
        "--method {wildcards.method} --seed {wildcards.seed} > {log} 2>&1"
