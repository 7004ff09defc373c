# Training runs. Logs and checkpoints are side files on purpose: Snakemake deletes the declared outputs and logs of
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
    # not in a scheduler's job: the Snakemake that runs there would retry, too, within each retry of the one outside
    retries: 2 if workflow.is_main_process else 0
    conda:
        CONDA
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=RUNTIME,
        # a command that gives a job which ran out of time back to its scheduler; a profile sets it
        requeue="",
    params:
        experiment=RESOLVED,
        spec=run_spec,
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    message:
        "Train {wildcards.model} on {wildcards.benchmark} with {wildcards.method}, seed {wildcards.seed}"
    shell:
        # exec: the scheduler's signals reach it, not a shell that they would end
        "exec srpo attempt --folder {params.folder} --log {log} --requeue='{resources.requeue}' -- "
        "srpo train --experiment {params.experiment} --model {wildcards.model} --benchmark {wildcards.benchmark} "
        "--method {wildcards.method} --seed {wildcards.seed}"
