"""The command line: one verb per stage. The workflow's rules call it and so can you.

Every verb but ``experiment`` takes the resolved experiment that ``srpo experiment`` wrote; the folder it
lies in is the experiment's results directory, and all other paths follow from it (docs/architecture.md).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from srpo.errors import SrpoError
from srpo.layout import Layout, check_writable

if TYPE_CHECKING:
    from srpo.config import Experiment, RunId

T = TypeVar("T")

REPORT_PARTS = ("tables", "figures", "html")

# A verb imports what it needs itself: torch and verl take seconds, `srpo --help` should not.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb.

    Returns:
        The exit status: 0, 2 for a mistake the user can mend, 130 when interrupted.
    """
    options = _parser().parse_args(arguments)
    try:
        options.verb(options)
    except SrpoError as error:
        print(f"srpo: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("srpo: interrupted", file=sys.stderr)
        return 130
    return 0


# ---------------------------------------------------------------- verbs


def resolve_experiment(options: argparse.Namespace) -> None:
    """Check an experiment file and write it with every name resolved and every default filled in."""
    from srpo.config import load_experiment

    experiment = load_experiment(_read_standard_input() if options.file == "-" else Path(options.file))
    check_writable(options.output.parent)
    write_resolved(experiment, options.output)


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

    loop.train(spec, layout)


def evaluate(options: argparse.Namespace) -> None:
    """Sample a run's checkpoints at its budgets anew, or the base model without ``--method``."""
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

    folders = [options.results] if Layout(options.results).experiment.exists() else sorted(options.results.glob("*"))
    experiments = [folder for folder in folders if Layout(folder).experiment.exists()]
    if not experiments:
        raise SrpoError(f"{options.results}: no experiment.yaml here or one folder below")
    for folder in experiments:
        sync(folder)


def write_resolved(experiment: Experiment, path: Path) -> None:
    """Write the file that all verbs read, unless it says the same already."""
    import yaml

    from srpo.files import write_text

    resolved = yaml.safe_dump(experiment.model_dump(mode="json"), sort_keys=False, width=120)
    if not path.exists() or path.read_text() != resolved:
        write_text(path, resolved)


# ---------------------------------------------------------------- shared by the verbs


def _open(options: argparse.Namespace) -> tuple[Experiment, Layout]:
    """Load the resolved experiment and check that its folder takes results."""
    from srpo.config import load_experiment

    path: Path = options.experiment
    if path.name != "experiment.yaml":
        raise SrpoError(f"{path}: give a resolved experiment.yaml; srpo experiment {path} --output ... writes one")
    experiment = load_experiment(path)
    check_writable(path.parent)
    return experiment, Layout(path.parent)


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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="srpo", description="Sample-Routed Policy Optimization, stage by stage.")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)

    verb = _add(verbs, "experiment", resolve_experiment)
    verb.add_argument("file", help="an experiment file, or - for standard input")
    verb.add_argument("--output", type=Path, metavar="FILE", required=True, help="results/NAME/experiment.yaml")

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
