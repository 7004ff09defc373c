"""Reads the paper's claims (``reports/claims.yaml``) and computes the verdict on each. No claim is named here."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from srpo.analysis.results.contrasts import Estimate
from srpo.analysis.results.load import Results
from srpo.analysis.results.lookups import Cells, Lookup, Terms, available, benchmark_means, combine
from srpo.analysis.results.matrix import BASE, family, model_benchmarks, planned
from srpo.analysis.results.multiple_testing import ALPHA, equivalence_p, holm
from srpo.analysis.results.run_logs import RunLogs, relative
from srpo.analysis.results.scores import Scores
from srpo.analysis.results.titles import benchmark_title
from srpo.config import Config
from srpo.errors import SrpoError
from srpo.repository import REPORTS

CLAIMS = REPORTS / "claims.yaml"

Verdict = Literal["holds", "suggestive", "does not hold", "undecided", "not tested"]
VERDICTS: tuple[Verdict, ...] = ("holds", "suggestive", "does not hold", "undecided", "not tested")

_BUDGETS = {"first", "next_to_last", "last"}
_WHEN = {
    "score": _BUDGETS | {"base"},
    "best_on_each": _BUDGETS,
    "step_seconds": _BUDGETS,
    "metric": {"early", "late", "all"},
    "late_drop": {"end"},
}


class Quantity(Config):
    """What is computed for each model: a contrast of ``terms`` (weight, method, when)."""

    kind: Literal["score", "best_on_each", "metric", "step_seconds", "late_drop"]
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
            if getattr(self, key) is not None and self.kind != kind and (key, self.kind) != ("score", "best_on_each"):
                raise ValueError(f"{key} belongs to kind {kind}")
        if self.kind == "metric" and self.metric is None:
            raise ValueError("kind metric needs metric")
        if self.kind == "best_on_each" and (len(self.terms) < 2 or {w for w, *_ in self.terms[1:]} != {-1.0}):
            raise ValueError("kind best_on_each needs one method of weight 1, then its rivals of weight -1")
        return self


class Rule(Config):
    """The true value is above or below a number, or within a margin around 0 (equivalence)."""

    above: float | None = None
    below: float | None = None
    within: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _one_side(self) -> Rule:
        if [self.above, self.below, self.within].count(None) != 2:
            raise ValueError("give above, below or within")
        return self

    def p_holds(self, estimate: Estimate) -> float:
        """One-sided p-value against "the rule is not satisfied"; NaN without an interval."""
        if self.within is not None:
            return equivalence_p(estimate, self.within)
        if self.above is not None:
            return estimate.p_above(self.above)
        assert self.below is not None  # one of the three is given
        return estimate.p_below(self.below)

    def p_violated(self, estimate: Estimate) -> float:
        """One-sided p-value against "the rule is satisfied"; NaN without an interval."""
        if self.within is not None:
            nearer = estimate.p_above(self.within) if estimate.value > 0 else estimate.p_below(-self.within)
            return min(nearer, 0.5) * 2  # either side violates it
        if self.above is not None:
            return estimate.p_below(self.above)
        assert self.below is not None  # one of the three is given
        return estimate.p_above(self.below)

    def met(self, value: float) -> bool:
        """Whether a number satisfies the rule."""
        if self.within is not None:
            return abs(value) < self.within
        if self.above is not None:
            return value > self.above
        assert self.below is not None  # one of the three is given
        return value < self.below

    def in_words(self, unit: str) -> str:
        """The rule for a number in ``unit``, a plural: ``below 1 point``, ``within 2 points of 0``."""
        (where, limit), *_ = ((name, value) for name, value in self if value is not None)
        unit = re.sub(r"s\b", "", unit, count=1) if limit == 1 else unit
        return f"{where} {limit:g} {unit}{' of 0' if where == 'within' else ''}"


class Given(Config):
    """What must be shown first, so that a claim has a meaning: for example, that there is a gain."""

    statement: str
    terms: Annotated[list[tuple[float, str, str]], Field(min_length=1)]
    rule: Rule


class Claim(Config):
    """One claim of the paper, or with ``ours`` our question about a claim, which the paper does not test."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    statement: str
    section: Annotated[str, Field(coerce_numbers_to_str=True)]
    quantity: Quantity
    unit: str
    rule: Rule
    paper: dict[str, float] | str
    evidence: str
    ours: bool = False
    primary: bool = False
    given: Given | None = None

    @model_validator(mode="after")
    def _is_of_the_paper_if_primary(self) -> Claim:
        if self.primary and self.ours:
            raise ValueError("primary claims are the paper's: leave out ours or primary")
        return self

    @property
    def digits(self) -> int:
        """Decimals to show."""
        return 3 if self.unit == "nats" else 1

    @property
    def signed(self) -> bool:
        """Whether the quantity is a difference, shown with its sign; so is a late drop by itself."""
        return self.quantity.kind == "late_drop" or any(weight < 0 for weight, _, _ in self.quantity.terms)


