# The experiment, checked before anything runs, and the options by which each job reads it.

import hashlib
import re
import subprocess
import sys

from srpo.ground.errors import SrpoError
from srpo.experiment.compose import check_same, experiment_file, load_experiment, resolved_text
from srpo.training.lengths import check_experiment
from srpo.ground.files import read_mapping, write_text
from srpo.ground.layout import Layout, check_root, check_writable

if not isinstance(RESULTS_ROOT, str) or not RESULTS_ROOT:
    raise WorkflowError(f"results = {RESULTS_ROOT!r}: give a folder, such as results=results")
if special := re.search(r"[^\w@%+=:,./~-]|^-", RESULTS_ROOT):  # rules give it to a shell
    without = "blanks" if special[0].isspace() else special[0]
    raise WorkflowError(f"results = {RESULTS_ROOT!r}: give a folder without {without}")

try:
    # as it was meant: Snakemake keeps the last of two keys, and reads 010 as 8; a module has its importer's files
    for file in [] if workflow.modifier.parent_modifier else workflow.configfiles:
        read_mapping(Path(file))
    EXPERIMENT = load_experiment(
        CONFIG or experiment_file("embedded"),
        where=ORIGIN if CONFIG else None,
    )
    if workflow.is_main_process:
        check_experiment(EXPERIMENT)
    LAYOUT = Layout(Path(RESULTS_ROOT) / EXPERIMENT.name)
    check_root(Path(with_prefix(LAYOUT.folder)).parent)
    check_writable(Path(with_prefix(LAYOUT.folder)))
    check_same(Path(with_prefix(LAYOUT.experiment)), EXPERIMENT)
except SrpoError as error:
    raise WorkflowError(str(error)) from None


def resolved_experiment():
    """Store the resolved experiment: its file, and the options by which a job finds it.

    Every job reads it. It is not the output of a rule: then every job would be downstream of it, and Snakemake does not
    check the parameters of jobs downstream of a job that runs, not even with ancient(), so a changed method would not be
    trained again. `onstart` cannot write it either, because it does not run in a module. Instead it is stored here under
    its hash, an environment variable names it, and each job copies it into the results folder (--resolved).
    """
    copy, text = with_prefix(LAYOUT.experiment), resolved_text(EXPERIMENT)
    stored = Path(".snakemake", "srpo", f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml").absolute()
    if not stored.exists():
        write_text(stored, text)
    variable = f"SRPO_EXPERIMENT_{re.sub(r'[^A-Za-z0-9]', '_', copy)}"
    os.environ[variable] = str(stored)
    return stored, f'--experiment {copy} --resolved "${variable}"'


STORED, EXPERIMENT_OPTIONS = resolved_experiment()

if workflow.is_main_process and EXPERIMENT.execution.verl_overrides:
    # in another process: an imported verl sets variables that all jobs would inherit
    checked = subprocess.run([sys.executable, "-m", "srpo", "experiment", STORED], capture_output=True, text=True)
    if checked.returncode:
        raise WorkflowError(checked.stderr.strip())
