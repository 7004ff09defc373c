"""The paper's claims as data (``reports/claims.yaml``), and the verdict on each. Nothing here names a claim."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from srpo.analysis.load import RUN_KEY, Results
from srpo.analysis.logs import Logs, relative
from srpo.analysis.scores import BASE, Lookup, Scores, available, combine, model_benchmarks, planned
from srpo.analysis.statistics import Estimate
from srpo.config import Config
from srpo.errors import SrpoError

CLAIMS = Path(__file__).resolve().parents[3] / "reports" / "claims.yaml"

Verdict = Literal["holds", "does not hold", "undecided", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("holds", "does not hold", "undecided", "not tested")

_BUDGETS = {"first", "next_to_last", "last"}
_WHEN = {
    "score": _BUDGETS | {"base"},
    "step_seconds": _BUDGETS,
    "metric": {"early", "late", "all"},
    "fall": {"end"},
}


class Quantity(Config):
    """What is computed for each model: a contrast of ``terms`` (weight, method, when)."""

    kind: Literal["score", "metric", "step_seconds", "fall"]
    terms: Annotated[list[tuple[float, str, str]], Field(min_length=1)]
    score: Literal["in_training", "resampled"] | None = None
    metric: str | None = None
    relative_to: str | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Quantity:
        for _, method, when in self.terms:
            if when not in _WHEN[self.kind] or (method == BASE) != (when == BASE):
                raise ValueError(f"term {method} {when}: kind {self.kind} allows {', '.join(sorted(_WHEN[self.kind]))}")
        for key, kind in (("score", "score"), ("metric", "metric"), ("relative_to", "step_seconds")):
            if getattr(self, key) is not None and self.kind != kind:
                raise ValueError(f"{key} belongs to kind {kind}")
        if self.kind == "metric" and self.metric is None:
            raise ValueError("kind metric needs metric")
        return self


class Rule(Config):
    """The interval must lie above or below a number."""

    above: float | None = None
    below: float | None = None

    @model_validator(mode="after")
    def _one_side(self) -> Rule:
        if (self.above is None) == (self.below is None):
            raise ValueError("give above or below")
        return self

    def verdict(self, estimate: Estimate) -> Verdict:
        """``holds`` if the whole interval satisfies the rule, ``does not hold`` if none of it does."""
        if not estimate.has_interval:
            return "undecided"
        sign = 1 if self.above is not None else -1
        low, high = sorted((sign * estimate.low, sign * estimate.high))
        threshold = sign * (self.above if self.above is not None else self.below)
        return "holds" if low > threshold else "does not hold" if high < threshold else "undecided"


class Claim(Config):
    """One claim of the paper, or with ``ours`` a question of ours about one that the paper does not test."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    statement: str
    section: Annotated[str, Field(coerce_numbers_to_str=True)]
    quantity: Quantity
    unit: str
    rule: Rule
    paper: dict[str, float] | str
    evidence: str
    ours: bool = False

    @property
    def digits(self) -> int:
        """Decimals to show."""
        return 3 if self.unit == "nats" else 1

    @property
    def signed(self) -> bool:
        """Whether the quantity is a difference, shown with its sign."""
        return any(weight < 0 for weight, _, _ in self.quantity.terms)


@dataclass(frozen=True)
class Outcome:
    """A claim's quantity for one model; without an estimate ``reason`` says why."""

    model: str
    verdict: Verdict
    estimate: Estimate | None = None
    benchmarks: int = 0
    of_benchmarks: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Finding:
    """A claim with its outcomes and the verdict on all of them."""

    claim: Claim
    outcomes: list[Outcome]
    verdict: Verdict


@cache
def load_claims(path: Path = CLAIMS) -> tuple[Claim, ...]:
    """Read and check a file of claims.

    Raises:
        SrpoError: naming the claim and key that is wrong.
    """
    try:
        raw = yaml.safe_load(path.read_text())
        claims = TypeAdapter(tuple[Claim, ...]).validate_python(raw)
    except OSError as error:
        raise SrpoError(f"{path}: cannot be read ({error.strerror})") from error
    except yaml.YAMLError as error:
        raise SrpoError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SrpoError(f"{path}: {_place(raw, first['loc'])}: {first['msg'].removeprefix('Value error, ')}") from error
    ids = [claim.id for claim in claims]
    if len(set(ids)) < len(ids):
        raise SrpoError(f"{path}: two claims share an id: {', '.join(sorted({i for i in ids if ids.count(i) > 1}))}")
    return claims


