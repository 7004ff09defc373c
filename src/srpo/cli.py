"""The command line: one verb per stage. The workflow's rules call it and so can you.

Commands that write results read the resolved experiment that ``srpo experiment`` wrote. Its folder is the
experiment's results folder, and all other paths follow from it (docs/architecture.md).
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from srpo import __version__
from srpo.ground.errors import SrpoError
from srpo.ground.imports import gc_paused
from srpo.ground.repository import CONFIGS
from srpo.training.interruption import Interrupted, job_end

if TYPE_CHECKING:
    from srpo.experiment import config
    from srpo.ground.layout import Layout, RunId

T = TypeVar("T")

_SOME_DAY = 1e9
"""In 2001, in seconds since the epoch: what is less is no time at which a run may stop."""

# A verb imports what it needs itself: torch and verl take seconds, `srpo --help` should not.


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb.

    Returns:
        The exit status: 0; 2 for an error that the user can fix; 75 (EX_TEMPFAIL) if a run stopped early with a
        checkpoint; 130 if interrupted. ``attempt`` returns the status of its command.
    """
    try:
        return app(arguments, prog_name="srpo", standalone_mode=False) or 0
    # an OSError is a full disk or a folder that nobody may write, of what the verbs do not expect
    except (SrpoError, typer.TyperException, OSError) as error:
        print(f"srpo: error: {_line(error)}", file=sys.stderr)
        return 2
    except Interrupted as reason:
        print(f"srpo: {reason}", file=sys.stderr)
        return os.EX_TEMPFAIL


def _line(error: Exception) -> str:
    """What is wrong, in one line."""
    said = error.format_message() if isinstance(error, typer.TyperException) else str(error)
    return " ".join(said.split()) if isinstance(error, typer.TyperException) else said


class _Verbs(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def invoke(self, ctx: Any) -> int | None:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer would end without a word
            print("srpo: interrupted", file=sys.stderr)
            return 130


app = typer.Typer(
    cls=_Verbs,
    help="Sample-Routed Policy Optimization, stage by stage. What an experiment costs: srpo plan smoke.",
    rich_markup_mode=None,  # rich takes longer to import than all else that help needs
    pretty_exceptions_enable=False,
)
track = typer.Typer(cls=_Verbs, help="Copy the logs to MLflow, Weights & Biases and others.")
app.add_typer(track, name="track")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"srpo {__version__}")
        raise typer.Exit


@app.callback()
def _options(version: Annotated[bool, Option("--version", callback=_show_version, is_eager=True)] = False) -> None:
    pass


# ---------------------------------------------------------------- options of several verbs


def _completed(kind: str) -> Callable[[str], list[str]]:
    """The names that a shell completes: files of ``configs/<kind>``."""
    return lambda incomplete: sorted(file.stem for file in (CONFIGS / kind).rglob(f"{incomplete}*.yaml"))


NameOrFile = Annotated[
    str,
    Argument(
        metavar="EXPERIMENT",
        help="a name, e.g. paper; a file, resolved or not; or - for standard input",
        autocompletion=_completed("experiments"),
    ),
]
File = Annotated[Path, Option("--experiment", metavar="FILE", help="results/NAME/experiment.yaml")]
Resolved = Annotated[
    Path | None, Option(metavar="FILE", help="copy this file to --experiment first (the workflow uses this)")
]
ModelName = Annotated[str, Option(metavar="NAME", autocompletion=_completed("models"))]
BenchmarkName = Annotated[str, Option(metavar="NAME", autocompletion=_completed("benchmarks"))]
MethodName = Annotated[str, Option(metavar="NAME", autocompletion=_completed("methods"))]
MethodOrBase = Annotated[
    str | None, Option(metavar="NAME", autocompletion=_completed("methods"), help="default: the base model")
]
Seed = Annotated[int, Option(metavar="N")]


class Part(StrEnum):
    """What ``srpo report`` makes."""

    TABLES = "tables"
    FIGURES = "figures"
    HTML = "html"


Results = Annotated[Path, Argument(metavar="RESULTS", help="results, or results/NAME for one experiment")]


# ---------------------------------------------------------------- verbs


