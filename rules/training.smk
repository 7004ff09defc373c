# Training runs. Logs and checkpoints are side files on purpose: Snakemake deletes the declared outputs and logs of
# a job that fails, and the next attempt resumes from them.
#
# Without GPUs a run evaluates its checkpoints when it ends, because starting a process for that takes as long as the
# evaluation. On GPUs that is a job of its own, with other servers and another time limit. A search needs none.
EVALUATES_ITSELF = not ON_GPUS and not EXPERIMENT.is_search


rule train:
    input:
        train=train_split,
        test=lambda wildcards: LAYOUT.split(data_of(wildcards), "test"),
        base=lambda wildcards: LAYOUT.model_description(base_of(wildcards)),
        lengths=lambda wildcards: LAYOUT.lengths(data_of(wildcards), base_of(wildcards)),
    output:
        ANY_RUN.summary,
        evaluated=[ANY_RUN.evaluation, ANY_RUN.samples] if EVALUATES_ITSELF else [],
    log:
        LAYOUT.log("runs", RUN_PATH, "train"),
    priority: lambda wildcards: 20 + size_rank(wildcards.model)
    # not in a scheduler's job: the Snakemake inside would retry as well, within each retry of the one outside
    retries: 2 if workflow.is_main_process else 0
    conda:
        CONDA
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=RUNTIME,
        # a command that requeues the job at its time limit; a profile sets it
        requeue="",
    params:
        options=EXPERIMENT_OPTIONS,
        spec=run_spec,
        sampling=EXPERIMENT.evaluation.model_dump_json() if EVALUATES_ITSELF else None,
        evaluate="--evaluate" if EVALUATES_ITSELF else "",
        folder=lambda wildcards, output: str(Path(output[0]).parent),
    message:
        "Train {wildcards.model} on {wildcards.benchmark} with {wildcards.method}, seed {wildcards.seed}"
    shell:
        # exec: the scheduler's signals reach it, not a shell that they would end
        "exec srpo attempt --folder {params.folder} --log {log} --requeue='{resources.requeue}' -- "
        "srpo train {params.options} --model {wildcards.model} --benchmark {wildcards.benchmark} "
        "--method {wildcards.method} --seed {wildcards.seed} {params.evaluate}"
