# Questions: the splits of each benchmark as parquet files, and statistics of the splits.


rule split:
    output:
        "<exp>/data/{data_set}/{split}.parquet",
    log:
        "<exp>/logs/data/{data_set}/{split}.log",
    benchmark:
        "<exp>/benchmarks/split/{data_set}.{split}.tsv"
    conda:
        "../envs/report.yaml"
    params:
        **settings("benchmark", "version"),
    message:
        "Write the {wildcards.split} split of {wildcards.data_set}"
    shell:
        "srpo split {output} {params:q} > {log} 2>&1"


rule statistics:
    input:
        lambda wildcards: splits(wildcards.data_set),
    output:
        "<exp>/data/{data_set}/statistics.json",
    log:
        "<exp>/logs/data/{data_set}/statistics.log",
    conda:
        "../envs/report.yaml"
    params:
        **settings("benchmark", "version"),
    message:
        "Describe {wildcards.data_set}"
    shell:
        "srpo statistics {output} {params:q} > {log} 2>&1"
