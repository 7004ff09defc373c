"""Seconds per step on the training clock: the numbers of figure 4b."""

import pandas as pd

from srpo.analysis.paper import paper_figure_4b
from srpo.analysis.results import Results, estimate_columns
from srpo.analysis.statistics.contrasts import available, combine
from srpo.training.clock import PHASES

SECONDS = {"step_seconds": "step_seconds", **{phase: f"phase_seconds/{phase}" for phase in PHASES}}
"""Columns of :func:`step_seconds`, and the columns of the step log that they average."""


def step_seconds(results: Results) -> pd.DataFrame:
    """Mean seconds per step on the training clock up to each budget: the total with its interval, and each phase.

    Averaged over the benchmarks on which all methods of the model have reached the budget, so that methods can be
    compared; a method that has reached it nowhere does not count. ``benchmarks`` is the number of these benchmarks,
    ``seeds`` the smallest number of runs; ``paper`` what the paper has, if the experiment may be compared with it.
    """
    rows = []
    for model in results.experiment.models:
        plan, total = results.plans[model], results.of(model, "step_seconds")
        paired = results.experiment.draws_per_seed(model)
        for budget in results.budget_seconds:
            reached = {m: available(total, {(m, budget): 1.0}, benchmarks) for m, benchmarks in plan.items()}
            reached = {method: benchmarks for method, benchmarks in reached.items() if benchmarks}
            shared = [b for b in results.experiment.benchmarks if all(b in there for there in reached.values())]
            for method in reached if shared else ():
                row = {"model": model, "method": method, "budget": budget, "benchmarks": len(shared)}
                row["seeds"] = min(len(total[b, method, budget]) for b in shared)
                for name, column in SECONDS.items():
                    estimate = combine(results.of(model, column), {(method, budget): 1.0}, shared, paired=paired)
                    found = estimate_columns(name, estimate)
                    row |= found if name == "step_seconds" else {name: found[name]}
                rows.append(row)
    ends = ["step_seconds_low", "step_seconds_high", "step_seconds_unit"]
    frame = pd.DataFrame(rows, columns=["model", "method", "budget", "benchmarks", "seeds", *SECONDS, *ends])
    comparable = results.experiment.comparable_with_paper
    return frame.merge(paper_figure_4b(results.experiment), how="left") if comparable else frame