@dataclass(frozen=True)
class Outcome:
    """A claim's quantity for one model.

    Attributes:
        estimate: None if the claim is not tested.
        benchmarks, of_benchmarks: number of measured and of planned benchmarks.
        agreeing: on how many of ``benchmarks`` the estimate alone satisfies the rule.
        p_holds, p_violated: one-sided p-values for and against the claim, adjusted by Holm's procedure for a primary
            claim; NaN if unknown.
        several_seeds: whether every compared method has several training seeds.
        reason: why the claim is not tested or not decided.
    """

    model: str
    verdict: Verdict
    estimate: Estimate | None = None
    benchmarks: int = 0
    of_benchmarks: int = 0
    agreeing: int = 0
    p_holds: float = math.nan
    p_violated: float = math.nan
    several_seeds: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Finding:
    """A claim with its outcomes and the verdict on all of them; interim while a planned run is missing."""

    claim: Claim
    outcomes: list[Outcome]
    verdict: Verdict
    interim: bool = False


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
    """The place of an error in the file; a claim is named by its id, not by its number."""
    if loc and isinstance(loc[0], int) and isinstance(raw[loc[0]], dict):
        loc = (raw[loc[0]].get("id", loc[0]), *loc[1:])
    return ".".join(map(str, loc)) or "top level"


# ---------------------------------------------------------------- verdicts


def findings(results: Results, claims: tuple[Claim, ...] | None = None) -> list[Finding]:
    """The verdict of ``results`` on every claim, in the file's order."""
    claims = claims if claims is not None else load_claims()
    interim = missing_runs(results) > 0
    by_model = {model: _of_model(results, model, claims) for model in results.experiment.models}
    found = []
    for place, claim in enumerate(claims):
        outcomes = [outcomes[place] for outcomes in by_model.values()]
        verdict = overall([outcome.verdict for outcome in outcomes])
        found.append(Finding(claim, outcomes, verdict, interim and verdict != "not tested"))
    return found


def missing_runs(results: Results) -> int:
    """Planned runs that are not finished."""
    return int((results.runs["status"] != "finished").sum())


def overall(verdicts: list[Verdict]) -> Verdict:
    """A claim is about every model: one model can refute it; models that do not test it do not count."""
    tested = [verdict for verdict in verdicts if verdict != "not tested"]
    if not tested:
        return "not tested"
    for verdict in ("does not hold", "undecided", "suggestive"):
        if verdict in tested:
            return verdict
    return "holds"


def _of_model(results: Results, model: str, claims: tuple[Claim, ...]) -> list[Outcome]:
    """The outcome of every claim for one model, its primary claims corrected together."""
    outcomes: list[Outcome] = []
    told: dict[tuple, str] = {}  # from a claim's number to its statement
    for claim in claims:
        outcome = _measured(claim, results, model)
        if outcome.estimate is not None and not claim.ours:
            number = _number(claim.quantity, results)
            if number in told:
                reason = f'the same number as "{told[number]}" with these budgets'
                outcome = Outcome(model, "not tested", reason=reason)
            told.setdefault(number, claim.statement)
        outcomes.append(outcome)
    primary = [i for i, claim in enumerate(claims) if claim.primary]
    for key in ("p_holds", "p_violated"):
        corrected = holm([getattr(outcomes[i], key) for i in primary])
        for i, p in zip(primary, corrected, strict=True):
            changed: dict[str, Any] = {key: float(p)}
            outcomes[i] = replace(outcomes[i], **changed)
    return [_decided(outcome, claim, results) for outcome, claim in zip(outcomes, claims, strict=True)]