@app.command("experiment")
def resolve_experiment(
    file: NameOrFile,
    output: Annotated[
        Path | None, Option(metavar="FILE", help="results/NAME/experiment.yaml; default: print it")
    ] = None,
) -> None:
    """Check an experiment, and print or write it. Every name is resolved and every default filled in."""
    _resolved(_load(file), output)


@app.command("plan")
def plan(
    file: NameOrFile,
    nodes: Annotated[int, Option(metavar="N", min=1, help="runs at a time")] = 1,
    measured: Annotated[
        list[Path] | None,
        Option(
            "--from",
            metavar="RESULTS",
            help="use the times that finished runs measured, e.g. of srpo rehearse; repeatable",
        ),
    ] = None,
    gpu: Annotated[
        str | None,
        Option(
            metavar="CARD",
            help="compute seconds per step from its data sheet: a10g, h100 and others, or GB/s:TFLOP/s:GB of yours",
        ),
    ] = None,
) -> None:
    """Estimate hours, disk and memory of an experiment. It says where the numbers come from."""
    from srpo.plan.measurements import read_measurements
    from srpo.plan.plan import make_plan
    from srpo.plan.text import render
    from srpo.plan.warnings import warnings

    experiment = _load(file)
    source = experiment.name if file == "-" else file
    folders = [_experiment_folder(path) for path in measured or []]
    known = read_measurements(folders, experiment)
    made = make_plan(experiment, nodes, known, gpu)
    print(render(made, source), end="")
    for line in warnings(made):
        print(f"srpo: warning: {line}", file=sys.stderr)


@app.command("rehearse")
def rehearse(
    file: NameOrFile,
    output: Annotated[Path | None, Option(metavar="FILE", help="for snakemake --configfile; default: print it")] = None,
) -> None:
    """Write the rehearsal of an experiment.

    It takes three steps of every method and model; srpo plan --from reads it.
    """
    from srpo.plan.rehearse import rehearsal

    if output is not None and not output.parent.is_dir():
        raise SrpoError(f"--output {output}: no folder {output.parent}")
    _resolved(rehearsal(_load(file)), output)
    if output is not None:
        print(f"snakemake --configfile {output}")


@app.command("data")
def make_data(
    context: typer.Context,
    experiment: File,
    benchmark: BenchmarkName,
    split: Annotated[Literal["train", "test"] | None, Option(help="write this split")] = None,
    statistics: Annotated[bool, Option("--statistics", help="write statistics of the splits written so far")] = False,
    lengths: Annotated[
        str | None,
        Option(
            metavar="MODEL",
            help="write the lengths of their prompts with a model's tokenizer; one too long is an error",
            autocompletion=_completed("models"),
        ),
    ] = None,
    mirror: Annotated[
        Path | None,
        Option(
            metavar="DIR", envvar="SRPO_MIRROR", help="read sources from this copy of their repository, not the network"
        ),
    ] = None,
    resolved: Resolved = None,
) -> None:
    """Write one split of a benchmark, or statistics of its splits."""
    wanted = {"--split": split is not None, "--statistics": statistics, "--lengths": lengths is not None}
    if len(given := [option for option in wanted if wanted[option]]) != 1:
        also = f", not {' and '.join(given)}" if given else ""
        raise SrpoError(f"data needs one of --split, --statistics and --lengths{also}")
    opened = _open(experiment, resolved)
    chosen, layout = opened.data_set(benchmark), opened.layout
    source = context.get_parameter_source("mirror")
    if source and source.name == "COMMANDLINE" and not (split and chosen.kind == "sourced"):
        raise SrpoError(f"--mirror {mirror}: not read for this; only --split of a benchmark with a source reads it")

    from srpo.ground.files import write_json
    from srpo.questions import splits
    from srpo.starts.data import build_split, split_statistics
    from srpo.training.lengths import check_lengths, describe_lengths

    training = opened.experiment.training
    if split:
        questions = build_split(chosen, split, mirror)
        check_lengths(None, questions, split, training)
        splits.write_split(layout.split(benchmark, split), questions, split)
        return

    names: tuple[splits.SplitName, ...] = ("train", "test")
    paths = {name: layout.split(benchmark, name) for name in names}
    written = {name: splits.read_split(path) for name, path in paths.items() if path.exists()}
    if not written:
        raise SrpoError(f"{paths['test']}: missing; make it with srpo data --split test")
    if lengths is not None:
        opened.require_base_model(lengths)

        from srpo.starts.open_tokenizer import open_tokenizer

        tokenizer = open_tokenizer(layout.model(lengths))
        found = {str(name): check_lengths(tokenizer, asked, name, training) for name, asked in written.items()}
        write_json(layout.lengths(benchmark, lengths), describe_lengths(found, training))
        return
    write_json(layout.statistics(benchmark), split_statistics(chosen, written))


