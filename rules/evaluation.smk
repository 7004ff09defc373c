# avg@k of the checkpoints that the budgets selected, resampled, and of the untrained models; and, before any training,
# how much better these are when they are shown a correct rollout.

if not EVALUATES_ITSELF:

    rule evaluate_run:
        input:
            test=lambda wildcards: LAYOUT.split(data_of(wildcards), "test"),
            summary=rules.train.output[0],
        output:
            evaluation=ANY_RUN.evaluation,
            samples=ANY_RUN.samples,
        log:
            LAYOUT.log("runs", RUN_PATH, "evaluate"),
        priority: 10
        # a rollout server may fail
        retries: 2 if workflow.is_main_process else 0
        conda:
            CONDA
        threads: DEVICES["threads"]
        resources:
            gpu=DEVICES["gpu"],
            mem_mb=DEVICES["mem_mb"],
            runtime=60,
        params:
            options=EXPERIMENT_OPTIONS,
            sampling=EXPERIMENT.evaluation.model_dump_json(),
        message:
            "Evaluate {wildcards.method}, seed {wildcards.seed}, of {wildcards.model} on {wildcards.benchmark}"
        shell:
            "srpo evaluate {params.options} --model {wildcards.model} --benchmark {wildcards.benchmark} "
            "--method {wildcards.method} --seed {wildcards.seed} > {log} 2>&1"


rule evaluate_base:
    input:
        test=lambda wildcards: LAYOUT.split(data_of(wildcards), "test"),
        base=rules.base_model.output,
        lengths=lambda wildcards: LAYOUT.lengths(data_of(wildcards), wildcards.model),
    output:
        evaluation=ANY_BASE.evaluation,
        samples=ANY_BASE.samples,
    log:
        LAYOUT.log("base", "{model}", "{benchmark}"),
    priority: 10
    retries: 2 if workflow.is_main_process and not EVALUATES_ITSELF else 0
    conda:
        CONDA
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=60,
    params:
        options=EXPERIMENT_OPTIONS,
        sampling=EXPERIMENT.evaluation.model_dump_json(),
        response_length=EXPERIMENT.training.max_response_length,
    message:
        "Evaluate the base model {wildcards.model} on {wildcards.benchmark}"
    shell:
        "srpo evaluate {params.options} --model {wildcards.model} --benchmark {wildcards.benchmark} > {log} 2>&1"


rule gap:
    input:
        train=lambda wildcards: LAYOUT.split(data_of(wildcards), "train"),
        base=rules.base_model.output,
        lengths=lambda wildcards: LAYOUT.lengths(data_of(wildcards), wildcards.model),
    output:
        LAYOUT.gap("{model}", "{benchmark}"),
    log:
        LAYOUT.log("gap", "{model}", "{benchmark}"),
    # before all runs, so that the answer is there before hours are spent
    priority: 80
    retries: 2 if workflow.is_main_process and not EVALUATES_ITSELF else 0
    conda:
        CONDA
    threads: DEVICES["threads"]
    resources:
        gpu=DEVICES["gpu"],
        mem_mb=DEVICES["mem_mb"],
        runtime=60,
    params:
        options=EXPERIMENT_OPTIONS,
        sampling=[
            EXPERIMENT.training.temperature,
            EXPERIMENT.training.rollouts_per_question,
            EXPERIMENT.training.max_response_length,
            EXPERIMENT.training.max_reprompt_len,
        ],
    message:
        "Measure whether self-distillation would help {wildcards.model} on {wildcards.benchmark}"
    shell:
        "srpo gap {params.options} --model {wildcards.model} --benchmark {wildcards.benchmark} > {log} 2>&1"
