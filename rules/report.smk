# Tables, figures and the report, from the files of all runs.


rule tables:
    input:
        evaluations=EVALUATIONS,
        statistics=STATISTICS,
    output:
        csv=[
            report(f"{RESULTS}/tables/{table}.csv", caption=f"../reports/captions/{table}.rst", category="Tables")
            for table in TABLES
        ],
        markdown=expand(f"{RESULTS}/tables/{{table}}.md", table=TABLES),
        # apart from the tables: it holds measured seconds, which differ from machine to machine
        cost=report(f"{RESULTS}/cost/cost.csv", caption="../reports/captions/cost.rst", category="Tables"),
        cost_markdown=f"{RESULTS}/cost/cost.md",
    log:
        f"{RESULTS}/logs/tables.log",
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        experiment=RESOLVED,
        resolved=EXPERIMENT.model_dump_json(),
    message:
        "Write the tables"
    shell:
        "srpo report --experiment {params.experiment} --only tables > {log} 2>&1"


rule figures:
    input:
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
        CONDA
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        experiment=RESOLVED,
        resolved=EXPERIMENT.model_dump_json(),
    message:
        "Draw the figures"
    shell:
        "srpo report --experiment {params.experiment} --only figures > {log} 2>&1"


rule html_report:
    input:
        tables=rules.tables.output,
        figures=rules.figures.output,
        evaluations=EVALUATIONS,
        statistics=STATISTICS,
    output:
        f"{RESULTS}/report.html",
    log:
        f"{RESULTS}/logs/report.log",
    conda:
        CONDA
    threads: 1
    resources:
        mem_mb=1000,
        runtime=10,
    params:
        experiment=RESOLVED,
        resolved=EXPERIMENT.model_dump_json(),
    message:
        "Write the report {output}"
    shell:
        "srpo report --experiment {params.experiment} --only html > {log} 2>&1"
