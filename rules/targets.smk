# Targets are checked before the cost is printed: Snakemake names one that no rule makes behind it, among other words.

from snakemake.cli import get_argument_parser

from srpo.inputs.mistakes import hint, nearest
from srpo.repository import CONFIGS


def check_in_matrix(target):
    """Patterns of output fit any name: this names the first part that no file of the experiment has."""
    evaluated = [*map(LAYOUT.run_files, RUNS), *(LAYOUT.base_files(*base) for base in BASES)]
    files = [path for each in evaluated for path in (each.evaluation, each.samples)]
    files += [*made_before_a_report(), *STATISTICS, *(LAYOUT.gap(*base) for base in BASES)]
    files += [LAYOUT.split(name, split) for name in DATA_SETS for split in ("train", "test")]
    there = [file.parts for file in files]
    for place, part in enumerate(Path(target).parts):
        names = dict.fromkeys(file[place] for file in there)
        there = [file for file in there if file[place] == part]
        if not there:
            what = f"{part} is not in the matrix of experiment {EXPERIMENT.name}"
            raise WorkflowError(f"{target}: {what}; there is {', '.join(names)}")


def check_targets(targets, rules):
    """``rules``: those that may be given by name."""
    known = [each.name for each in rules]
    made = [str(file) for each in workflow.rules for file in each.output if "{" not in str(file)]
    files = {path.stem: path for path in (CONFIGS / "experiments").glob("*.yaml") if path.stem != EXPERIMENT.name}
    for target in targets:
        if target in known or any(each.is_producer(target) for each in workflow.rules):
            if target not in {*known, *made}:
                check_in_matrix(target)
            continue
        other = next((stem for part in Path(target).parts if (stem := Path(part).stem) in files), None)
        near = nearest(target, [*known, *made])
        if target in [each.name for each in workflow.rules]:
            meant = "; as a rule of many files it goes behind --until"
        elif "=" in target:
            meant = "; put --config before it"
        elif other or not near and (other := nearest(target, files)):
            file = os.path.relpath(files[other])
            meant = f"; for the experiment {other} put --configfile {file} behind the targets"
        else:
            meant = hint(near)
        allowed = f"; give a file, such as {LAYOUT.report}, or a rule: {', '.join(known)}"
        raise WorkflowError(f"{target}: no rule makes it{meant or allowed}")


def check_of_rules(given, settings):
    """What is set for a rule that is not there has no effect; a word for a number ends in a traceback."""
    # a profile serves experiments with and without GPUs, which do not all have a rule evaluate_run
    known = dict.fromkeys([*(each.name for each in workflow.rules), "evaluate_run"])
    threads = {name: {"threads": value} for name, value in settings.overwrite_threads.items()}
    of_rules = {"--set-threads": threads, "--set-resources": settings.overwrite_resources}
    for name in ("allowed_rules", "consider_ancient", "groups", "preemptible_rules"):
        of_rules[f"--{name.replace('_', '-')}"] = dict.fromkeys(getattr(given, name) or (), {})
    of_rules["--batch"] = {given.batch.rulename: {}} if given.batch else {}
    for option, values in of_rules.items():
        if unknown := next((target for target in values if target not in known), None):
            meant = hint(nearest(unknown, known))
            raise WorkflowError(f"{option} {unknown}: no such rule{meant}; there is {', '.join(known)}")
    of_rules = {"--default-resources": {"": settings.default_resources or {}}} | of_rules
    for option, target, values in ((option, *of) for option, each in of_rules.items() for of in each.items()):
        for name in {"threads", "mem_mb", "disk_mb", "runtime", "gpu"} & values.keys():
            if (raw := str(getattr(values[name], "raw", values[name]) or "")).isidentifier():
                raise WorkflowError(f"{' '.join(filter(None, (option, target)))}: {name} = {raw}: give a number")


# a workflow that includes this one may have more rules
alone = str(workflow.current_basedir) == str(Path(workflow.main_snakefile).parent / "rules")
if alone and workflow.is_main_process and "snakemake" in Path(sys.argv[0]).parts:
    given = get_argument_parser().parse_known_args()[0]
    check_of_rules(given, workflow.resource_settings)
    check_targets(given.targets or [], [each for each in workflow.rules if not each.has_wildcards()])
    chosen = (given.until, given.omit_from, given.forcerun, given.prioritize)
    check_targets([target for targets in chosen for target in targets or []], [*workflow.rules])
