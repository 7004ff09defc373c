"""Writes the computed parts of docs/gpus.md: plan, what GPU-hours buy, and published seconds.

    python scripts/paper_scale.py            # write them into the page
    python scripts/paper_scale.py --check    # fail if the page holds others

A part stands between its comment, ``<!-- plan -->``, and the next empty line outside of a code block.
"""

from __future__ import annotations

import argparse
import csv
import re
import sys
from pathlib import Path

from srpo.experiment import memory
from srpo.experiment.compose import load_experiment
from srpo.experiment.config import Experiment
from srpo.experiment.step_times import paper_step_seconds
from srpo.ground.repository import CONFIGS, REFERENCE
from srpo.plan import plan
from srpo.plan import text as plan_text
from srpo.plan.gpus import BEST, GPUS, USUAL, WORST, card_seconds
from srpo.plan.rehearse import rehearsal

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpus.md"
CARD = "h100"


def shipped(name: str) -> Experiment:
    """An experiment of configs/experiments."""
    return load_experiment(CONFIGS / "experiments" / f"{name}.yaml")


PAPER, ARMS = shipped("paper"), shipped("paper-arms")


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description="Writes the computed parts of docs/gpus.md.")
    parser.add_argument("--check", action="store_true", help="fail if the page is not current, and write nothing")
    options = parser.parse_args(arguments)
    before = PAGE.read_text()
    now = current(before)
    if options.check:
        return int(before != now)
    PAGE.write_text(now)
    return 0


def current(page: str) -> str:
    """The page with its computed parts as they are now."""
    parts = {"plan": planned(), "hours": bought(), "seconds": checked()}
    for name, part in parts.items():
        place = rf"(<!-- {name} -->\n\n)(```\n.*?\n```|.+?)(?=\n\n)"
        page, found = re.subn(place, lambda match, part=part: match[1] + part, page, flags=re.DOTALL)
        if found != 1:
            sys.exit(f"{PAGE}: {found} places <!-- {name} -->, 1 expected")
    return page


def planned() -> str:
    """What ``srpo plan paper-arms --gpu h100`` prints of runs and prices."""
    made = plan.make_plan(ARMS, gpu=CARD)
    return f"```\n{plan_text._table(made)}\n\n{plan_text._sums(made).splitlines()[0]}\n```"


def until(experiment: Experiment, hours: int, **changes: object) -> Experiment:
    """An experiment with the budgets up to these hours of the paper's, and other changes."""
    budgets = {f"{each}h": 3600.0 * each for each in (1, 5, 10) if each <= hours}
    training = experiment.training.model_copy(update={"budget_seconds": budgets})
    return experiment.model_copy(update={"training": training, **changes})


def bought() -> str:
    """GPU-hours of the steps of a day and of experiments, and between which they lie."""
    calibrated, controls = shipped("paper-calibrated"), shipped("paper-controls")
    (block,) = ARMS.matrix
    one = block.model_copy(update={"benchmarks": block.benchmarks[:1], "methods": ["srpo"], "seeds": [1]})
    rows = [
        ("scores of the untrained model of `paper-arms`", ARMS),
        ("`srpo rehearse paper-arms`", rehearsal(ARMS)),
        ("one run of SRPO to the budget `5h`", until(ARMS, 5, matrix=[one])),
        ("`paper-arms`, first stage (to `5h`)", ARMS),
        ("`paper-arms`, both stages (budget `10h: 36000` added)", until(ARMS, 10)),
        ("`paper-controls`: Qwen3-8B, 2 methods with 3 seeds, 3 methods with 1 seed", controls),
        ("`paper-calibrated`: the paper's 42 runs", calibrated),
        ("`paper`: the same runs with budgets of measured hours, for H20 cards", PAPER),
    ]
    lines = ["| buys | GPU-hours on H100 | between | disk, GB |", "| --- | ---: | ---: | ---: |"]
    for name, experiment in rows:
        made = [plan.make_plan(experiment, gpu=CARD, assumed=assumed) for assumed in (USUAL, BEST, WORST)]
        untrained = "untrained" in name
        hours = [8 * sum(each.base_seconds) / 3600 if untrained else each.device_hours for each in made]
        disk = made[0].base_bytes if untrained else made[0].disk_peak
        lines.append(f"| {name} | {hours[0]:.0f} | {hours[1]:.0f} to {hours[2]:.0f} | {disk / 1e9:.0f} |")
    return "\n".join(lines)


def checked() -> str:
    """Published seconds per step beside those that the plan computes."""
    rows = [("the paper, figure 4b, " + name.upper(), "h20", "qwen3-8b", name, f"{max_of[10.0]:g}")
            for name, max_of in paper_step_seconds().items()]  # fmt: skip
    with (REFERENCE / "step_seconds.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            seconds = 3600 * float(row["hours"]) / float(row["steps"])
            rows.append(
                (f"{row['source']}, {row['method'].upper()}", "h20", "qwen3-8b", row["method"], f"{seconds:.0f}")
            )
    lines = ["| published | card | seconds per step | the plan | between |", "| --- | --- | ---: | ---: | ---: |"]
    for source, card, model, method, seconds in rows:
        shape, settings = memory.shape_of(PAPER.models[model]), (PAPER.training, PAPER.execution, PAPER.methods[method])
        computed = [sum(card_seconds(GPUS[card], shape, *settings, assumed)) for assumed in (USUAL, BEST, WORST)]
        usual, best, worst = (f"{each:.0f}" for each in computed)
        lines.append(f"| {source} | 8 {card} | {seconds} | {usual} | {best} to {worst} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
