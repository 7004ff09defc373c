"""The verdict on every claim, a row per claim and model.

``holding`` of ``benchmarks``: on how many the claim holds by its own interval, uncorrected. ``over_benchmarks``: the
average with its interval over new benchmarks, which decides nothing.
"""

from typing import Any

import pandas as pd

from srpo.analysis.claims import Claim
from srpo.analysis.results import MISSING, SCORE_TITLES, Results, estimate_columns
from srpo.analysis.statistics.estimates import Estimate
from srpo.analysis.tables.table import Table, View, comparability, interval, number
from srpo.analysis.verdicts import Finding, Outcome, findings

_NUMBERS = [f"{name}{end}" for name in ("estimate", "over_benchmarks") for end in ("", "_low", "_high")]
_COLUMNS = ["claim", "title", "family", "model", "verdict", "unit", "score", *estimate_columns("estimate", None)]
_COLUMNS += ["p_holds", "p_holds_adjusted", "p_violated", "p_violated_adjusted", "base_models", "holding"]
_COLUMNS += ["benchmarks", *estimate_columns("over_benchmarks", None)]


def table(results: Results) -> Table:
    rows, views, found = [], [], findings(results)
    for place, spec in enumerate(results.experiment.models.values()):
        rows += [_row(finding, finding.outcomes[place]) for finding in found]
        if body := [_texts(f, f.outcomes[place]) for f in found if f.outcomes[place].estimate is not None]:
            heads = ["Verdict", "Estimate", "Score", "Base models or seeds", "Benchmarks", "Over new benchmarks"]
            views.append(View("Claim", heads, body, spec.title, numeric=False))
    notes = [
        "In brackets 95 % intervals. Benchmarks: on how many the claim holds by the benchmark's own interval. The "
        "interval over new benchmarks decides nothing. The CSV has the p-values, and claims that are not tested.",
        *comparability(results),
    ]
    p_values = [name for name in _COLUMNS if name.startswith("p_")]
    digits = dict.fromkeys(_NUMBERS, 3) | dict.fromkeys(p_values, 5)
    whole = dict.fromkeys(["base_models", "holding", "benchmarks"], "Int64")
    frame = pd.DataFrame(rows, columns=_COLUMNS).astype(whole)
    return Table("The verdicts", frame, notes if views else [], digits, views)


def _row(finding: Finding, outcome: Outcome) -> dict[str, Any]:
    claim, estimate = finding.claim, outcome.estimate
    row: dict[str, Any] = {"claim": claim.id, "title": claim.statement, "model": outcome.model, "unit": claim.unit}
    row |= {"family": "question" if claim.ours else claim.kind, "verdict": outcome.verdict, "score": outcome.score}
    row |= estimate_columns("estimate", estimate) | estimate_columns("over_benchmarks", outcome.over_benchmarks)
    if estimate is not None:
        row |= {"p_holds": claim.rule.p_holds(estimate), "p_violated": claim.rule.p_violated(estimate)}
        row |= {"p_holds_adjusted": outcome.p_holds, "p_violated_adjusted": outcome.p_violated}
        row |= {"holding": outcome.holding, "benchmarks": outcome.benchmarks}
        row["base_models"] = estimate.count if estimate.paired else None
    return row


def _texts(finding: Finding, outcome: Outcome) -> tuple[str, list[str]]:
    claim, estimate, over = finding.claim, outcome.estimate, outcome.over_benchmarks
    assert estimate is not None
    ends = interval(over.low, over.high, claim.digits, claim.signed) if over is not None else ""
    texts = [
        outcome.verdict,
        estimate_text(claim, estimate),
        SCORE_TITLES.get(outcome.score, MISSING),
        str(estimate.count) if estimate.several_seeds else MISSING,
        f"{outcome.holding} of {outcome.benchmarks}" if outcome.several_seeds else MISSING,
        ends or MISSING,
    ]
    return claim.statement, texts


def estimate_text(claim: Claim, estimate: Estimate) -> str:
    """``+5.8 points [-2.0, +13.2]``; no interval if it says nothing about other runs."""
    ends = interval(estimate.low, estimate.high, claim.digits, claim.signed) if estimate.covers_runs else ""
    return f"{number(estimate.value, claim.digits, claim.signed)} {claim.unit} {ends}".strip()
