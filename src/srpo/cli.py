"""The command line: one verb per stage. The workflow's rules call it and so can you.

Commands that write results read the resolved experiment that ``srpo experiment`` wrote. Its folder is the
experiment's results folder, and all other paths follow from it (docs/architecture.md).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from srpo import __version__
from srpo.errors import SrpoError
from srpo.imports import gc_paused
from srpo.layout import Layout, check_writable
from srpo.repository import CONFIGS
from srpo.text import printable
from srpo.training.interruption import Interrupted, job_end

if TYPE_CHECKING:
    from srpo.config import Experiment, RunId
    from srpo.tracking import Mirror

T = TypeVar("T")

REPORT_PARTS = ("tables", "figures", "html")
_ONLY_HELP = f"{', '.join(REPORT_PARTS)}; default: all"

CLEAR = "\x1b[H\x1b[J"
"""Control sequence that clears a terminal."""

# A verb imports what it needs itself: torch and verl take seconds, `srpo --help` should not.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb.

    Returns:
        The exit status: 0; 2 for an error that the user can fix; 75 (EX_TEMPFAIL) if a run stopped early with a
        checkpoint; 130 if interrupted. ``attempt`` returns the status of its command.
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
    from srpo.compose import experiment_file, load_experiment, resolved_text, write_resolved

    if options.file == "-":
        experiment = load_experiment(_read_standard_input(), where="standard input")
    else:
        experiment = load_experiment(experiment_file(options.file))
    if options.output is None:
        print(resolved_text(experiment), end="")
        return
    check_writable(options.output.parent)
    write_resolved(resolved_text(experiment), options.output)


def plan(options: argparse.Namespace) -> None:
    """Estimate what an experiment takes: runs, steps, hours, disk, memory, and where the numbers come from."""
    from srpo.compose import experiment_file, load_experiment
    from srpo.gpus import find_gpu
    from srpo.measurements import read_measurements
    from srpo.plan import make_plan
    from srpo.plan_text import render, shortages

    if options.nodes < 1:
        raise SrpoError(f"--nodes {options.nodes}: at least 1")
    gpu_memory = find_gpu(options.gpu).memory / 1e9 if options.gpu else 80
    if options.gpu_memory is not None:
        gpu_memory = options.gpu_memory
    if not 0 < gpu_memory < float("inf"):
        raise SrpoError(f"--gpu-memory {gpu_memory}: above 0")
    experiment = load_experiment(experiment_file(options.experiment or options.file))
    measured = read_measurements(map(_experiment_folder, options.measured), experiment)
    print(render(make_plan(experiment, options.nodes, measured, options.gpu)), end="")
    for line in shortages(experiment, gpu_memory * 1e9):
        print(f"srpo: warning: {line}", file=sys.stderr)


def make_data(options: argparse.Namespace) -> None:
    """Write one split of a benchmark, or statistics of the splits that exist."""
    experiment, layout = _open(options)
    benchmark = _named(options, experiment.benchmarks, "benchmark", options.benchmark)

    from srpo.benchmarks import splits
    from srpo.files import write_json

    if options.split:
        questions = splits.build_split(benchmark, options.split, options.mirror)
        splits.write_split(layout.split(benchmark.name, options.split), questions, options.split)
        return

    names: tuple[splits.SplitName, ...] = ("train", "test")
    paths = {name: layout.split(benchmark.name, name) for name in names}
    written = {name: splits.read_split(path) for name, path in paths.items() if path.exists()}
    if not written:
        raise SrpoError(f"{paths['test']}: missing; make it with srpo data --split test")
    if options.lengths:
        from srpo.benchmarks.lengths import check_lengths, describe_lengths
        from srpo.models.tokenizer import open_tokenizer

        model = _named(options, experiment.models, "model", options.lengths).name
        _require(layout.model_description(model), f"srpo model --model {model}")
        tokenizer, training = open_tokenizer(layout.model(model)), experiment.training
        found = {str(split): check_lengths(tokenizer, asked, split, training) for split, asked in written.items()}
        write_json(layout.lengths(benchmark.name, model), describe_lengths(found, training))
        return
    write_json(layout.statistics(benchmark.name), splits.split_statistics(benchmark, written))
    _mirror(experiment, layout, lambda mirror: mirror.sync_data(benchmark.name))


def make_model(options: argparse.Namespace) -> None:
    """Build or fetch a base model."""
    experiment, layout = _open(options)
    model = _named(options, experiment.models, "model", options.model)

    from srpo.models import build_model

    trained = {run.benchmark for run in experiment.runs()}
    benchmarks = [benchmark for name, benchmark in experiment.bases() if name == model.name and benchmark in trained]
    splits = {benchmark: layout.split(benchmark, "train") for benchmark in benchmarks}
    build_model(model, layout.model(model.name), splits)
    _mirror(experiment, layout, lambda mirror: mirror.sync_model(model.name))


def train(options: argparse.Namespace) -> None:
    """Train one run; an interrupted run continues."""
    experiment, layout = _open(options)
    run = _run(experiment, options)
    spec = experiment.run(run)
    _require(layout.split(run.benchmark, "train"), f"srpo data --benchmark {run.benchmark} --split train")
    _require(layout.split(run.benchmark, "test"), f"srpo data --benchmark {run.benchmark} --split test")
    _require(layout.model_description(run.model), f"srpo model --model {run.model}")

    with gc_paused():
        from srpo.training import loop

    loop.train(spec, layout, options.stop_at)


def attempt(options: argparse.Namespace) -> int:
    """Run srpo train as one attempt with its own record and log; requeue the job at its time limit."""
    from srpo import attempts

    for folder in (options.folder, options.log.parent):
        check_writable(folder)
    return attempts.attempt(options.command, options.folder, options.log, options.requeue)


def evaluate(options: argparse.Namespace) -> None:
    """Evaluate the checkpoints that a run's budgets selected, or without --method the base model."""
    experiment, layout = _open(options)
    _named(options, experiment.models, "model", options.model)
    _named(options, experiment.benchmarks, "benchmark", options.benchmark)
    _require(layout.split(options.benchmark, "test"), f"srpo data --benchmark {options.benchmark} --split test")
    _require(layout.model_description(options.model), f"srpo model --model {options.model}")

    with gc_paused():
        from srpo.evaluation import evaluate_run
        from srpo.publish.model_card import write_cards

    if options.method is None:
        evaluate_run.evaluate_base(experiment, options.model, options.benchmark, layout)
        _mirror(experiment, layout, lambda mirror: mirror.sync_base(options.model, options.benchmark))
        return
    run = _run(experiment, options)
    _require(layout.run_files(run).summary, f"srpo train --method {run.method} --seed {run.seed} ...")
    evaluate_run.evaluate_checkpoints(experiment, run, layout)
    write_cards(layout.run_files(run), experiment.evaluation, layout.split(run.benchmark, "test"))
    _mirror(experiment, layout, lambda mirror: mirror.sync_evaluation(layout.run(run)))