@app.command("model")
def make_model(
    experiment: File,
    model: ModelName,
    store: Annotated[bool, Option("--store", help="build a miniature and store it in configs/models/stored")] = False,
    resolved: Resolved = None,
) -> None:
    """Build or fetch a base model."""
    opened = _open(experiment, resolved)
    chosen, matrix = opened.base_model(model), opened.experiment

    from srpo.starts import build_model, store_model

    if store:
        from srpo.training.provenance import origin

        print(f"{model}: {store_model(chosen, origin())}")
        return
    trained = {run.benchmark for run in matrix.runs()}
    benchmarks = [benchmark for name, benchmark in matrix.base_evaluations() if name == model and benchmark in trained]
    data_sets = {benchmark: matrix.data_set(benchmark, model).data_set for benchmark in benchmarks}
    splits = {benchmark: opened.layout.split(data_set, "train") for benchmark, data_set in data_sets.items()}
    build_model(chosen, opened.layout.model(model), splits, opened.experiment.training.max_response_length)


@app.command("train")
def train(
    experiment: File,
    model: ModelName,
    benchmark: BenchmarkName,
    method: MethodName,
    seed: Seed = 1,
    stop_at: Annotated[
        float | None,
        Option(
            metavar="SECONDS",
            help="stop with a checkpoint before this time, in seconds since the epoch (default: the SLURM job's end)",
        ),
    ] = None,
    evaluate: Annotated[bool, Option("--evaluate", help="at its end, evaluate its checkpoints")] = False,
    resolved: Resolved = None,
) -> None:
    """Train one run; an interrupted run continues."""
    if stop_at is not None and not stop_at > _SOME_DAY:
        raise SrpoError(f"--stop-at {stop_at:g}: give seconds since the epoch, such as $(date -d '+2 hours' +%s)")
    opened = _open(experiment, resolved)
    run = opened.run(model, benchmark, method, seed)
    spec = opened.experiment.run(run)
    opened.require(spec.model.name, spec.benchmark.data_set, "train", "test")

    with gc_paused():
        from srpo.training import loop

    loop.train(spec, opened.layout, job_end() if stop_at is None else stop_at)
    if evaluate:
        opened.evaluate(run)


@app.command("attempt")
def attempt(
    folder: Annotated[Path, Option(metavar="DIR", help="the run's folder")],
    log: Annotated[Path, Option(metavar="FILE", help="becomes a link to this attempt's log")],
    command: Annotated[list[str], Argument(metavar="COMMAND", help="after --: srpo train and its options")],
    requeue: Annotated[str, Option(metavar="COMMAND", help="requeues the job at its time limit")] = "",
) -> int:
    """Run srpo train as one attempt, with its record and log. At its time limit the job is requeued."""
    from srpo.ground.layout import check_writable
    from srpo.training import attempts

    if shutil.which(command[0]) is None:
        raise SrpoError(f"{command[0]}: no such command")
    check_writable(folder)
    _check_output(log, "--log")
    return attempts.attempt(command, folder, log, requeue)


@app.command("evaluate")
def evaluate(
    experiment: File,
    model: ModelName,
    benchmark: BenchmarkName,
    method: MethodOrBase = None,
    seed: Annotated[int | None, Option(metavar="N", help="with --method; default: 1")] = None,
    resolved: Resolved = None,
) -> None:
    """Evaluate a run's checkpoints, or a base model. Without --method it is the base model."""
    if method == "base":
        raise SrpoError("--method base: leave --method out for the base model")
    if method is None and seed is not None:
        raise SrpoError(f"--seed {seed}: a base model has none; give --method, or leave it out")
    opened = _open(experiment, resolved)
    if method is not None:
        run = opened.run(model, benchmark, method, 1 if seed is None else seed)
        spec = opened.experiment.run(run)
        opened.require(spec.model.name, spec.benchmark.data_set, "test")
        _require(opened.layout.run_files(run).summary, f"srpo train --method {method} --seed {run.seed} ...")
        opened.evaluate(run)
        return
    opened.require(model, opened.data_set_of(benchmark, model), "test")
    with gc_paused():
        from srpo.training.evaluate_run import evaluate_base

    evaluate_base(opened.experiment, model, benchmark, opened.layout)


