"""The command line: one verb per stage. The workflow's rules call it and so can you.

What makes results takes the resolved experiment that ``srpo experiment`` wrote; the folder it lies in is the
experiment's results directory, and all other paths follow from it (docs/architecture.md).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from srpo.errors import SrpoError
from srpo.layout import Layout, check_writable
from srpo.training.interruption import Interrupted, job_end

if TYPE_CHECKING:
    from srpo.config import Experiment, RunId

T = TypeVar("T")

REPORT_PARTS = ("tables", "figures", "html")

CLEAR = "\x1b[H\x1b[J"
"""What empties a terminal."""

# A verb imports what it needs itself: torch and verl take seconds, `srpo --help` should not.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb.

    Returns:
        The exit status: 0, 2 for a mistake the user can mend, 75 (EX_TEMPFAIL) when a run stopped early with a
        checkpoint, 130 when interrupted; of ``attempt`` its command's.
    """
    options = make_parser().parse_args(arguments)
    try:
        return options.verb(options) or 0
    except SrpoError as error:
        print(f"srpo: error: {error}", file=sys.stderr)
        return 2
    except Interrupted as reason:
        print(f"srpo: {reason}", file=sys.stderr)
        return os.EX_TEMPFAIL
    except KeyboardInterrupt:
        print("srpo: interrupted", file=sys.stderr)
        return 130


# ---------------------------------------------------------------- verbs


def resolve_experiment(options: argparse.Namespace) -> None:
    """Check an experiment and print or write it with every name resolved and every default filled in."""
    from srpo.compose import experiment_file, load_experiment

    experiment = load_experiment(_read_standard_input() if options.file == "-" else experiment_file(options.file))
    if options.output is None:
        print(resolved_text(experiment), end="")
        return
    check_writable(options.output.parent)
    write_resolved(experiment, options.output)


def plan(options: argparse.Namespace) -> None:
    """Say what an experiment takes before it is started: runs, steps, hours, disk, memory, and what that assumes."""
    from srpo.compose import experiment_file, load_experiment
    from srpo.plan import make_plan, render, shortages

    if options.nodes < 1:
        raise SrpoError(f"--nodes {options.nodes}: at least 1")
    if not 0 < options.gpu_memory < float("inf"):
        raise SrpoError(f"--gpu-memory {options.gpu_memory}: above 0")
    experiment = load_experiment(experiment_file(options.experiment or options.file))
    print(render(make_plan(experiment, options.nodes)), end="")
    for line in shortages(experiment, options.gpu_memory * 1e9):
        print(f"srpo: warning: {line}", file=sys.stderr)


def make_data(options: argparse.Namespace) -> None:
    """Write one split of a benchmark, or the statistics of the splits that exist."""
    experiment, layout = _open(options)
    benchmark = _named(experiment.benchmarks, "benchmark", options.benchmark)

    from srpo.benchmarks import splits

    if options.split:
        questions = splits.build_split(benchmark, options.split, options.mirror)
        splits.write_split(layout.split(benchmark.name, options.split), questions, options.split)
        return

    from srpo.files import write_json
    from srpo.tracking import mirrored

    paths = {name: layout.split(benchmark.name, name) for name in ("train", "test")}
    written = {name: splits.read_split(path) for name, path in paths.items() if path.exists()}
    if not written:
        raise SrpoError(f"{paths['test']}: missing; make it with srpo data --split test")
    write_json(layout.statistics(benchmark.name), splits.split_statistics(benchmark, written))
    with mirrored(layout.folder) as mirror:
        mirror.sync_data(benchmark.name)


def make_model(options: argparse.Namespace) -> None:
    """Build or fetch a base model."""
    experiment, layout = _open(options)
    model = _named(experiment.models, "model", options.model)

    from srpo.models import build_model
    from srpo.tracking import mirrored

    trained = {run.benchmark for run in experiment.runs()}
    benchmarks = [benchmark for name, benchmark in experiment.bases() if name == model.name and benchmark in trained]
    splits = {benchmark: layout.split(benchmark, "train") for benchmark in benchmarks}
    build_model(model, layout.model(model.name), splits)
    with mirrored(layout.folder) as mirror:
        mirror.sync_model(model.name)


