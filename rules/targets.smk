# Targets are checked before the cost is printed: Snakemake names one that no rule makes behind it, among other words.

from snakemake.cli import get_argument_parser

from srpo.inputs.mistakes import hint, nearest


def check_targets(targets):
    made = [name for each in workflow.rules for name in (each.name, *map(str, each.output)) if "{" not in name]
    for target in targets:
        if not any(target == each.name or each.is_producer(target) for each in workflow.rules):
            meant = "; put --config before it" if "=" in target else hint(nearest(target, made))
            rules = ", ".join(each.name for each in workflow.rules)
            allowed = f"; give a file, such as {LAYOUT.report}, or a rule: {rules}"
            raise WorkflowError(f"{target}: no rule makes it{meant or allowed}")


# a workflow that includes this one may have more rules
alone = str(workflow.current_basedir) == str(Path(workflow.main_snakefile).parent / "rules")
if alone and workflow.is_main_process and "snakemake" in Path(sys.argv[0]).parts:
    given = get_argument_parser().parse_known_args()[0]
    chosen = (given.targets, given.until, given.omit_from, given.forcerun)
    check_targets([target for targets in chosen for target in targets or []])
