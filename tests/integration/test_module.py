"""The workflow as a module of another one, with a prefix and without: planned, and truly run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from paths import ROOT
from synthetic import tiny_experiment

from srpo.compose import load_experiment

pytestmark = pytest.mark.fault

IMPORTER = """
configfile: "config.yaml"


module srpo:
    snakefile:
        {snakefile!r}
    config:
        config["srpo"]
    {prefix}


use rule * from srpo as srpo_*


rule all:
    default_target: True
    input:
        rules.srpo_all.input,
"""


@pytest.mark.parametrize("prefix", ["", "below/here"], ids=["no prefix", "prefix"])
def test_another_workflow_uses_this_one(prefix: str, tmp_path: Path) -> None:
    experiment = tiny_experiment()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"srpo": {**experiment, "results": "out"}}, sort_keys=False))
    statement = f"prefix:\n        {prefix!r}" if prefix else ""
    (tmp_path / "Snakefile").write_text(IMPORTER.format(snakefile=str(ROOT / "Snakefile"), prefix=statement))

    def snakemake(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "snakemake", "--workflow-profile", "none", *arguments]
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        return subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )

    planned = snakemake("--dry-run", "--quiet", "rules")
    assert planned.returncode == 0, planned.stderr
    assert "srpo_write_report" in planned.stdout + planned.stderr
    assert not (tmp_path / prefix / "out").exists()

    results = tmp_path / prefix / "out" / "tiny"
    split = results / "data" / "physics" / "train.parquet"
    run = snakemake("--cores", "1", str(split.relative_to(tmp_path)))
    log = results / "logs" / "data" / "physics" / "train.log"
    assert run.returncode == 0, run.stderr + (log.read_text() if log.exists() else "")
    assert split.is_file()
    assert load_experiment(results / "experiment.yaml") == load_experiment(experiment)
