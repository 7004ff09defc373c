"""The matrices that decide between two methods (:mod:`srpo.plan.decide`) as text, with blocks to paste."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from srpo.analysis.results.power import POWER
from srpo.errors import SrpoError
from srpo.experiment.config import Experiment, short_name
from srpo.plan.decide import (
    PUBLISHED_RUN_SDS,
    QUESTION_SDS,
    RUN_SDS,
    SPREADS,
    Design,
    contrasted,
    designs,
    other_differences,
    parse_claim,
    plans,
)
from srpo.plan.measurements import read_measurements
from srpo.plan.plan import Plan
from srpo.plan.text import not_measured, table
from srpo.repository import CONFIGS
from srpo.text import joined

SHOWN = 2
"""Lines of the table for each model and budget."""


def decision(
    experiment: Experiment,
    claim: str,
    hours: float,
    folders: Sequence[Path] = (),
    gpu: str | None = None,
    source: str | None = None,
) -> str:
    """What ``srpo plan --decide`` prints.

    Args:
        experiment: whose models, benchmarks and settings there are to choose from.
        claim: ``A > B``, two methods.
        hours: GPU-hours that a matrix may take.
        folders: results folders of finished runs, whose seconds are used.
        gpu: a card, as for :func:`~srpo.plan.plan.make_plan`.
        source: what ``srpo plan`` was given; None: the experiment's name.

    Raises:
        SrpoError: if the claim or the hours are not what they should be, or too few.
    """
    if not 0 < hours < float("inf"):
        raise SrpoError(f"--gpu-hours {hours:g}: above 0")
    two = contrasted(experiment, parse_claim(claim))
    made = plans(two, read_measurements(folders, two), gpu)
    found = designs(two, made, hours)
    first, second = (two.methods[name].title for name in two.matrix[0].methods)
    plan = [*made.values()][-1]
    head = f"{two.name}: is {first} ahead of {second}? Matrices for {hours:g} GPU-hours; card: {plan.gpu}"
    source = source or two.name
    shipped = (CONFIGS / "experiments" / f"{two.name}.yaml").is_file()
    use = f"for a file that says extends: {two.name}" if shipped else f"instead of the matrix of {source}"
    parts = [head, _table(found), *(_proposal(options[0], two, use) for options in found.values())]
    return "\n\n".join([*parts, "\n".join(_notes(two, plan, found, source))]) + "\n"


def matrix_yaml(design: Design, experiment: Experiment) -> str:
    """What a design changes of an experiment, as a file has it."""
    lines = [f"{key}: [{', '.join(map(str, value))}]" for key, value in design.block.model_dump().items()]
    budgets = experiment.training.budget_seconds
    text = "matrix:\n  - " + "\n    ".join(lines)
    if design.budget == [*budgets][-1]:
        return text
    kept = ", ".join(f"{label}: {seconds:g}" for label, seconds in [*budgets.items()][: design.place + 1])
    return f"{text}\ntraining:\n  budget_seconds: {{{kept}}}"


def _table(found: dict[str, list[Design]]) -> str:
    rows = []
    for model, options in found.items():
        ranks = Counter[str]()
        for each in options:
            ranks[each.budget] += 1
            if ranks[each.budget] > SHOWN:
                continue
            lead = "unknown" if each.lead is None else f"{each.lead:.1f}"
            runs = len(each.block.benchmarks) * len(each.block.methods) * len(each.block.seeds)
            resolved = " to ".join(f"{setting.resolves:.1f}" for setting in (each.settings[0], each.settings[-1]))
            cells = (str(len(each.block.seeds)), str(runs), f"{each.gpu_hours:.0f}", resolved, lead)
            names = ", ".join(map(short_name, each.block.benchmarks))
            rows.append([model, each.budget, names, *cells, *map(_percent, each.chances)])
    header = ["model", "budget", "benchmarks", "seeds", "runs", "GPU-hours", "resolves ±", "paper's lead"]
    return table([*header, *(f"power {run:g}, {question:g}" for run, question in SPREADS)], rows)


def _percent(power: float | None) -> str:
    return "unknown" if power is None else "99%+" if power > 0.99 else f"{power:.0%}"


def _proposal(best: Design, experiment: Experiment, use: str) -> str:
    (model,) = best.block.models
    least, most = (best.settings[place].finds for place in (0, -1))
    finds = f"a true difference of {least:.1f} to {most:.1f} points with a power of {POWER:.0%}"
    return (
        f"Proposed with {model}, {use}. It takes {best.gpu_hours:.0f} GPU-hours to {best.budget} and finds "
        f"{finds}{_too_few(best)}:\n\n{matrix_yaml(best, experiment)}"
    )


def _too_few(best: Design) -> str:
    """A sentence if the paper's lead is found less often than usual at the larger values, after a full stop."""
    lead, chance = best.lead, best.chances[-1]
    if lead is None or chance is None or chance >= POWER:
        return ""
    if lead <= 0:
        return ". The paper has no such lead"
    missed = f"at the larger values it misses the paper's lead in about {10 * (1 - chance):.0f} of 10 cases"
    return f". These hours are too few: {missed}"


def _notes(experiment: Experiment, plan: Plan, found: dict[str, list[Design]], source: str) -> list[str]:
    names = experiment.matrix[0].methods
    others = joined([f"{sd} ({source})" for source, sd in PUBLISHED_RUN_SDS.items()])
    lines = [
        f"- Power {RUN_SDS[0]:g}, {QUESTION_SDS[0]:g}: a method's runs on a benchmark have an SD of {RUN_SDS[0]:g} "
        f"points, and the two methods' true difference has an SD of {QUESTION_SDS[0]:g} points over questions. "
        f"Published runs have {others} (docs/reproductions.md). Nobody has published the second SD; your runs show it.",
    ]
    if any(options[0].lead is not None for options in found.values()):
        lines.append(
            "- Each line has the best benchmarks of their number and budget, and the fewest seeds that find the "
            f"paper's lead with {POWER:.0%} power at the larger values. Proposed is the longest budget, then the most "
            "benchmarks, that do; else the most power. The paper has one run of each method, at the method's own "
            "settings, and the test questions chose its checkpoints: the true lead may be smaller."
        )
    else:
        lines.append("- The paper has no scores of both methods. Proposed is what finds the smallest difference.")
    if changed := other_differences(experiment, plan):
        what = joined([f"{key} ({one:g} and {other:g})" for key, (one, other) in changed.items()])
        lines.append(f"- {joined(names)} differ in {what}, too: this decides between them with these settings.")
    if plan.measured.folders and plan.computed:
        lines.append(f"- Not measured: {not_measured(plan)}; srpo plan computes their seconds without --from.")
    if not plan.measured.folders:
        lines.append(
            f"- srpo plan {source} computes the GPU-hours and shows their range: measure yours in a rehearsal first."
        )
    return lines
