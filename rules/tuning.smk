# A search of hyperparameters: the best trial of each method. `tuned: NAME` in an experiment reads configs/tuned/NAME.yaml,
# so copy the result there to use it.


rule tune:
    input:
        [LAYOUT.run_files(run).summary for run in RUNS],
    output:
        LAYOUT.tuned,
    log:
        LAYOUT.log("tune"),
    conda:
        CONDA
    container:
        CONTAINER
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        experiment=RESOLVED,
    message:
        "Write the best hyperparameters to {output}"
    shell:
        f"srpo tune {EXPERIMENT_OPTIONS} > {{log}} 2>&1"
