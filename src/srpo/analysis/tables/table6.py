"""Table 6: the branch of each rollout of one group, and the sibling that the teacher was shown."""

from typing import Any

import pandas as pd

from srpo.algorithm.branches import BRANCHES
from srpo.analysis.results import Results
from srpo.analysis.tables.table import Bold, Table, View, number
from srpo.ground.text import printable
from srpo.questions.rewards import shown_answer

EXCERPT = 240
"""Maximum number of characters of a text that a reader sees."""

_ROUTED = [
    *("model", "benchmark", "method", "seed", "step", "question", "prompt", "ground_truth", "rollout", "correct"),
    *("sibling_available", "branch", "sibling_shown", "advantage", "response_length", "truncated", "response"),
]


def table(results: Results) -> Table:
    title = "The routing decision on a real group (the paper's table 6)"
    if results.routed_group is None:
        return Table(title, pd.DataFrame(columns=_ROUTED), [_why_no_group(results)])
    (run, group), every = results.routed_group, results.experiment.training.validate_every
    correct = [rollout["reward"] == 1 for rollout in group["rollouts"]]
    shared = run.model_dump() | {"step": group["step"], "question": group["question"]}
    shared |= {name: printable(group[name]) for name in ("prompt", "ground_truth")}
    rows, body = [], []
    for i, rollout in enumerate(group["rollouts"]):
        sibling = rollout["sibling"]
        row = {
            **shared,
            "rollout": i + 1,
            "correct": correct[i],
            "sibling_available": any(correct[:i] + correct[i + 1 :]),
            "branch": rollout["branch"],
            "sibling_shown": None if sibling is None else sibling + 1,
            "advantage": rollout["advantage"],
            "response_length": rollout["response_length"],
            "truncated": rollout["truncated"],
            "response": printable(rollout["response"]),
        }
        texts = [
            "yes" if row["correct"] else "no",
            "yes" if row["sibling_available"] else "no",
            BRANCHES[row["branch"]].title,
            _why_routed(row, rollout),
            number(row["advantage"], 3, sign=True),
            f"{row['response_length']}{' (cut off)' if row['truncated'] else ''}",
            _one_line(rollout["response"]),
        ]
        rows.append(row)
        body.append((f"Rollout {i + 1}", texts))
    truth = shown_answer(results.experiment.benchmarks[run.benchmark].reward, group["ground_truth"])
    asked = f"Question: {_one_line(group['prompt'])} Correct answer: {_one_line(truth)}"
    heads = ["Correct?", "Sibling available?", "Route", "Explanation", "Advantage", "Tokens", "Response"]
    view = View("Rollout", heads, [(Bold(asked), []), *body], numeric=False)
    notes = [
        f"{results.run_title(*run.model_dump().values())}, training step {group['step']}. The group was not "
        f"selected by hand: every step whose number is a multiple of {every} logs its first group with correct and "
        "wrong rollouts. This is the first logged group with rollouts in both branches, of the first run that has one.",
        "Advantage: reward minus the group's mean, before any routing; only rollouts in the GRPO branch are trained "
        "with it. Long texts are cut in the middle; the CSV holds more of them.",
    ]
    frame = pd.DataFrame(rows, columns=_ROUTED).astype({"sibling_shown": "Int64"})
    return Table(title, frame, notes, {"advantage": 4}, [view])


def _why_no_group(results: Results) -> str:
    if not any(method.routes_samples for method in results.experiment.methods.values()):
        return "No method of this experiment sends rollouts to both branches."
    every = results.experiment.training.validate_every
    return f"No group with rollouts in both branches is logged (yet). A run logs one group every {every} steps."


def _why_routed(row: dict[str, Any], rollout: dict[str, Any]) -> str:
    shown = []
    if "earlier_step" in rollout:
        shown.append(f"a correct response of step {rollout['earlier_step']}")
    if row["sibling_shown"] is not None:
        shown.append(f"rollout {row['sibling_shown']}")
    if "ground_truth_shown" in rollout:
        shown.append("the right answer")
    if shown:
        return f"The self-teacher is shown {' and '.join(shown)}"
    if BRANCHES[row["branch"]].loss is None:
        return "Not trained on"
    if row["sibling_available"]:
        return f"{'Correct' if row['correct'] else 'Wrong'}; a sibling is available but not shown"
    return "The only correct rollout: no sibling" if row["correct"] else "No correct rollout: no sibling"


def _one_line(text: str) -> str:
    return printable(" ".join(text.split()), EXCERPT)
