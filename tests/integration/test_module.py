"""The workflow as a module of another one, with a prefix and without: planned, and truly run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from paths import ROOT
from synthetic import tiny_experiment

from srpo.experiment.compose import load_experiment

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


DEPLOYED = """
configfile: "config/config.yaml"


module srpo:
    snakefile:
        github("owner/srpo", path="workflow/Snakefile", tag="v0")
    config:
        config


use rule * from srpo
"""
"""What `snakedeploy deploy-workflow` writes."""


def snakemake(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snakemake", "--workflow-profile", "none", *arguments]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    variables = {**os.environ, "PATH": path, **environment}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def test_a_deployed_workflow_makes_everything_unasked(tmp_path: Path) -> None:
    """Snakemake reads it from a tag on GitHub; git is told that GitHub is a folder."""
    repository = tmp_path / "owner" / "srpo"
    for folder in ("rules", "workflow", "reports", "envs"):
        shutil.copytree(ROOT / folder, repository / folder)
    shutil.copy(ROOT / "Snakefile", repository)
    git = ["git", "-C", repository, "-c", "user.name=a", "-c", "user.email=a"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "a"], ["tag", "v0"]):
        subprocess.run([*git, *command], check=True)
    folder = tmp_path / "deployed"
    shutil.copytree(ROOT / "config", folder / "config")
    (folder / "Snakefile").write_text(DEPLOYED)
    planned = snakemake(
        folder,
        "--dry-run",
        "--quiet",
        "rules",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        GIT_CONFIG_COUNT="1",
        GIT_CONFIG_KEY_0=f"url.{tmp_path}/owner/.insteadOf",
        GIT_CONFIG_VALUE_0="https://github.com/owner/",
    )
    assert planned.returncode == 0, planned.stderr
    assert "write_report" in planned.stdout


@pytest.mark.parametrize("prefix", ["", "below/here"], ids=["no prefix", "prefix"])
def test_another_workflow_uses_this_one(prefix: str, tmp_path: Path) -> None:
    experiment = tiny_experiment()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"srpo": {**experiment, "results": "out"}}, sort_keys=False))
    statement = f"prefix:\n        {prefix!r}" if prefix else ""
    (tmp_path / "Snakefile").write_text(IMPORTER.format(snakefile=str(ROOT / "Snakefile"), prefix=statement))

    planned = snakemake(tmp_path, "--dry-run", "--quiet", "rules", "host")
    assert planned.returncode == 0, planned.stderr
    assert "srpo_write_report" in planned.stdout + planned.stderr
    assert len((planned.stdout + planned.stderr).splitlines()) < 50
    assert not (tmp_path / prefix / "out").exists()

    results = tmp_path / prefix / "out" / "tiny"
    split = results / "data" / "physics" / "train.parquet"
    targets = [str(path.relative_to(tmp_path)) for path in (split, results / "experiment.yaml")]
    run = snakemake(tmp_path, "--cores", "1", *targets)
    log = results / "logs" / "data" / "physics" / "train.log"
    assert run.returncode == 0, run.stderr + (log.read_text() if log.exists() else "")
    assert split.is_file()
    assert load_experiment(results / "experiment.yaml") == load_experiment(experiment)