def generate(options: argparse.Namespace) -> None:
    """Let a trained checkpoint, or without --method the base model, answer a question."""
    experiment, layout = _open(options)
    run = _evaluated(experiment, layout, options)

    with gc_paused():
        from srpo.publish.answers import answer

    question = options.question if options.prompt is None else options.prompt
    shown = answer(experiment, run, layout, options.budget, question, options.samples)
    print(f"{shown.checkpoint}\n\nQuestion: {shown.question}")
    if shown.ground_truth is not None:
        print(f"Correct answer: {shown.ground_truth}")
    for number, response in enumerate(shown.responses, 1):
        verdict = f" (reward {shown.rewards[number - 1]:g})" if shown.rewards else ""
        print(f"\nAnswer {number}{verdict}: {printable(response)}")


def push(options: argparse.Namespace) -> None:
    """Upload a run's checkpoint and its model card to your repository on the Hugging Face hub."""
    experiment, layout = _open(options)
    run = _evaluated(experiment, layout, options)

    from srpo.publish import hub
    from srpo.publish.answers import checkpoint_of

    print(hub.push(checkpoint_of(experiment, run, layout, options.budget), options.to, options.public))


def report(options: argparse.Namespace) -> None:
    """Make the tables, the figures and the report from the runs so far, or compare two experiments."""
    match options.results:
        case ["compare", a, b]:
            _compare(_experiment_folder(Path(a)), _experiment_folder(Path(b)), options.output)
            return
        case ["compare", *_]:
            raise SrpoError("report compare needs two folders: srpo report compare results/A results/B")
        case [folder] if options.experiment is None:
            options.experiment = Layout(_experiment_folder(Path(folder))).experiment
        case [] if options.experiment is not None:
            pass
        case _:
            raise SrpoError("report needs one folder: srpo report results/NAME")
    if options.output is not None:
        raise SrpoError("--output belongs to srpo report compare; the report goes into the results folder")
    _, layout = _open(options)

    with gc_paused():
        from srpo.analysis.results.load import load_results

    results = load_results(layout.folder)
    if "tables" in options.only:
        from srpo.analysis.tables.registry import write_tables

        write_tables(results, layout.tables)
    if "figures" in options.only:
        from srpo.analysis.figures.registry import write_figures

        write_figures(results, layout.figures)
    if "html" in options.only:
        from srpo.analysis.report.page import write_report
        from srpo.tracking import mirrored

        write_report(results, layout.report)
        with mirrored(layout.folder) as mirror:
            mirror.sync_report()


