# Training runs. Logs and checkpoints are side files on purpose: Snakemake deletes the declared outputs of a job before
# each start of the job, and the next attempt continues from the checkpoints.


rule train:
    input:
        unpack(starts_from),
    output:
        summary="<exp>/runs/{model}/{benchmark}/{method}/seed{seed}/summary.json",
        weights=directory("<exp>/runs/{model}/{benchmark}/{method}/seed{seed}/weights"),
    log:
        "<exp>/logs/runs/{model}/{benchmark}/{method}/seed{seed}/train.log",
    benchmark:
        "<exp>/benchmarks/train/{model}/{benchmark}/{method}/seed{seed}.tsv"
    priority: 20
    conda:
        TRAINING
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=RUNTIME,
        # a command that requeues the job at its time limit; a profile sets it
        requeue="",
    params:
        experiment=setting("experiment"),
        model=setting("model"),
        benchmark=setting("benchmark"),
        method=setting("method"),
        training=setting("training"),
        execution=setting("execution"),
        code=setting("code"),
        version=setting("version"),
    message:
        "Train {wildcards.model} on {wildcards.benchmark} with {wildcards.method}, seed {wildcards.seed}"
    shell:
        # exec: the scheduler's signals reach the trainer, not a shell that they would end
        "exec srpo attempt --log {log} --requeue='{resources.requeue}' -- srpo train {output.summary} {params:q}"