@app.command("gap")
def gap(
    experiment: File,
    model: ModelName,
    benchmark: BenchmarkName,
    questions: Annotated[int, Option(metavar="N", min=8, help="of the train split, drawn at random")] = 48,
    resolved: Resolved = None,
) -> None:
    """Measure whether self-distillation would help.

    It compares self-teacher and student on train questions, before any training.
    """
    opened = _open(experiment, resolved)
    opened.require(model, opened.data_set_of(benchmark, model), "train")

    with gc_paused():
        from srpo.analysis.results import gap as numbers
        from srpo.training.self_teacher import sample_teacher
    from srpo.ground.files import write_json

    samples = sample_teacher(opened.experiment, model, benchmark, opened.layout, questions)
    found, path = numbers.gap_estimates(samples), opened.layout.gap(model, benchmark)
    write_json(path, numbers.as_json(samples, found))
    asked, each = samples.rollouts.shape
    shown = f"{asked} train questions x {each} samples, {len(samples.shown)} with a right one"
    print(numbers.gap_text(found, f"{model} on {benchmark}, untrained: {shown}"), numbers.verdict(found), sep="\n\n")
    print(f"\nNext: {numbers.next_command(found, str(experiment), model, benchmark, asked)}\n{path}")


@app.command("publish")
def publish(
    results: Annotated[Path, Argument(metavar="results/NAME")],
    to: Annotated[Path, Option(metavar="DIR", help="NAME is written below it")] = Path("published"),
) -> None:
    """Write a finished experiment's numbers to published/NAME. All its tables can be made again from there."""
    from srpo.analysis import published
    from srpo.ground.layout import Layout, check_writable, is_published

    source, folder = _experiment_folder(results), to / results.name
    check_writable(folder)
    if is_published(results) or folder.resolve() == source.resolve():
        raise SrpoError(f"publish {results} --to {to}: give results/NAME, and another folder to publish it in")
    found = published.publish(Layout(source), folder)
    if "-dirty" in str(found["commit"]):
        print(f"srpo: warning: {folder}: of a commit with local changes, which nobody can train again", file=sys.stderr)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {found['runs']} runs, {size / 1e6:.2f} MB")


@app.command("report")
def report(
    results: Annotated[Path | None, Argument(metavar="results/NAME", show_default=False)] = None,
    experiment: Annotated[
        Path | None, Option(metavar="FILE", help="results/NAME/experiment.yaml, instead of its folder")
    ] = None,
    only: Annotated[list[Part] | None, Option(help="make only this; repeatable (default: all)")] = None,
    resolved: Resolved = None,
) -> None:
    """Make a report of the runs so far."""
    from srpo.ground.layout import Layout

    if experiment is None:
        if results is None:
            raise SrpoError("report needs one folder: srpo report results/NAME")
        experiment = Layout(_experiment_folder(results)).experiment
    opened, parts = _open(experiment, resolved), only or list(Part)
    layout = opened.layout

    with gc_paused():
        from srpo.analysis.results.load import load_results

    loaded = load_results(layout.folder)
    if Part.TABLES in parts:
        from srpo.analysis.tables.registry import write_tables

        write_tables(loaded, layout.tables)
    if Part.FIGURES in parts:
        from srpo.analysis.figures.registry import write_figures

        write_figures(loaded, layout.figures)
    if Part.HTML in parts:
        from srpo.analysis.report import write_report

        write_report(loaded, layout.report)
        print(layout.report)