def tune(options: argparse.Namespace) -> None:
    """Write the best hyperparameters of a finished search, with all trials and what they cost."""
    experiment, layout = _open(options)

    from srpo import tuning

    output = layout.tuned if options.output is None else options.output
    check_writable(output.parent)
    tuning.write(tuning.collect(experiment, layout), output)


def show_status(options: argparse.Namespace) -> None:
    """Show the state of every run: stage, step, clock, last avg@k, speed, time left, attempts, last error."""
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


def _compare(a: Path, b: Path, output: Path | None) -> None:
    """Compare two experiments: verdicts that changed, scores with intervals, settings that differ."""
    from srpo.analysis.report import compare

    if output is None:
        print(compare.as_markdown(*compare.compare(a, b)), end="")
        return
    check_writable(output.parent)
    compare.write_comparison(a, b, output)


def track_sync(options: argparse.Namespace) -> None:
    """Copy to MLflow what it lacks of the logs, for example after its server could not be reached."""
    from srpo.tracking import sync

    for folder in _experiments(options.results):
        sync(folder)


def track_model(options: argparse.Namespace) -> None:
    """Copy all stages of a model to MLflow. Results do not depend on MLflow: an error there is a warning."""
    experiment, layout = _open(options)
    model = _named(options, experiment.models, "model", options.model)

    from srpo.tracking import mirrored

    with mirrored(layout.folder) as mirror:
        mirror.sync_all(model.name)


# ---------------------------------------------------------------- shared by the verbs


def _mirror(experiment: Experiment, layout: Layout, sync: Callable[[Mirror], None]) -> None:
    """Copy a finished stage to MLflow, if stages are copied one by one."""
    from srpo.tracking import is_mirrored_live, mirrored

    if is_mirrored_live(experiment):
        with mirrored(layout.folder) as mirror:
            sync(mirror)


def _open(options: argparse.Namespace) -> tuple[Experiment, Layout]:
    """Load the resolved experiment, from ``--resolved`` if that is given, and check that results can be written."""
    from srpo.compose import load_experiment, write_resolved

    path: Path = options.experiment
    layout = Layout(path.parent)
    if path != layout.experiment:
        wanted = layout.experiment.name
        raise SrpoError(f"{path}: give a resolved {wanted}; srpo experiment {path} --output ... writes one")
    check_writable(layout.folder)
    if options.resolved is None and not path.exists():
        raise _no_experiment(layout.folder, f"; srpo experiment NAME --output {path} writes one")
    if options.resolved is not None:
        if not options.resolved.is_file():
            raise SrpoError(f"--resolved {options.resolved}: no such file; start Snakemake again, which writes it")
        write_resolved(options.resolved.read_text(), path)
    return load_experiment(path), layout


def _experiment_folder(folder: Path) -> Path:
    """A folder of one experiment's results; its resolved experiment stands for it."""
    if folder.name == Layout(folder).experiment.name:
        folder = folder.parent
    if not Layout(folder).experiment.is_file():
        raise _no_experiment(folder, "; give results/NAME")
    return folder


