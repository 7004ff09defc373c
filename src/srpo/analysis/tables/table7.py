"""Table 7: which branch each kind of rollout takes, by method."""

import pandas as pd

from srpo.algorithm.branches import BRANCHES
from srpo.analysis.results import Results
from srpo.analysis.tables.table import Table, View
from srpo.analysis.tables.table3 import method_spec

_CASES = {
    "correct_with_sibling": ("Correct", "sibling available"),
    "correct_without_sibling": ("Correct", "no sibling"),
    "wrong_with_sibling": ("Wrong", "sibling available"),
    "wrong_without_sibling": ("Wrong", "no sibling"),
}


def table(results: Results) -> Table:
    routings = []
    for name in results.experiment.methods:
        method, _ = method_spec(results, name)
        last = method.first_phase_steps
        steps = [f"steps 1 to {last}", f"from step {last + 1}"] if last else [""]
        for phase, of_steps in zip(method.phases, steps, strict=True):
            routings.append((name, of_steps, {case: getattr(phase.routing, case) for case in _CASES}))
    several = any(of_steps for _, of_steps, _ in routings)
    rows = [{"method": name} | ({"steps": steps} if several else {}) | routing for name, steps, routing in routings]
    frame = pd.DataFrame(rows, columns=["method", *(["steps"] if several else []), *_CASES])
    body = [
        (", ".join(filter(None, [results.method_title(name), of_steps])), [BRANCHES[to].title for to in taken.values()])
        for name, of_steps, taken in routings
    ]
    views = [View("Method", list(_CASES.values()), body, "Branch", numeric=False)] if body else []
    notes = ["A sibling is available if another rollout of the same question is correct."]
    return Table("The branch a rollout takes (the paper's table 7)", frame, notes, views=views)
