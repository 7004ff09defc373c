"""Writes the computed parts of docs/paper-scale.md: plan, matrices for a budget, disk to free, cost of attention.

    python scripts/paper_scale.py            # write them into the page
    python scripts/paper_scale.py --check    # fail if the page holds others

A part stands between its comment, ``<!-- plan -->``, and the next empty line outside of a code block.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from srpo.cost import memory
from srpo.cost.flops import model_cost
from srpo.experiment.compose import load_experiment
from srpo.plan import plan
from srpo.plan import text as plan_text
from srpo.plan.decide_text import decision
from srpo.repository import CONFIGS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "paper-scale.md"
PAPER = load_experiment(CONFIGS / "experiments" / "paper.yaml")


def main(arguments: list[str] | None = None) -> int:
    """Write or check the page.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(description="Writes the computed parts of docs/paper-scale.md.")
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
    parts = {"plan": planned(), "decide": decided(), "freed": freed(), "attention": attention()}
    for name, part in parts.items():
        place = rf"(<!-- {name} -->\n\n)(```\n.*?\n```|.+?)(?=\n\n)"
        page, found = re.subn(place, lambda match, part=part: match[1] + part, page, flags=re.DOTALL)
        if found != 1:
            sys.exit(f"{PAGE}: {found} places <!-- {name} -->, 1 expected")
    return page


def planned() -> str:
    """What ``srpo plan paper`` prints."""
    return "```\n" + plan_text.render(plan.make_plan(PAPER)) + "```"


def decided() -> str:
    """What the command above it prints."""
    calibrated = load_experiment(CONFIGS / "experiments" / "paper-calibrated.yaml")
    return "```\n" + decision(calibrated, "srpo > grpo_at_srpo_settings", 700, gpu="h100") + "```"


def freed() -> str:
    """Disk of the finished experiment with and without what only a continuation reads."""
    made = plan.make_plan(PAPER)
    spare = 0.0
    for run in made.runs:
        teacher = PAPER.methods[run.run.method].teacher_has_weights
        size = memory.checkpoint_bytes(made.shapes[run.run.model], PAPER.execution, teacher)
        spare += size.total - size.weights
    return f"That frees {spare / 1e9:.0f} of {made.disk_end / 1e9:.0f} GB."


def attention() -> str:
    """FLOPs of a forward pass over the largest micro-batch, with a dense mask and by sequence."""
    tokens = memory.micro_batch_tokens(PAPER.execution, PAPER.training)
    lines = [
        f"| {tokens:,} tokens of | sequences of | layers, TFLOP | attention, flash-attn | dense | more |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, model in PAPER.models.items():
        cost = model_cost(memory.shape_of(model))
        matmul, dense = 2 * cost.matmul_parameters * tokens, 4 * cost.attention_width * tokens**2
        for length in (1024, 4096, PAPER.training.max_prompt_length + PAPER.training.max_response_length):
            packed = cost.forward_flops([length] * (tokens // length)) - matmul
            more = (matmul + dense) / (matmul + packed) - 1
            cells = (f"{length:,}", *(f"{flops / 1e12:.0f}" for flops in (matmul, packed, dense)), f"{more:.0%}")
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
