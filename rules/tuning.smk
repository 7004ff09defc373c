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
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        options=EXPERIMENT_OPTIONS,
    message:
        "Write the best hyperparameters to {output}"
    shell:
        "srpo tune {params.options} > {log} 2>&1"
