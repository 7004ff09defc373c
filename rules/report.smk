# Tables, figures and the report, from the files of all runs. Captions are computed too: they say from how many seeds
# and with which intervals.


rule tables:
    input:
        evaluations=EVALUATIONS,
        statistics=STATISTICS,
    output:
        csv=[captioned(f"{RESULTS}/tables/{table}.csv", "Tables") for table in TABLES],
        texts=expand(f"{RESULTS}/tables/{{table}}.{{kind}}", table=TABLES, kind=["md", "tex", "rst"]),
        # apart from the tables: it holds measured seconds, which differ from machine to machine
        cost=captioned(f"{RESULTS}/cost/cost.csv", "Tables"),
        cost_texts=expand(f"{RESULTS}/cost/cost.{{kind}}", kind=["md", "tex", "rst"]),
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
        png=[captioned(f"{RESULTS}/figures/{figure}.png", "Figures") for figure in FIGURES],
        texts=expand(f"{RESULTS}/figures/{{figure}}.{{kind}}", figure=FIGURES, kind=["svg", "csv", "rst"]),
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
        captioned(f"{RESULTS}/report.html", "Report"),
        f"{RESULTS}/report.rst",
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
        "Write the report {output[0]}"
    shell:
        "srpo report --experiment {params.experiment} --only html > {log} 2>&1"
