"""The command line: one verb per stage. The workflow's rules call it and so can you.

Commands that write results read the resolved experiment that ``srpo experiment`` wrote. Its folder is the
experiment's results folder, and all other paths follow from it (docs/architecture.md).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

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
    from srpo.experiment.job import Job
    from srpo.ground.layout import Layout
    from srpo.questions.splits import Question, SplitName

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
    return " ".join(error.format_message().split()) if isinstance(error, typer.TyperException) else str(error)


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
track = typer.Typer(cls=_Verbs, help="Show the runs in MLflow.")
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
Made = Annotated[Path, Argument(metavar="FILE", help="the file to make, below results/NAME", show_default=False)]
Settings = Annotated[
    list[str] | None,
    Argument(metavar="JSON", help="sections of the experiment; default: those of results/NAME/experiment.yaml"),
]


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
        str | None, Option(metavar="CARD", help="compute seconds per step from its data sheet: a10g, h100 and others")
    ] = None,
) -> None:
    """Estimate hours, disk and memory of an experiment. It says where the numbers come from."""
    from srpo.plan.measurements import read_measurements
    from srpo.plan.plan import make_plan
    from srpo.plan.text import render
    from srpo.plan.warnings import warnings

    experiment = _load(file)
    folders = [_experiment_folder(path) for path in measured or []]
    known = read_measurements(folders, experiment)
    made = make_plan(experiment, nodes, known, gpu)
    print(render(made), end="")
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

    made = rehearsal(_load(file))
    _resolved(made, output)
    if output is not None:
        print(f"snakemake --cores all --resources gpu={made.execution.ranks} --configfile {output}")


@app.command("split")
def split(
    file: Made,
    settings: Settings = None,
    mirror: Annotated[
        Path | None,
        Option(metavar="DIR", envvar="SRPO_MIRROR", help="read sources from this copy of their repository"),
    ] = None,
) -> None:
    """Write a split of a benchmark: results/NAME/data/BENCHMARK/train.parquet or test.parquet."""
    _, names, job = _job(file, settings, "split")

    from srpo.questions.splits import write_split
    from srpo.starts.data import build_split

    name: SplitName = "train" if names["split"] == "train" else "test"
    write_split(file, build_split(job.benchmark, name, mirror), name)


@app.command("statistics")
def statistics(file: Made, settings: Settings = None) -> None:
    """Describe the splits of a benchmark that are there."""
    layout, names, job = _job(file, settings, "statistics")

    from srpo.ground.files import write_json
    from srpo.starts.data import split_statistics

    write_json(file, split_statistics(job.benchmark, _splits(layout, names["data_set"])))


@app.command("model")
def make_model(
    file: Made,
    settings: Settings = None,
    data: Annotated[list[Path] | None, Option(metavar="FILE", help="a train split that the warm start reads")] = None,
    store: Annotated[bool, Option("--store", help="build a toy and store it in configs/models/stored")] = False,
) -> None:
    """Build or fetch a base model: results/NAME/models/MODEL/base.json, with the model beside it."""
    _, _, job = _job(file, settings, "model")

    from srpo.starts import build_model, store_model

    if store:
        from srpo.training.provenance import origin

        print(f"{job.model.name}: {store_model(job.model, origin())}")
        return
    build_model(job.model, file.parent, {path.parent.name: path for path in data or []})


@app.command("train")
def train(
    file: Made,
    settings: Settings = None,
    stop_at: Annotated[
        float | None,
        Option(metavar="SECONDS", min=_SOME_DAY, help="stop with a checkpoint before this time, since the epoch"),
    ] = None,
) -> None:
    """Train one run: results/NAME/runs/MODEL/BENCHMARK/METHOD/seedN/summary.json. An interrupted run continues."""
    layout, _, job = _job(file, settings, "train")
    with gc_paused():
        from srpo.training import loop

    loop.train(job.spec, layout, job_end() if stop_at is None else stop_at, job.code)


@app.command("attempt")
def attempt(
    log: Annotated[Path, Option(metavar="FILE", help="becomes a link to this attempt's log")],
    command: Annotated[list[str], Argument(metavar="COMMAND", help="after --: srpo train and its arguments")],
    requeue: Annotated[str, Option(metavar="COMMAND", help="requeues the job at its time limit")] = "",
) -> int:
    """Run srpo train as one attempt, with its record and log. At its time limit the job is requeued."""
    from srpo.training import attempts
    from srpo.training.mirror import live

    folder = next(Path(word).parent for word in command if word.endswith("summary.json"))
    with live(folder):
        return attempts.attempt(command, folder, log, requeue)


@app.command("evaluate")
def evaluate(file: Made, settings: Settings = None) -> None:
    """Evaluate a run's selected checkpoints, or an untrained model, whose files are in results/NAME/base."""
    layout, names, job = _job(file, settings, "evaluate", "evaluate_base")
    with gc_paused():
        from srpo.training.evaluate_run import evaluate_base, evaluate_checkpoints

    if "method" in names:
        evaluate_checkpoints(job, layout)
    else:
        evaluate_base(job, names["benchmark"], layout)


