"""The map of regimes: where SRPO is ahead of GRPO and SDPO, by model and benchmark, beside what the base model does.

Models stand for one dial and benchmarks for another, for example how often the base model states a fact wrongly and
how many facts a question has.
"""

import pandas as pd

from srpo.analysis.results.estimates import PERCENT
from srpo.analysis.results.load import Results
from srpo.analysis.results.lookups import combine, estimate_columns
from srpo.analysis.results.matrix import BASE, is_paired, planned
from srpo.analysis.results.run_logs import RunLogs
from srpo.analysis.results.scores import Scores

RIVALS = ("grpo", "sdpo")
ROUTED = "routing/sdpo_fraction"
LENGTH = "response_length/mean"

_COLUMNS = [
    *("model", "benchmark", "quantity", "budget"),
    *estimate_columns("value", None),
    "seeds",
]


def regime_frame(results: Results) -> pd.DataFrame:
    """Every point of the map, a row a quantity.

    Quantities are the score of the untrained model (``base``, percent), of SRPO's first tenth of training the share of
    rollouts that it routes to SDPO (``routed``, percent) and the mean length of a response (``length``, tokens), and by
    budget the score of each method (``grpo``, ``sdpo``, ``srpo``, percent) and by how much SRPO is above its rivals
    (``srpo-grpo``, ``srpo-sdpo``, points). Each has a 95 % interval if there is one.
    """
    scores, logs = Scores.of(results), RunLogs.of(results)
    rows = []
    for model in results.experiment.models:
        plan, paired = planned(results, model), is_paired(results, model)
        for benchmark in plan.get("srpo", []):
            there = [name for name in (*RIVALS, "srpo") if benchmark in plan.get(name, [])]
            found = [("base", "", scores.estimate(model, {(BASE, BASE): 1.0}, [benchmark], "resampled"), 0)]
            for name, metric, unit, bounds in (("routed", ROUTED, 100.0, PERCENT), ("length", LENGTH, 1.0, None)):
                lookup = logs.metric(model, metric)
                estimate = combine(lookup, {("srpo", "early"): unit}, [benchmark], bounds, paired=paired)
                found.append((name, "", estimate, len(lookup(benchmark, "srpo", "early"))))
            for budget in results.experiment.training.budget_seconds:
                seeds = {name: scores.seeds(model, benchmark, name, budget, scores.protocol) for name in there}
                for name in there:
                    estimate = scores.estimate(model, {(name, budget): 1.0}, [benchmark])
                    found.append((name, budget, estimate, seeds[name]))
                for name in there[:-1]:
                    terms = {("srpo", budget): 1.0, (name, budget): -1.0}
                    estimate = scores.estimate(model, terms, [benchmark])
                    found.append((f"srpo-{name}", budget, estimate, min(seeds["srpo"], seeds[name])))
            for quantity, budget, estimate, number in found:
                row = {"model": model, "benchmark": benchmark, "quantity": quantity, "budget": budget}
                rows.append(row | estimate_columns("value", estimate) | {"seeds": number})
    return pd.DataFrame(rows, columns=_COLUMNS)


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows that say by how much SRPO is above a rival."""
    return frame[frame["quantity"].str.startswith("srpo-")]