def train(options: argparse.Namespace) -> None:
    """Train one run, from where it stopped if it was interrupted."""
    experiment, layout = _open(options)
    run = _run(experiment, options)
    spec = experiment.run(run)
    _require(layout.split(run.benchmark, "train"), f"srpo data --benchmark {run.benchmark} --split train")
    _require(layout.split(run.benchmark, "test"), f"srpo data --benchmark {run.benchmark} --split test")
    _require(layout.model(run.model) / "base.json", f"srpo model --model {run.model}")

    from srpo.training import loop

    loop.train(spec, layout, options.stop_at)


def attempt(options: argparse.Namespace) -> int:
    """Run srpo train as one attempt at a run: with a record and a log of its own, the job given back if it is cut."""
    from srpo import attempts

    for folder in (options.folder, options.log.parent):
        check_writable(folder)
    return attempts.attempt(options.command, options.folder, options.log, options.requeue)


def evaluate(options: argparse.Namespace) -> None:
    """Sample a run's checkpoints at its budgets anew, or the base model without --method."""
    experiment, layout = _open(options)
    _named(experiment.models, "model", options.model)
    _named(experiment.benchmarks, "benchmark", options.benchmark)
    _require(layout.split(options.benchmark, "test"), f"srpo data --benchmark {options.benchmark} --split test")
    _require(layout.model(options.model) / "base.json", f"srpo model --model {options.model}")

    from srpo.evaluation import checkpoints
    from srpo.tracking import mirrored

    if options.method is None:
        checkpoints.evaluate_base(experiment, options.model, options.benchmark, layout)
        with mirrored(layout.folder) as mirror:
            mirror.sync_base(options.model, options.benchmark)
        return
    run = _run(experiment, options)
    _require(layout.run(run) / "summary.json", f"srpo train --method {run.method} --seed {run.seed} ...")
    checkpoints.evaluate_checkpoints(experiment, run, layout)
    with mirrored(layout.folder) as mirror:
        mirror.sync_run(layout.run(run))
        mirror.sync_evaluation(layout.run(run))


def report(options: argparse.Namespace) -> None:
    """Make the tables, the figures and the report from whatever runs there are, or compare two experiments."""
    if options.experiment is None:
        raise SrpoError("report needs --experiment results/NAME/experiment.yaml, or compare A B")
    _, layout = _open(options)

    from srpo.analysis.load import load_results

    results = load_results(layout.folder)
    if "tables" in options.only:
        from srpo.analysis.tables import write_tables

        write_tables(results, layout.tables)
    if "figures" in options.only:
        from srpo.analysis.figures import write_figures

        write_figures(results, layout.figures)
    if "html" in options.only:
        from srpo.analysis.report import write_report
        from srpo.tracking import mirrored

        write_report(results, layout.report)
        with mirrored(layout.folder) as mirror:
            mirror.sync_all()


