# Training runs. Logs and checkpoints are side files on purpose: Snakemake deletes the declared outputs of a job before
# each start of the job, and the next attempt continues from the checkpoints.

# Minutes. A modelled clock does not measure time.
RUNTIME = 60
if EXPERIMENT.training.clock.kind != "modelled":
    RUNTIME += int(2 * max(EXPERIMENT.training.budget_seconds.values()) / 60)


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
    priority: -1  # gaps come first: a reader sees them before the hours are spent
    conda:
        TRAINING
    threads: THREADS
    resources:
        **DEVICES,
        runtime=RUNTIME,
        # a command that requeues the job at its time limit; a profile sets it
        requeue="",
    params:
        **settings("experiment", "model", "benchmark", "method", "training", "execution", "code", "version"),
    message:
        "Train {wildcards.model} on {wildcards.benchmark} with {wildcards.method}, seed {wildcards.seed}"
    shell:
        # exec: the scheduler's signals reach the trainer, not a shell that they would end
        "exec srpo attempt --log {log} --requeue='{resources.requeue}' -- srpo train {output.summary} {params:q}"