def _no_experiment(folder: Path, otherwise: str) -> SrpoError:
    """The error for a folder without results. If an experiment has its name, it says how to run that.

    Args:
        otherwise: the end of the message if none has.
    """
    file = CONFIGS / "experiments" / f"{folder.name}.yaml"
    missing = f"{folder}: no {Layout(folder).experiment.name} here"
    if not file.is_file():
        return SrpoError(f"{missing}{otherwise}")
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    elsewhere = "" if folder.parent == Path("results") else f" --config results={folder.parent}"
    missing = f"{missing};" if folder.exists() else f"{folder} does not exist:"
    return SrpoError(f"{missing} run snakemake --configfile {shown}{elsewhere}")


def _experiments(results: Path) -> list[Path]:
    """The folders of one experiment's or of all experiments' results."""
    folders = [results] if Layout(results).experiment.exists() else sorted(results.glob("*"))
    experiments = [folder for folder in folders if Layout(folder).experiment.exists()]
    if not experiments:
        raise _no_experiment(results, " or one folder below")
    return experiments


def _run(experiment: Experiment, options: argparse.Namespace) -> RunId:
    """The run that the options name, if it is in the matrix."""
    from srpo.config import RunId

    run = RunId(model=options.model, benchmark=options.benchmark, method=options.method, seed=options.seed)
    for kind, name in (("model", run.model), ("benchmark", run.benchmark), ("method", run.method)):
        _named(options, getattr(experiment, f"{kind}s"), kind, name)
    experiment.run(run)
    return run


def _evaluated(experiment: Experiment, layout: Layout, options: argparse.Namespace) -> RunId:
    """The run that the options name, which has finished; of method ``base`` without --method."""
    from srpo.config import RunId

    _named(options, experiment.models, "model", options.model)
    _named(options, experiment.benchmarks, "benchmark", options.benchmark)
    _require(layout.split(options.benchmark, "test"), f"srpo data --benchmark {options.benchmark} --split test")
    _require(layout.model_description(options.model), f"srpo model --model {options.model}")
    if options.method is None:
        return RunId(model=options.model, benchmark=options.benchmark, method="base", seed=0)
    run = _run(experiment, options)
    _require(layout.run_files(run).summary, f"srpo train --method {run.method} --seed {run.seed} ...")
    return run