def show_status(options: argparse.Namespace) -> None:
    """Where every run is: stage, step, clock, last avg@k, speed, what is left, attempts, last error."""
    from srpo import status
    from srpo.compose import load_experiment

    layouts = [Layout(folder) for folder in _experiments(options.results)]
    experiments = [(load_experiment(layout.experiment), layout) for layout in layouts]
    if options.json:
        for experiment, layout in experiments:
            print(status.as_json(experiment.name, status.read(experiment, layout)))
        return
    live = options.watch is not None and sys.stdout.isatty()
    while True:
        rows = max(3, os.get_terminal_size().lines // len(experiments) - 4) if live else None
        tables = [status.table(e.name, status.read(e, layout), rows) for e, layout in experiments]
        if not live:
            print("\n\n".join(tables))
            return
        print(CLEAR + "\n\n".join(tables), flush=True)
        time.sleep(options.watch)


def compare_reports(options: argparse.Namespace) -> None:
    """Compare two experiments: verdicts that changed, scores with intervals, settings that differ."""
    from srpo.analysis import compare

    if options.output is None:
        print(compare.as_markdown(*compare.compare(options.a, options.b)), end="")
        return
    check_writable(options.output.parent)
    compare.write_comparison(options.a, options.b, options.output)


def track_sync(options: argparse.Namespace) -> None:
    """Bring MLflow up to date with the logs, e.g. after its server was away."""
    from srpo.tracking import sync

    for folder in _experiments(options.results):
        sync(folder)


def resolved_text(experiment: Experiment) -> str:
    """The resolved experiment as YAML."""
    import yaml

    return yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, width=120)


def write_resolved(experiment: Experiment, path: Path) -> None:
    """Write the file that all verbs read, unless it says the same already."""
    from srpo.files import write_text

    resolved = resolved_text(experiment)
    if not path.exists() or path.read_text() != resolved:
        write_text(path, resolved)


# ---------------------------------------------------------------- shared by the verbs


def _open(options: argparse.Namespace) -> tuple[Experiment, Layout]:
    """Load the resolved experiment and check that its folder takes results."""
    from srpo.compose import load_experiment

    path: Path = options.experiment
    if path.name != "experiment.yaml":
        raise SrpoError(f"{path}: give a resolved experiment.yaml; srpo experiment {path} --output ... writes one")
    experiment = load_experiment(path)
    check_writable(path.parent)
    return experiment, Layout(path.parent)


def _experiments(results: Path) -> list[Path]:
    """The folders of one experiment's or of all experiments' results."""
    folders = [results] if Layout(results).experiment.exists() else sorted(results.glob("*"))
    experiments = [folder for folder in folders if Layout(folder).experiment.exists()]
    if not experiments:
        raise SrpoError(f"{results}: no experiment.yaml here or one folder below")
    return experiments


def _run(experiment: Experiment, options: argparse.Namespace) -> RunId:
    """The run that the options name, if it is in the matrix."""
    from srpo.config import RunId

    run = RunId(model=options.model, benchmark=options.benchmark, method=options.method, seed=options.seed)
    for kind, name in (("model", run.model), ("benchmark", run.benchmark), ("method", run.method)):
        _named(getattr(experiment, f"{kind}s"), kind, name)
    experiment.run(run)
    return run


def _named(known: dict[str, T], kind: str, name: str) -> T:
    if name not in known:
        raise SrpoError(f"unknown {kind} {name!r}; the experiment has {', '.join(known)}")
    return known[name]


def _require(path: Path, remedy: str) -> None:
    if not path.exists():
        raise SrpoError(f"{path}: missing; make it with {remedy}")


