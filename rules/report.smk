# Tables, figures and the report from the files of all runs, in one process because starting one takes seconds; and MLflow.


# The resolved experiment, for the report and commands by hand. A run that read it would be trained again for a new title.
rule experiment:
    output:
        "<exp>/experiment.yaml",
        # no such file is there: another experiment is written again, also in copied results, of which nothing is recorded
        OUTDATED,
    log:
        "<exp>/logs/experiment.log",
    localrule: True
    params:
        text=resolved_text(EXPERIMENT),
    message:
        "Write the resolved experiment"
    shell:
        "printf '%s' {params.text:q} | tee {output:q} > /dev/null 2> {log}"


rule write_report:
    input:
        experiment=rules.experiment.output[0],
        evaluations=evaluations("evaluation.json"),
        gaps=GAPS,
        statistics=[f"<exp>/data/{name}/statistics.json" for name in DATA_SETS],
        contents=sorted([*REPORTS.rglob("[!.]*.*"), *CONFIGS.glob(f"{EXPERIMENT.name}.yaml")]),
    output:
        report=shown("<exp>/report.html", "Report"),
        caption="<exp>/report.rst",
        tables=[shown(f"<exp>/{table}.csv", "Tables") for table in TABLES],
        table_texts=[f"<exp>/{table}.{kind}" for table in TABLES for kind in ("md", "rst")],
        figures=[shown(f"<exp>/{figure}.png", "Figures") for figure in FIGURES],
        figure_texts=[f"<exp>/{figure}.{kind}" for figure in FIGURES for kind in ("svg", "csv", "rst")],
    log:
        "<exp>/logs/report.log",
    conda:
        "../envs/report.yaml"
    params:
        source=source_hash("analysis", *COMPUTING),
    message:
        "Write the tables, the figures and the report {output.report}"
    shell:
        "srpo report {input.experiment} > {log} 2>&1"


# The file is there if MLflow shows the runs. Results do not wait for MLflow: this rule alone fails, and is tried again.
rule mlflow:
    input:
        rules.write_report.output,
        experiment="<exp>/experiment.yaml",
    output:
        touch("<exp>/in_mlflow"),
    log:
        "<exp>/logs/mlflow.log",
    conda:
        "../envs/report.yaml"
    params:
        server=without_password(os.environ.get("MLFLOW_TRACKING_URI", "")),
    message:
        "Show the runs in MLflow"
    shell:
        "srpo track sync {input.experiment} > {log} 2>&1"