@app.command("tune")
def tune(
    experiment: File,
    output: Annotated[
        Path | None, Option(metavar="FILE", help="e.g. configs/tuned/NAME.yaml; default: results/NAME/tuned.yaml")
    ] = None,
    resolved: Resolved = None,
) -> None:
    """Write the best hyperparameters of a finished search. All trials and their cost are in the file."""
    opened = _open(experiment, resolved)

    from srpo.experiment import tuning

    output = output or opened.layout.tuned
    _check_output(output)
    tuning.write(tuning.collect(opened.experiment, opened.layout), output)


@app.command("status")
def show_status(
    results: Results,
    json: Annotated[bool, Option("--json", help="one line of JSON per experiment, for scripts")] = False,
) -> None:
    """Show the state of every run. Stage, step, clock, last avg@k, speed, time left, attempts, last error."""
    from srpo.experiment.compose import load_experiment
    from srpo.ground.layout import Layout
    from srpo.training import status

    layouts = [Layout(folder) for folder in _experiments(results)]
    experiments = [(load_experiment(layout.experiment), layout) for layout in layouts]
    if json:
        for experiment, layout in experiments:
            print(status.as_json(experiment.name, status.read(experiment, layout)))
        return
    titles = [
        e.name if e.name == layout.folder.resolve().name else f"{layout.folder} has the experiment {e.name}"
        for e, layout in experiments
    ]
    tables = [status.table(name, status.read(*each)) for name, each in zip(titles, experiments, strict=True)]
    print("\n\n".join(tables))


@track.command("sync")
def track_sync(results: Results) -> None:
    """Make MLflow show the training runs as their logs are now, also while they train."""
    from srpo.training.mirror import sync

    for folder in _experiments(results):
        print(f"{folder}: {sync(folder)}")


@track.command("copy")
def track_copy(
    results: Results,
    to: Annotated[str, Option("--to", metavar="LOGGER", help="one of verl's: wandb, tensorboard, swanlab and others")],
) -> None:
    """Copy the training runs, as they are now, to a logger that is not MLflow."""
    from srpo.training.loggers import copy_runs

    for folder in _experiments(results):
        for name in copy_runs(folder, to):
            print(f"{name}: copied")


# ---------------------------------------------------------------- shared by the verbs


@dataclass(frozen=True)
class _Opened:
    """A resolved experiment and its folder. What a verb's options name is checked here, before anything is computed."""

    experiment: config.Experiment
    layout: Layout

    def base_model(self, name: str) -> config.Model:
        return self._named(self.experiment.every_base_model(), "model", name)

    def data_set_of(self, benchmark: str, base_model: str) -> str:
        self.base_model(base_model)
        self._named(self.experiment.benchmarks, "benchmark", benchmark)
        return self.experiment.data_set(benchmark, base_model).data_set

    def data_set(self, name: str) -> config.Benchmark:
        return self._named(self.experiment.data_sets(), "benchmark", name)

    def run(self, model: str, benchmark: str, method: str, seed: int) -> RunId:
        from srpo.ground.layout import RunId

        self._named(self.experiment.models, "model", model)
        self._named(self.experiment.benchmarks, "benchmark", benchmark)
        self._named(self.experiment.methods, "method", method)
        run = RunId(model=model, benchmark=benchmark, method=method, seed=seed)
        self.experiment.run(run)
        return run

    def require(self, base_model: str, data_set: str, *splits: Literal["train", "test"]) -> None:
        """Check that what a verb reads is there."""
        for split in splits:
            _require(self.layout.split(data_set, split), f"srpo data --benchmark {data_set} --split {split}")
        self.require_base_model(base_model)

    def require_base_model(self, model: str) -> None:
        self.base_model(model)
        _require(self.layout.model_description(model), f"srpo model --model {model}")

    def evaluate(self, run: RunId) -> None:
        """Evaluate the checkpoints of a run that has finished."""
        with gc_paused():
            from srpo.training.evaluate_run import evaluate_checkpoints

        evaluate_checkpoints(self.experiment, run, self.layout)

    def _named(self, known: Mapping[str, T], kind: str, name: str) -> T:
        if name not in known:
            file = self.layout.experiment
            raise SrpoError(f"{file}: unknown {kind} {name!r}; the experiment has {', '.join(known)}")
        return known[name]


