# Tables, figures and the report, from the files of all runs.


rule tables:
    input:
        experiment=rules.experiment.output,
        evaluations=EVALUATIONS,
        statistics=STATISTICS,
    output:
        csv=[
            report(f"{RESULTS}/tables/{table}.csv", caption=f"../reports/captions/{table}.rst", category="Tables")
            for table in TABLES
        ],
        markdown=expand(f"{RESULTS}/tables/{{table}}.md", table=TABLES),
    log:
        f"{RESULTS}/logs/tables.log",
    conda:
        "../envs/embedded.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    message:
        "Write the tables"
    shell:
        "srpo report tables --experiment {input.experiment} > {log} 2>&1"


rule figures:
    input:
        experiment=rules.experiment.output,
        evaluations=EVALUATIONS,
    output:
        png=[
            report(f"{RESULTS}/figures/{figure}.png", caption=f"../reports/captions/{figure}.rst", category="Figures")
            for figure in FIGURES
        ],
        svg=expand(f"{RESULTS}/figures/{{figure}}.svg", figure=FIGURES),
    log:
        f"{RESULTS}/logs/figures.log",
    conda:
        "../envs/embedded.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    message:
        "Draw the figures"
    shell:
        "srpo report figures --experiment {input.experiment} > {log} 2>&1"


rule html_report:
    input:
        experiment=rules.experiment.output,
        tables=rules.tables.output,
        figures=rules.figures.output,
        evaluations=EVALUATIONS,
        statistics=STATISTICS,
    output:
        f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/report.log",
    conda:
        "../envs/embedded.yaml"
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    message:
        "Write the report {output}"
    shell:
        "srpo report html --experiment {input.experiment} > {log} 2>&1"