def _named(options: argparse.Namespace, known: Mapping[str, T], kind: str, name: str) -> T:
    if name not in known:
        raise SrpoError(f"{options.experiment}: unknown {kind} {name!r}; the experiment has {', '.join(known)}")
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
    parser.add_argument("--version", action="version", version=f"srpo {__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    verb = _add(verbs, "experiment", resolve_experiment)
    verb.add_argument("file", help="a name, e.g. paper, an experiment file, or - for standard input")
    verb.add_argument("--output", type=Path, metavar="FILE", help="results/NAME/experiment.yaml; default: print it")

    verb = _add(verbs, "plan", plan)
    what = verb.add_mutually_exclusive_group(required=True)
    named = "a name, e.g. paper, or an experiment file, resolved or not"
    what.add_argument("file", nargs="?", metavar="EXPERIMENT", help=named)
    what.add_argument("--experiment", metavar="EXPERIMENT", help=named)
    verb.add_argument("--nodes", type=int, metavar="N", default=1, help="runs at a time (default: 1)")
    verb.add_argument(
        "--from",
        dest="measured",
        type=Path,
        nargs="+",
        default=[],
        metavar="RESULTS",
        help="use the times that finished runs measured, e.g. of results/paper-rehearsal",
    )
    verb.add_argument(
        "--gpu",
        metavar="CARD",
        help="estimate seconds per step from the card's data sheet: a10g, l40s, a100, h100 and others",
    )
    verb.add_argument("--gpu-memory", type=float, metavar="GB", help="warn above it (default: the card's, or 80)")

    verb = _add(verbs, "data", make_data, experiment=True)
    verb.add_argument("--benchmark", required=True)
    what = verb.add_mutually_exclusive_group(required=True)
    what.add_argument("--split", choices=("train", "test"))
    what.add_argument("--statistics", action="store_true", help="statistics of the splits written so far")
    what.add_argument(
        "--lengths", metavar="MODEL", help="lengths of their prompts with a model's tokenizer; one too long is an error"
    )
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
    verb.add_argument("--requeue", default="", metavar="COMMAND", help="requeues the job at its time limit")
    verb.add_argument("command", nargs="+", metavar="COMMAND", help="after --: srpo train and its options")

    verb = _add(verbs, "evaluate", evaluate, experiment=True)
    _add_run(verb, method_required=False)

    verb = _add(verbs, "generate", generate, experiment=True)
    _add_run(verb, method_required=False)
    _add_budget(verb)
    verb.add_argument("--question", type=int, metavar="N", default=0, help="of the test split (default: 0, the first)")
    verb.add_argument("--prompt", metavar="TEXT", help="a question in your own words instead")
    verb.add_argument("--samples", type=int, metavar="N", default=1, help="answers (default: 1)")

    verb = _add(verbs, "push", push, experiment=True)
    _add_run(verb, method_required=True)
    _add_budget(verb)
    verb.add_argument("--to", required=True, metavar="OWNER/NAME", help="repository; made, private, if there is none")
    verb.add_argument("--public", action="store_true", help="if it is made, make it public")

    verb = _add(verbs, "report", report)
    verb.usage = (
        "srpo report results/NAME [--only PART ...]\n       srpo report compare results/A results/B [--output FILE]"
    )
    # not subparsers: argparse would take a folder for the name of one
    verb.add_argument("results", nargs="*", help="results/NAME, or compare and two such folders")
    _add_experiment(verb, required=False)
    verb.add_argument("--only", nargs="+", choices=REPORT_PARTS, default=REPORT_PARTS, metavar="PART", help=_ONLY_HELP)
    verb.add_argument(
        "--output", type=Path, metavar="FILE", help="of compare: a .html or .md file; default: Markdown, printed"
    )

    verb = _add(verbs, "tune", tune, experiment=True)
    verb.add_argument(
        "--output", type=Path, metavar="FILE", help="e.g. configs/tuned/NAME.yaml; default: results/NAME/tuned.yaml"
    )

    verb = _add(verbs, "status", show_status)
    verb.add_argument("results", type=Path, help="results, or results/NAME for one experiment")
    verb.add_argument("--json", action="store_true", help="one line of JSON per experiment, for scripts")
    verb.add_argument(
        "--watch",
        type=float,
        nargs="?",
        const=10.0,
        metavar="SECONDS",
        help="repeat after so many seconds (default: 10) until Ctrl-C; on a terminal only",
    )

    track = verbs.add_parser("track", help="Copy the logs to MLflow.", description="Copy the logs to MLflow.")
    track_verbs = track.add_subparsers(title="verbs", metavar="VERB", required=True)
    verb = _add(track_verbs, "model", track_model, experiment=True)
    verb.add_argument("--model", required=True)

    verb = _add(track_verbs, "sync", track_sync)
    verb.add_argument("results", type=Path, help="results, or results/NAME for one experiment")
    return parser


def _add(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    verb: Callable[[argparse.Namespace], int | None],
    experiment: bool = False,
) -> argparse.ArgumentParser:
    summary = (verb.__doc__ or "").splitlines()[0]
    parser = verbs.add_parser(name, help=summary, description=summary)
    parser.set_defaults(verb=verb)
    if experiment:
        _add_experiment(parser, required=True)
    return parser


def _add_experiment(parser: argparse.ArgumentParser, required: bool) -> None:
    parser.add_argument(
        "--experiment", type=Path, metavar="FILE", required=required, help="results/NAME/experiment.yaml"
    )
    parser.add_argument(
        "--resolved", type=Path, metavar="FILE", help="copy this file to --experiment first (the workflow uses this)"
    )


def _add_run(parser: argparse.ArgumentParser, method_required: bool) -> None:
    parser.add_argument("--model", required=True)
    parser.add_argument("--benchmark", required=True)
    parser.add_argument(
        "--method", required=method_required, help=None if method_required else "default: the base model"
    )
    parser.add_argument("--seed", type=int, default=1, help="default: 1")


def _add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", metavar="LABEL", help="whose selected checkpoint, e.g. 1h (default: the last)")


if __name__ == "__main__":
    sys.exit(main())