def _open(file: Path, resolved: Path | None) -> _Opened:
    """Load the resolved experiment, from ``--resolved`` if that is given, and check that results can be written."""
    from srpo.experiment.compose import check_same, is_resolved, load_experiment, write_resolved
    from srpo.ground.files import read_mapping
    from srpo.ground.layout import Layout, check_writable

    layout = Layout(file.parent)
    if file != layout.experiment:
        if Layout(file).experiment.is_file():
            raise SrpoError(f"--experiment {file}: a folder; give {Layout(file).experiment}")
        wanted = layout.experiment.name
        raise SrpoError(f"{file}: give a resolved {wanted}; srpo experiment {file} --output ... writes one")
    check_writable(layout.folder)
    if resolved is None and not file.exists():
        raise _no_experiment(layout.folder, f"; srpo experiment NAME --output {file} writes one")
    if resolved is not None and not resolved.is_file():
        raise SrpoError(f"--resolved {resolved}: no such file; start Snakemake again, which writes it")
    if resolved is None and "name" in (raw := read_mapping(file)) and not is_resolved(raw):
        there = Layout(Path("results") / str(raw["name"]))
        what = f"{file}: what to run, not its results"
        raise SrpoError(f"{what}; give {there.folder}, with --experiment {there.experiment}")
    opened = _Opened(load_experiment(resolved or file), layout)
    if resolved is not None:
        check_same(file, opened.experiment)
        write_resolved(resolved.read_text(), file)
    return opened


def _experiment_folder(folder: Path) -> Path:
    """A folder of one experiment's results; its resolved experiment stands for it.

    A published one is unpacked into ``results/published/NAME``.
    """
    from srpo.analysis import published
    from srpo.ground.layout import Layout, is_published

    if folder.name == Layout(folder).experiment.name:
        folder = folder.parent
    if is_published(folder):
        return published.unpacked(folder)
    if not Layout(folder).experiment.is_file():
        raise _no_experiment(folder, "; give results/NAME")
    return folder


def _no_experiment(folder: Path, otherwise: str) -> SrpoError:
    """The error for a folder without results."""
    from srpo.ground.layout import Layout

    missing = f"no {Layout(folder).experiment.name} here" if folder.exists() else "does not exist"
    return SrpoError(f"{folder}: {missing}{otherwise}")


def _experiments(results: Path) -> list[Path]:
    """The folders of one experiment's or of all experiments' results."""
    from srpo.ground.layout import Layout

    below = [folder for folder in sorted(results.glob("*")) if Layout(folder).experiment.exists()]
    one = Layout(results).experiment.exists() or not below
    return [_experiment_folder(folder) for folder in ([results] if one else below)]


def _resolved(experiment: config.Experiment, output: Path | None) -> None:
    """Print the resolved experiment, or write it where nothing is, or an older form of it."""
    from srpo.experiment.compose import check_same, resolved_text, write_resolved

    text = resolved_text(experiment)
    if output is None:
        print(text, end="")
        return
    _check_output(output)
    if output.exists() and not (isinstance(there := check_same(output, experiment), dict) and "methods" in there):
        raise SrpoError(f"{output} is there, and no resolved experiment; choose another file")
    write_resolved(text, output)


def _check_output(file: Path, option: str = "--output") -> None:
    from srpo.ground.layout import check_writable

    if file.is_dir():
        raise SrpoError(f"{option} {file}: a folder; give a file")
    check_writable(file.parent)


def _require(path: Path, remedy: str) -> None:
    if not path.exists():
        raise SrpoError(f"{path}: missing; make it with {remedy}")


def _load(experiment: str) -> config.Experiment:
    """The experiment of a name, of a file, or of standard input."""
    from srpo.experiment.compose import experiment_file, load_experiment
    from srpo.ground.files import parse_mapping

    with redirect_stdout(sys.stderr):  # what modules of rewards and branches print is not what a verb prints
        if experiment == "-":
            loaded = load_experiment(parse_mapping(sys.stdin.read(), "standard input"), where="standard input")
        else:
            loaded = load_experiment(experiment_file(experiment))
    if loaded.execution.verl_overrides and find_spec("verl"):
        with gc_paused():
            from srpo.policy.verl_config import check_overrides

        check_overrides(loaded)
    from srpo.training.lengths import check_experiment

    check_experiment(loaded)
    return loaded


if __name__ == "__main__":
    sys.exit(main())