def _place(raw: Any, loc: tuple[Any, ...]) -> str:
    """Where in the file: the claim's id rather than its number."""
    if loc and isinstance(loc[0], int) and isinstance(raw[loc[0]], dict):
        loc = (raw[loc[0]].get("id", loc[0]), *loc[1:])
    return ".".join(map(str, loc)) or "top level"


# ---------------------------------------------------------------- verdicts


def findings(results: Results, claims: tuple[Claim, ...] | None = None) -> list[Finding]:
    """Every claim held against ``results``, in the file's order."""
    found = []
    for claim in claims if claims is not None else load_claims():
        outcomes = [_outcome(claim, results, model) for model in results.experiment.models]
        found.append(Finding(claim, outcomes, overall([outcome.verdict for outcome in outcomes])))
    return found


def overall(verdicts: list[Verdict]) -> Verdict:
    """A claim is about every model: one against it and it does not hold; models that do not test it do not count."""
    tested = [verdict for verdict in verdicts if verdict != "not tested"]
    if not tested:
        return "not tested"
    if "does not hold" in tested:
        return "does not hold"
    return "holds" if set(tested) == {"holds"} else "undecided"


def _outcome(claim: Claim, results: Results, model: str) -> Outcome:
    quantity = claim.quantity
    methods = dict.fromkeys(method for _, method, _ in quantity.terms)
    absent = [m for m in methods if m != BASE and m not in planned(results, model)]
    if absent:
        return Outcome(model, "not tested", reason=f"not run with {', '.join(absent)}")
    terms = {(method, _when(when, results)): weight for weight, method, when in quantity.terms}
    if len(terms) < len(quantity.terms) or any(when is None for _, when in terms):
        return Outcome(model, "not tested", reason="the experiment has too few budgets")
    lookup, planned_on = _lookup(quantity, results, model), model_benchmarks(results, model, methods)
    benchmarks = available(lookup, terms, planned_on)
    estimate = combine(lookup, terms, benchmarks)
    if estimate is None:
        stopped = available(_lookup(quantity, results, model, used_up=False), terms, planned_on)
        reason = "runs stopped before the budget" if stopped else "not measured yet"
        return Outcome(model, "not tested", of_benchmarks=len(planned_on), reason=reason)
    return Outcome(model, claim.rule.verdict(estimate), estimate, len(benchmarks), len(planned_on))


def _when(when: str, results: Results) -> str | None:
    """The budget that a word of the claims stands for; None where the experiment has none such."""
    budgets = list(results.experiment.training.budgets)
    places = {"first": 0, "next_to_last": -2, "last": -1}
    if when not in places:
        return when
    return budgets[places[when]] if len(budgets) >= abs(places[when]) else None


def _used_up(lookup: Lookup, results: Results, model: str) -> Lookup:
    """``lookup`` without runs that ended before the budget, whatever ended them: they say nothing about it."""
    budgets = results.experiment.training.budgets
    clock = results.runs.set_index(RUN_KEY)["clock"].to_dict()

    def kept(benchmark: str, method: str, when: str) -> dict[int, np.ndarray]:
        found = lookup(benchmark, method, when)
        if when not in budgets:
            return found
        return {s: values for s, values in found.items() if clock[model, benchmark, method, s] >= budgets[when]}

    return kept


def _lookup(quantity: Quantity, results: Results, model: str, used_up: bool = True) -> Lookup:
    """A claim's numbers; at a budget only those of runs that have used it up, unless all are asked for."""

    def at_budgets(lookup: Lookup) -> Lookup:
        return _used_up(lookup, results, model) if used_up else lookup

    if quantity.kind == "score":
        scores = Scores.of(results)
        return at_budgets(scores.lookup(model, quantity.score or scores.protocol))
    logs = Logs.of(results)
    if quantity.kind == "metric":
        return logs.metric(model, quantity.metric)
    if quantity.kind == "fall":
        return logs.fall(model)
    seconds = at_budgets(logs.seconds(model))
    return relative(seconds, quantity.relative_to) if quantity.relative_to else seconds
