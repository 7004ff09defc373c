"""The matrices that decide between two methods (:mod:`srpo.plan.decide`) as text, with blocks to paste."""

from collections.abc import Sequence
from pathlib import Path

from srpo.analysis.results.power import ASSUMED_RUN_SD, POWER
from srpo.errors import SrpoError
from srpo.experiment.config import Block, Experiment, short_name
from srpo.plan.decide import (
    PUBLISHED_RUN_SDS,
    Design,
    contrasted,
    designs,
    other_differences,
    parse_claim,
)
from srpo.plan.measurements import read_measurements
from srpo.plan.plan import Plan, make_plan
from srpo.plan.text import not_measured, table
from srpo.text import joined

LARGEST_SD = max(PUBLISHED_RUN_SDS.values())


def decision(
    experiment: Experiment, claim: str, hours: float, folders: Sequence[Path] = (), gpu: str | None = None
) -> str:
    """What ``srpo plan --decide`` prints.

    Args:
        experiment: whose models, benchmarks and settings there are to choose from.
        claim: ``A > B``, two methods.
        hours: GPU-hours that a matrix may take.
        folders: results folders of finished runs, whose seconds are used.
        gpu: a card, as for :func:`~srpo.plan.plan.make_plan`.

    Raises:
        SrpoError: if the claim or the hours are not what they should be, or too few.
    """
    if not 0 < hours < float("inf"):
        raise SrpoError(f"--gpu-hours {hours:g}: above 0")
    two = contrasted(experiment, parse_claim(claim))
    plan = make_plan(two, measured=read_measurements(folders, two), gpu=gpu)
    found = designs(two, plan, hours)
    first, second = (two.methods[name].title for name in two.matrix[0].methods)
    head = f"{two.name}: is {first} ahead of {second}? Matrices for {hours:g} GPU-hours"
    if plan.gpu:
        head += f"; card: {plan.gpu}"
    parts = [head, _table(found), *(_proposal(model, options[0], two.name) for model, options in found.items())]
    return "\n\n".join([*parts, "\n".join(_notes(two, plan, found))]) + "\n"


def matrix_yaml(block: Block) -> str:
    """A matrix of one block as an experiment file has it."""
    lines = [f"{key}: [{', '.join(map(str, value))}]" for key, value in block.model_dump().items()]
    return "matrix:\n  - " + "\n    ".join(lines)


def _table(found: dict[str, list[Design]]) -> str:
    rows = []
    for model, options in found.items():
        for each in options:
            outcomes = (each.expected, each.cautious)
            lead = "unknown" if each.lead is None else f"{each.lead:.1f}"
            power = [_percent(outcome.chance) for outcome in outcomes]
            runs = len(each.block.benchmarks) * len(each.block.methods) * len(each.block.seeds)
            cells = (len(each.block.seeds), runs, f"{each.gpu_hours:.0f}", *(f"{one.resolves:.1f}" for one in outcomes))
            names = ", ".join(map(short_name, each.block.benchmarks))
            rows.append([model, names, *map(str, cells), lead, *power])
    sds = (f"SD {ASSUMED_RUN_SD}", f"SD {LARGEST_SD}")
    header = ["model", "benchmarks", "seeds", "runs", "GPU-hours", *(f"resolves ±, {sd}" for sd in sds)]
    return table([*header, "paper's lead", *(f"power, {sd}" for sd in sds)], rows)


def _percent(power: float | None) -> str:
    return "unknown" if power is None else "99%+" if power > 0.99 else f"{power:.0%}"


def _proposal(model: str, best: Design, name: str) -> str:
    finds = f"{best.expected.finds:.1f} points with a power of {POWER:.0%} ({best.cautious.finds:.1f} at the larger SD)"
    return (
        f"Proposed with {model}, for a file that says extends: {name}. It takes {best.gpu_hours:.0f} GPU-hours and "
        f"finds a true difference of {finds}{_too_few(best)}:\n\n{matrix_yaml(best.block)}"
    )


def _too_few(best: Design) -> str:
    """A sentence if the paper's lead is found less often than usual at the larger SD; it begins with a full stop."""
    lead, chance = best.lead, best.cautious.chance
    if lead is None or chance is None or chance >= POWER:
        return ""
    if lead <= 0:
        return ". The paper has no such lead"
    missed = f"at the larger SD it misses the paper's lead in about {10 * (1 - chance):.0f} of 10 cases"
    return f". These hours are too few: {missed}"


def _notes(experiment: Experiment, plan: Plan, found: dict[str, list[Design]]) -> list[str]:
    """What the numbers rest on."""
    names = experiment.matrix[0].methods
    others = joined([f"{sd} ({source})" for source, sd in PUBLISHED_RUN_SDS.items()])
    lines = [
        f"- SD between the runs of one method on one benchmark: {ASSUMED_RUN_SD} points are assumed, as in srpo plan; "
        f"others' runs at this scale have {others} (docs/reproductions.md). Samples add to it; questions, which all "
        "methods share, do not: measured intervals are wider.",
    ]
    if any(options[0].lead is not None for options in found.values()):
        lines.append(
            "- Each line has the best benchmarks of their number. Proposed is the most benchmarks that find the "
            f"paper's lead with {POWER:.0%} power at SD {LARGEST_SD}, else the most power. The paper's lead is that of "
            "one run of each method at its own settings, on the test questions that chose its checkpoints: a true one "
            "may be smaller."
        )
    else:
        lines.append("- The paper has no scores of both methods. Proposed is what finds the smallest difference.")
    if changed := other_differences(experiment, plan):
        what = joined([f"{key} ({one:g} and {other:g})" for key, (one, other) in changed.items()])
        lines.append(f"- {joined(names)} differ in {what}, too: this decides between them with these settings.")
    if plan.measured.folders and plan.computed:
        lines.append(f"- Not measured: {not_measured(plan)}; their seconds are those of srpo plan without --from.")
    if not plan.measured.folders:
        lines.append(
            f"- GPU-hours are those of srpo plan {experiment.name}, which has their range: measure yours in a "
            "rehearsal first."
        )
    return lines