def _read_standard_input() -> dict:
    import yaml

    try:
        content = yaml.safe_load(sys.stdin)
    except yaml.YAMLError as error:
        raise SrpoError(f"standard input: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise SrpoError(f"standard input: a mapping is expected, found {type(content).__name__}")
    return content


# ---------------------------------------------------------------- arguments


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="srpo", description="Sample-Routed Policy Optimization, stage by stage.")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    verb = _add(verbs, "experiment", resolve_experiment)
    verb.add_argument("file", help="a name, e.g. paper, an experiment file, or - for standard input")
    verb.add_argument("--output", type=Path, metavar="FILE", help="results/NAME/experiment.yaml; default: print it")

    verb = _add(verbs, "plan", plan)
    what = verb.add_mutually_exclusive_group(required=True)
    named = {"metavar": "EXPERIMENT", "help": "a name, e.g. paper, or an experiment file, resolved or not"}
    what.add_argument("file", nargs="?", **named)
    what.add_argument("--experiment", **named)
    verb.add_argument("--nodes", type=int, metavar="N", default=1, help="runs at a time (default: 1)")
    verb.add_argument("--gpu-memory", type=float, metavar="GB", default=80, help="warn above it (default: 80)")

    verb = _add(verbs, "data", make_data, experiment=True)
    verb.add_argument("--benchmark", required=True)
    what = verb.add_mutually_exclusive_group(required=True)
    what.add_argument("--split", choices=("train", "test"))
    what.add_argument("--statistics", action="store_true", help="statistics of the splits written so far")
    verb.add_argument(
        "--mirror",
        type=Path,
        metavar="DIR",
        default=os.environ.get("SRPO_MIRROR") or None,
        help="read sources from this copy of their repository, not the network (also: SRPO_MIRROR)",
    )

    verb = _add(verbs, "model", make_model, experiment=True)
    verb.add_argument("--model", required=True)

    verb = _add(verbs, "train", train, experiment=True)
    _add_run(verb, method_required=True)
    verb.add_argument(
        "--stop-at",
        type=float,
        metavar="SECONDS",
        default=job_end(os.environ),
        help="stop with a checkpoint before this time, in seconds since the epoch (default: the SLURM job's end)",
    )

    verb = _add(verbs, "attempt", attempt)
    verb.add_argument("--folder", type=Path, metavar="DIR", required=True, help="the run's folder")
    verb.add_argument("--log", type=Path, metavar="FILE", required=True, help="becomes a link to this attempt's log")
    verb.add_argument("--requeue", default="", metavar="COMMAND", help="gives the job back to its scheduler")
    verb.add_argument("command", nargs="+", metavar="COMMAND", help="after --: srpo train and its options")

    verb = _add(verbs, "evaluate", evaluate, experiment=True)
    _add_run(verb, method_required=False)

    verb = _add(verbs, "report", report)
    verb.add_argument("--experiment", type=Path, metavar="FILE", help="results/NAME/experiment.yaml")
    verb.add_argument("--only", nargs="+", choices=REPORT_PARTS, default=REPORT_PARTS, help="default: all")
    report_verbs = verb.add_subparsers(title="verbs", metavar="VERB")
    verb = _add(report_verbs, "compare", compare_reports)
    verb.add_argument("a", type=Path, metavar="A", help="results/NAME")
    verb.add_argument("b", type=Path, metavar="B", help="results/OTHER")
    verb.add_argument("--output", type=Path, metavar="FILE", help="a .html or .md file; default: Markdown, printed")

    verb = _add(verbs, "status", show_status)
    verb.add_argument("results", type=Path, help="results, or results/NAME for one experiment")
    verb.add_argument("--json", action="store_true", help="one line of JSON an experiment, for scripts")
    verb.add_argument(
        "--watch",
        type=float,
        nargs="?",
        const=10.0,
        metavar="SECONDS",
        help="look again every so many seconds (default: 10) until Ctrl-C; on a terminal only",
    )

    track = verbs.add_parser("track", help="MLflow mirror of the logs", description="MLflow mirror of the logs.")
    track_verbs = track.add_subparsers(title="verbs", metavar="VERB", required=True)
    verb = _add(track_verbs, "sync", track_sync)
    verb.add_argument("results", type=Path, help="results, or results/NAME for one experiment")
    return parser


def _add(verbs: argparse._SubParsersAction, name: str, verb: Callable, experiment: bool = False):
    summary = verb.__doc__.splitlines()[0]
    parser = verbs.add_parser(name, help=summary, description=summary)
    parser.set_defaults(verb=verb)
    if experiment:
        parser.add_argument(
            "--experiment", type=Path, required=True, metavar="FILE", help="results/NAME/experiment.yaml"
        )
    return parser


def _add_run(parser: argparse.ArgumentParser, method_required: bool) -> None:
    parser.add_argument("--model", required=True)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument("--method", required=method_required, help=None if method_required else "default: untrained")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")


if __name__ == "__main__":
    sys.exit(main())
