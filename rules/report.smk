# Tables, figures and the report from the files of all runs, in one process because starting one takes seconds; and MLflow.


# The resolved experiment, which the report and all commands by hand read. It is no input of a run: a changed title
# would train every run again.
rule experiment:
    output:
        "<exp>/experiment.yaml",
    log:
        "<exp>/logs/experiment.log",
    params:
        text=resolved_text(EXPERIMENT),
    message:
        "Write the resolved experiment"
    shell:
        "printf '%s' {params.text:q} > {output} 2> {log}"


rule write_report:
    input:
        experiment="<exp>/experiment.yaml",
        evaluations=evaluations("evaluation.json"),
        gaps=GAPS,
        statistics=[f"<exp>/data/{name}/statistics.json" for name in DATA_SETS],
    output:
        report=shown("<exp>/report.html", "Report"),
        caption="<exp>/report.rst",
        tables=[shown(f"<exp>/tables/{table}.csv", "Tables") for table in TABLES],
        table_texts=[f"<exp>/tables/{table}.{kind}" for table in TABLES for kind in ("md", "rst")],
        # not among the tables: measured seconds differ between machines
        cost=[shown(f"<exp>/cost/{table}.csv", "Tables") for table in COST_TABLES],
        cost_texts=[f"<exp>/cost/{table}.{kind}" for table in COST_TABLES for kind in ("md", "rst")],
        figures=[shown(f"<exp>/figures/{figure}.png", "Figures") for figure in FIGURES],
        figure_texts=[f"<exp>/figures/{figure}.{kind}" for figure in FIGURES for kind in ("svg", "csv", "rst")],
    log:
        "<exp>/logs/report.log",
    priority: 5
    conda:
        "../envs/report.yaml"
    params:
        folder=lambda wildcards, output: Path(output.report).parent,
        claims=digest(REPORTS / "outline.yaml", REPORTS / "claims.yaml"),
        version=srpo.__version__,
    message:
        "Write the tables, the figures and the report {output.report}"
    shell:
        "srpo report {params.folder} > {log} 2>&1"


# The file is there if MLflow shows the runs. Results do not wait for MLflow: this rule alone fails, and is tried again.
rule mlflow:
    input:
        experiment="<exp>/experiment.yaml",
        evaluations=evaluations("evaluation.json"),
    output:
        touch("<exp>/in_mlflow"),
    log:
        "<exp>/logs/mlflow.log",
    priority: 4
    conda:
        "../envs/report.yaml"
    params:
        folder=lambda wildcards, output: Path(output[0]).parent,
    message:
        "Show the runs in MLflow"
    shell:
        "srpo track sync {params.folder} > {log} 2>&1"
