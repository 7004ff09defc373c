# Tables, figures and the report, from the files of all runs, in one process, because starting one takes seconds.
# Captions are computed too: they name the number of seeds and the kind of interval. `mirror` copies the logs to MLflow.


rule write_report:
    input:
        evaluations=[path for model in EXPERIMENT.models for path in evaluations_of(model)],
        gaps=[LAYOUT.gap(*pair) for pair in GAPS],
        statistics=STATISTICS,
    output:
        report=with_caption(LAYOUT.report, "Report"),
        report_caption=LAYOUT.report_caption,
        tables=[with_caption(LAYOUT.table(table, "csv"), "Tables") for table in TABLES],
        table_texts=[LAYOUT.table(table, kind) for table in TABLES for kind in ("md", "rst")],
        # not among the tables: measured seconds differ between machines
        cost=[with_caption(LAYOUT.cost_table("csv", name), "Tables") for name in COST_TABLES],
        cost_texts=[LAYOUT.cost_table(kind, name) for name in COST_TABLES for kind in ("md", "rst")],
        figures=[with_caption(LAYOUT.figure(figure, "png"), "Figures") for figure in FIGURES],
        figure_texts=[LAYOUT.figure(figure, kind) for figure in FIGURES for kind in ("svg", "csv", "rst")],
    log:
        LAYOUT.log("report"),
    priority: 5
    conda:
        CONDA
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        options=EXPERIMENT_OPTIONS,
        resolved=EXPERIMENT.model_dump_json(),
        definition=report_definition(),
    message:
        "Write the tables, the figures and the report {output.report}"
    shell:
        "srpo report {params.options} > {log} 2>&1"


# Results do not depend on MLflow: if it cannot be reached, the job prints the error, and `srpo track sync` copies the
# logs later.
rule mirror:
    input:
        evaluations=[path for model in EXPERIMENT.models for path in evaluations_of(model)],
    output:
        touch(LAYOUT.in_mlflow),
    log:
        LAYOUT.log("mirror"),
    conda:
        CONDA
    resources:
        mem_mb=1000,
        runtime=60,
    params:
        folder=lambda wildcards: with_prefix(LAYOUT.folder),
    message:
        "Copy the logs to MLflow"
    shell:
        "srpo track sync {params.folder} > {log} 2>&1 || tail -n 1 {log} >&2"