@app.command("gap")
def gap(
    file: Made,
    settings: Settings = None,
    questions: Annotated[int, Option(metavar="N", min=8, help="of the train split, drawn at random")] = 48,
) -> None:
    """Measure whether a shown sibling helps: results/NAME/base/MODEL/BENCHMARK/gap.json.

    The command compares self-teacher and student on train questions, before any training.
    """
    layout, names, job = _job(file, settings, "gap")
    with gc_paused():
        from srpo.analysis import gap as numbers
        from srpo.training.provenance import made_from
        from srpo.training.self_teacher import sample_teacher
    from srpo.ground.files import write_json

    origin = made_from(job, layout, "gap")
    samples = sample_teacher(job, names["benchmark"], layout, questions)
    found = numbers.gap_estimates(samples)
    write_json(file, numbers.as_json(samples, found) | {"from": origin})
    asked, each = samples.rollouts.shape
    shown = f"{asked} train questions x {each} samples, {len(samples.shown)} with a right one"
    what = f"{job.model.name} on {names['benchmark']}, untrained: {shown}"
    print(numbers.gap_text(found, what), numbers.verdict(found), file, sep="\n\n")


@app.command("publish")
def publish(
    results: Annotated[Path, Argument(metavar="results/NAME")],
    to: Annotated[Path, Option(metavar="DIR", help="NAME is written below it")] = Path("published"),
) -> None:
    """Write a finished experiment's numbers to published/NAME. All its tables can be made again from there."""
    from srpo.analysis import published
    from srpo.ground.layout import Layout, is_published

    source, folder = _experiment_folder(results), to / results.name
    if is_published(results) or folder.resolve() == source.resolve():
        raise SrpoError(f"publish {results} --to {to}: give results/NAME, and another folder to publish it in")
    found = published.publish(Layout(source), folder)
    if "-dirty" in str(found["commit"]):
        print(f"srpo: warning: {folder}: of a commit with local changes, which nobody can train again", file=sys.stderr)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{folder}: {found['runs']} runs, {size / 1e6:.2f} MB")


@app.command("report")
def report(
    results: Annotated[Path, Argument(metavar="results/NAME", show_default=False)],
    only_tables: Annotated[bool, Option("--only-tables", help="without figures and the page")] = False,
) -> None:
    """Make a report of the runs so far."""
    from srpo.ground.layout import Layout

    layout = Layout(_experiment_folder(results))
    with gc_paused():
        from srpo.analysis.load import load_results
        from srpo.analysis.write import write_tables
        from srpo.training.provenance import checked_experiment

    loaded = load_results(layout.folder, checked_experiment(layout))
    write_tables(loaded, layout.tables)
    if not only_tables:
        from srpo.analysis.report import write_report
        from srpo.analysis.write import write_figures

        write_figures(loaded, layout.figures)
        write_report(loaded, layout.report)
        print(layout.report)


@app.command("tune")
def tune(
    results: Annotated[Path, Argument(metavar="results/NAME")],
    output: Annotated[
        Path | None, Option(metavar="FILE", help="e.g. configs/tuned/NAME.yaml; default: results/NAME/tuned.yaml")
    ] = None,
) -> None:
    """Write the best hyperparameters of a finished search. All trials and their cost are in the file."""
    from srpo.experiment import tuning
    from srpo.ground.layout import Layout
    from srpo.training.provenance import checked_experiment

    layout = Layout(_experiment_folder(results))
    tuning.write(tuning.collect(checked_experiment(layout), layout), output or layout.tuned)