def _number(quantity: Quantity, results: Results) -> tuple:
    """A key that is equal for two claims about the same number, or about a number and its negative."""
    terms = sorted((method, str(_when(when, results)), weight) for weight, method, when in quantity.terms)
    sign = math.copysign(1, terms[0][2])
    kind = (quantity.kind, quantity.score, quantity.metric, quantity.relative_to)
    return (*kind, *((method, when, sign * weight) for method, when, weight in terms))


def _decided(outcome: Outcome, claim: Claim, results: Results) -> Outcome:
    """``outcome`` with its verdict; one that is not tested is unchanged.

    If a compared method has one seed, the claim neither holds nor does not hold, however clear the interval is.
    Training runs differ, and one run does not show by how much. An interval that is widened by the spread of other
    methods' runs assumes that this method varies as they do.
    """
    estimate = outcome.estimate
    if estimate is None or outcome.reason:
        return outcome
    if not estimate.has_interval:
        return replace(outcome, reason=estimate.reason or "no interval")
    if outcome.p_violated < ALPHA:
        if not outcome.several_seeds:
            return replace(outcome, reason="it would not hold, but a method has one seed only")
        return replace(outcome, verdict="does not hold")
    if outcome.p_holds < ALPHA:
        if claim.given and (reason := _not_given(claim.given, claim, results, outcome.model)):
            return replace(outcome, reason=reason)
        if not outcome.several_seeds:
            return replace(outcome, verdict="suggestive", reason="it would hold, but a method has one seed only")
        return replace(outcome, verdict="holds")
    if claim.primary and claim.rule.p_holds(estimate) < ALPHA:
        reason = "it would hold as a single claim, but not after Holm's correction for the primary claims"
        return replace(outcome, verdict="suggestive", reason=reason)
    return outcome


def _not_given(given: Given, claim: Claim, results: Results, model: str) -> str:
    """Why the premise of a claim is not shown; empty if it is shown."""
    before = Quantity(kind=claim.quantity.kind, score=claim.quantity.score, terms=given.terms)
    outcome = _measured(claim.model_copy(update={"quantity": before, "rule": given.rule}), results, model)
    return "" if outcome.p_holds < ALPHA else f"not shown that {given.statement}"


def _measured(claim: Claim, results: Results, model: str) -> Outcome:
    """The claim's estimate without a verdict, or the reason why there is none."""
    quantity = claim.quantity
    methods = dict.fromkeys(method for _, method, _ in quantity.terms)
    absent = [m for m in methods if m != BASE and m not in planned(results, model)]
    if absent:
        return Outcome(model, "not tested", reason=f"not run with {', '.join(absent)}")
    terms = {
        (method, budget): weight
        for weight, method, when in quantity.terms
        if (budget := _when(when, results)) is not None
    }
    if len(terms) < len(quantity.terms):  # a budget is missing, or two are the same
        return Outcome(model, "not tested", reason="the experiment has too few budgets")
    lookup, planned_on = _lookup(quantity, results, model), model_benchmarks(results, model, methods)
    mixed = Scores.of(results).incomparable if quantity.kind in ("score", "best_on_each", "late_drop") else {}
    if refused := [f"{benchmark_title(results, name)}: {mixed[name]}" for name in planned_on if name in mixed]:
        return Outcome(model, "not tested", reason=f"runs cannot be compared ({'; '.join(refused)})")
    benchmarks = available(lookup, terms, planned_on)
    if not benchmarks:
        stopped = available(_lookup(quantity, results, model, reached_only=False), terms, planned_on)
        reason = "runs stopped before the budget" if stopped else "not measured yet"
        return Outcome(model, "not tested", of_benchmarks=len(planned_on), reason=reason)
    cells = family(results, model)
    if quantity.kind == "best_on_each":
        return _best_on_each(claim, model, lookup, terms, benchmarks, len(planned_on), cells)
    estimate = combine(lookup, terms, benchmarks, family=cells)
    assert estimate is not None  # each of these benchmarks has every term
    agreeing = sum(map(claim.rule.met, benchmark_means(lookup, terms, benchmarks)))
    p_values = claim.rule.p_holds(estimate), claim.rule.p_violated(estimate)
    counts = len(benchmarks), len(planned_on), agreeing
    return Outcome(model, "undecided", estimate, *counts, *p_values, several_seeds=estimate.several_seeds)


def _best_on_each(
    claim: Claim, model: str, lookup: Lookup, terms: Terms, benchmarks: list[str], planned_on: int, cells: Cells
) -> Outcome:
    """Whether the first method is above every rival on every benchmark.

    Every comparison must be shown (an intersection-union test: the largest p-value counts). One comparison that shows
    the opposite refutes the claim (the smallest p-value after Holm's correction). The estimate is that of the closest
    comparison.
    """
    first, *rivals = terms
    pairs: list[tuple[str, Estimate]] = []
    for benchmark in benchmarks:
        for rival in rivals:
            pair = combine(lookup, {first: 1.0, rival: -1.0}, [benchmark], family=cells)
            assert pair is not None  # each of these benchmarks has every term
            pairs.append((benchmark, pair))
    ahead = sum(all(pair.value > 0 for name, pair in pairs if name == benchmark) for benchmark in benchmarks)
    for_it = [claim.rule.p_holds(pair) for _, pair in pairs]
    against = holm([claim.rule.p_violated(pair) for _, pair in pairs])
    closest = min((pair for _, pair in pairs), key=lambda pair: pair.value)
    p_values = float(np.max(for_it)), float(np.nanmin([*against, 1.0]))
    counts = len(benchmarks), planned_on, ahead
    several_seeds = all(pair.several_seeds for _, pair in pairs)
    return Outcome(model, "undecided", closest, *counts, *p_values, several_seeds=several_seeds)


def _when(when: str, results: Results) -> str | None:
    """The budget that ``first``, ``next_to_last`` or ``last`` stands for; None if the experiment has too few."""
    budgets = list(results.experiment.training.budget_seconds)
    places = {"first": 0, "next_to_last": -2, "last": -1}
    if when not in places:
        return when
    return budgets[places[when]] if len(budgets) >= abs(places[when]) else None


def _that_reached_the_budget(lookup: Lookup, results: Results, model: str) -> Lookup:
    """``lookup`` without the runs that stopped before the budget, because their score at the budget is unknown."""
    budgets = results.experiment.training.budget_seconds
    clock = RunLogs.of(results).clock

    def kept(benchmark: str, method: str, when: str) -> Mapping[int, np.ndarray]:
        found = lookup(benchmark, method, when)
        if when not in budgets:
            return found
        return {s: values for s, values in found.items() if clock[model, benchmark, method, s] >= budgets[when]}

    return kept


def _lookup(quantity: Quantity, results: Results, model: str, reached_only: bool = True) -> Lookup:
    """The numbers of a claim. At a budget: only runs whose clock reached it, unless ``reached_only`` is false."""

    def at_budgets(lookup: Lookup) -> Lookup:
        return _that_reached_the_budget(lookup, results, model) if reached_only else lookup

    if quantity.kind in ("score", "best_on_each"):
        scores = Scores.of(results)
        return at_budgets(scores.lookup(model, quantity.score or scores.protocol))
    logs = RunLogs.of(results)
    if quantity.kind == "metric":
        assert quantity.metric is not None  # Quantity demands it of this kind
        return logs.metric(model, quantity.metric)
    if quantity.kind == "late_drop":
        return logs.late_drop(model)
    seconds = at_budgets(logs.seconds(model))
    return relative(seconds, quantity.relative_to) if quantity.relative_to else seconds