@app.command("status")
def show_status(results: Results) -> None:
    """Show the state of every run. Stage, step, clock, last avg@k, speed, time left, attempts, last error."""
    from srpo.experiment.compose import load_experiment
    from srpo.ground.layout import Layout
    from srpo.training import status

    layouts = [Layout(folder) for folder in _experiments(results)]
    experiments = [(load_experiment(layout.experiment), layout) for layout in layouts]
    titles = [
        e.name if e.name == layout.folder.resolve().name else f"{layout.folder} has the experiment {e.name}"
        for e, layout in experiments
    ]
    tables = [status.table(name, status.read(*each)) for name, each in zip(titles, experiments, strict=True)]
    print("\n\n".join(tables))


@track.command("sync")
def track_sync(results: Results) -> None:
    """Make MLflow show runs and report as their files are now, also while runs train."""
    from srpo.training.mirror import sync

    for folder in _experiments(results):
        print(f"{folder}: {sync(folder)}")


# ---------------------------------------------------------------- shared by the verbs


def _job(file: Path, sections: list[str] | None, *commands: str) -> tuple[Layout, dict[str, str], Job]:
    """The results folder of a file, the names in its path, and what the command reads of the experiment."""
    from srpo.experiment.compose import load_experiment
    from srpo.experiment.job import job_of, read_job
    from srpo.ground.layout import located

    layout, names = located(file, *commands)
    if sections:
        return layout, names, read_job(sections, names)
    return layout, names, job_of(load_experiment(layout.experiment), names)


def _splits(layout: Layout, data_set: str) -> dict[SplitName, list[Question]]:
    """The splits of a data set that are there."""
    from srpo.questions.splits import read_split

    names: tuple[SplitName, ...] = ("train", "test")
    paths = {name: layout.split(data_set, name) for name in names}
    return {name: read_split(path) for name, path in paths.items() if path.exists()}


def _experiment_folder(folder: Path) -> Path:
    """A folder of one experiment's results; its resolved experiment stands for it.

    A published one is unpacked into ``results/published/NAME``.
    """
    from srpo.ground.layout import Layout, is_published

    if folder.name == Layout(folder).experiment.name:
        folder = folder.parent
    if is_published(folder):
        from srpo.analysis.published import unpacked

        return unpacked(folder)
    if not Layout(folder).experiment.is_file():
        missing = f"no {Layout(folder).experiment.name} here" if folder.exists() else "does not exist"
        raise SrpoError(f"{folder}: {missing}; give results/NAME")
    return folder


def _experiments(results: Path) -> list[Path]:
    """The folders of one experiment's or of all experiments' results."""
    from srpo.ground.layout import Layout

    below = [folder for folder in sorted(results.glob("*")) if Layout(folder).experiment.exists()]
    one = Layout(results).experiment.exists() or not below
    return [_experiment_folder(folder) for folder in ([results] if one else below)]


def _resolved(experiment: config.Experiment, output: Path | None) -> None:
    """Print the resolved experiment, or write it where nothing is, or an older form of it."""
    from srpo.experiment.compose import resolved_text
    from srpo.ground.files import read_yaml, write_text

    text, there = resolved_text(experiment), None
    if output is None:
        print(text, end="")
    elif not output.exists():
        write_text(output, text)
    elif output.read_bytes() != text.encode():
        with suppress(SrpoError):  # no YAML is no experiment
            there = read_yaml(output)
        if not (isinstance(there, dict) and "methods" in there and there.get("name") == experiment.name):
            raise SrpoError(f"{output} is there, and not an older form of {experiment.name}; choose another file")
        write_text(output, text)


def _load(experiment: str) -> config.Experiment:
    """The experiment of a name, of a file, or of standard input."""
    from srpo.experiment.compose import experiment_file, load_experiment
    from srpo.ground.files import parse_mapping

    with redirect_stdout(sys.stderr):  # what modules of rewards and branches print is not what a verb prints
        if experiment == "-":
            loaded = load_experiment(parse_mapping(sys.stdin.read(), "standard input"), where="standard input")
        else:
            loaded = load_experiment(experiment_file(experiment))
    from srpo.training.lengths import check_experiment

    check_experiment(loaded)
    return loaded


if __name__ == "__main__":
    sys.exit(main())
