"""The verdict of an experiment on every claim of ``reports/claims.yaml``."""

import itertools
import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd

from srpo.analysis.claims import Claim, Given, Quantity
from srpo.analysis.results import BASE, Results
from srpo.analysis.statistics.contrasts import Terms, Values, available, combine
from srpo.analysis.statistics.deciding import ALPHA, Proportion, Ratio, Smallest, holm, over_benchmarks
from srpo.analysis.statistics.estimates import PERCENT, Estimate
from srpo.ground.text import joined

Verdict = Literal["holds", "suggestive", "does not hold", "undecided", "one seed", "not testable here", "not tested"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
UNTESTED: tuple[Verdict, ...] = ("not testable here", "not tested")
"""Verdicts without an estimate."""

MIN_VALIDATIONS = 3
"""With fewer validations within a budget, its score says when the validations were, not what a method learned."""


@dataclass(frozen=True)
class Outcome:
    """A claim's quantity for one model.

    Attributes:
        estimate: None if the claim is not tested.
        score: which score it is a contrast of; empty for other quantities.
        benchmarks: number of measured ones.
        holding: on how many of ``benchmarks`` the interval of the benchmark alone satisfies the rule.
        on_each: the estimate on each measured benchmark; empty for ``best_on_each``.
        over_benchmarks: the same average with the interval over new benchmarks (Student's t of one number per
            benchmark), which decides nothing; None unless a score was measured on three or more.
        p_holds, p_violated: one-sided p-values for and against the claim, adjusted by Holm's procedure for a primary
            claim and for a question of ours, and the second for the number of models; NaN if unknown.
        several_seeds: whether every compared method has several training seeds.
        reason: why the claim is not tested or not decided.
        clear: the share of runs whose collapse is clear; a claim about collapsed runs is decided by both shares.
    """

    model: str
    verdict: Verdict
    estimate: Estimate | None = None
    score: str = ""
    benchmarks: int = 0
    holding: int = 0
    p_holds: float = math.nan
    p_violated: float = math.nan
    several_seeds: bool = False
    reason: str = ""
    on_each: Mapping[str, Estimate] = field(default_factory=dict)
    over_benchmarks: Estimate | None = None
    clear: Proportion | None = None


@dataclass(frozen=True)
class Finding:
    """A claim with its outcomes and the verdict on all of them; interim while a planned run is missing."""

    claim: Claim
    outcomes: list[Outcome]
    verdict: Verdict
    interim: bool = False

    @property
    def asked(self) -> bool:
        """Whether the claim is our question, and the experiment has what it is about."""
        return self.claim.ours and self.verdict != "not tested"


def findings(results: Results, claims: tuple[Claim, ...] | None = None) -> list[Finding]:
    """The verdict of ``results`` on every claim, by default on its own, in their order."""
    claims = claims or results.claims
    interim = missing_runs(results) > 0
    by_model = [_of_model(results, model, claims) for model in results.experiment.models]
    found = []
    for claim, outcomes in zip(claims, zip(*by_model, strict=True), strict=True):
        tested = sum(outcome.estimate is not None for outcome in outcomes)
        decided = [_decided(_against_one_of(tested, outcome), claim, results) for outcome in outcomes]
        verdict = overall([outcome.verdict for outcome in decided])
        found.append(Finding(claim, decided, verdict, interim and verdict not in UNTESTED))
    return found


def missing_runs(results: Results) -> int:
    return int((results.runs["status"] != "finished").sum())


def overall(verdicts: list[Verdict]) -> Verdict:
    """A claim is about every model: one can refute it. Models without its runs do not count."""
    order: tuple[Verdict, ...] = ("does not hold", "not testable here", "undecided", "one seed", "suggestive", "holds")
    return next((verdict for verdict in order if verdict in verdicts), "not tested")


# ---------------------------------------------------------------- from numbers to verdicts


def _of_model(results: Results, model: str, claims: tuple[Claim, ...]) -> list[Outcome]:
    """The numbers of every claim for one model, the p-values of its primary claims corrected together, and of ours.

    A claim that one seed keeps from being decided does not count among them.
    """
    outcomes = [_measured(claim, results, model) for claim in claims]
    numbered = [(i, claim) for i, claim in enumerate(claims) if outcomes[i].several_seeds]
    families = [i for i, claim in numbered if claim.primary], [i for i, claim in numbered if claim.ours]
    for family, key in itertools.product(families, ("p_holds", "p_violated")):
        corrected = holm([getattr(outcomes[i], key) for i in family])
        for i, p in zip(family, corrected, strict=True):
            changed: dict[str, Any] = {key: float(p)}
            outcomes[i] = replace(outcomes[i], **changed)
    return outcomes


def _against_one_of(models: int, outcome: Outcome) -> Outcome:
    """One of several models refutes a claim: its p-value is multiplied by their number (Bonferroni)."""
    return replace(outcome, p_violated=min(1.0, models * outcome.p_violated)) if models > 1 else outcome


def _decided(outcome: Outcome, claim: Claim, results: Results) -> Outcome:
    """``outcome`` with its verdict; one that is not tested is unchanged.

    With one seed of a compared method nothing is decided, however clear the interval is. Training runs differ, and one
    run does not show by how much.
    """
    estimate = outcome.estimate
    if estimate is None or outcome.reason:
        return outcome
    for_it, against = outcome.p_holds < ALPHA, outcome.p_violated < ALPHA
    if not outcome.several_seeds:
        side = "the interval satisfies the rule" if for_it else "the interval violates the rule" if against else ""
        return replace(outcome, verdict="one seed", reason=side or estimate.reason)
    if not estimate.has_interval:
        return replace(outcome, reason=estimate.reason or "no interval")
    if against:
        return replace(outcome, verdict="does not hold")
    if for_it:
        if claim.given and (reason := _not_given(claim.given, claim, results, outcome)):
            return replace(outcome, reason=reason)
        return replace(outcome, verdict="holds")
    if claim.rule.p_holds(estimate) < ALPHA:
        together = "our questions" if claim.ours else "the primary claims"
        reason = f"it would hold as a single claim, but not after Holm's correction for {together}"
        if outcome.clear is not None:
            reason = "all runs that collapsed show it, those that collapsed clearly do not"
        return replace(outcome, verdict="suggestive", reason=reason)
    if claim.rule.p_violated(estimate) < ALPHA:
        corrected = "if only clear collapses count" if outcome.clear is not None else "after correction"
        return replace(outcome, reason=f"the interval violates the rule, but not {corrected}")
    return outcome


def _not_given(given: Given, claim: Claim, results: Results, outcome: Outcome) -> str:
    """Why the premise of a claim is not shown; empty if it is shown."""
    before = Quantity(kind=claim.quantity.kind, score=claim.quantity.score, terms=given.terms)
    premise = claim.model_copy(update={"quantity": before, "rule": given.rule})
    here = results.benchmarks(outcome.model, [method for _, method, _ in claim.quantity.terms])
    shown = _measured(premise, results, outcome.model, here).p_holds < ALPHA
    return "" if shown else f"not shown that {given.statement}"


# ---------------------------------------------------------------- the numbers


def _measured(claim: Claim, results: Results, model: str, on: Sequence[str] = ()) -> Outcome:
    """The claim's estimate without a verdict, or the reason why there is none; ``on`` these benchmarks if any."""
    quantity = claim.quantity
    methods = dict.fromkeys(method for _, method, _ in quantity.terms)
    absent = [m for m in methods if m != BASE and m not in results.plans[model]]
    if absent:
        return Outcome(model, "not tested", reason=f"not run with {', '.join(absent)}")
    terms = {
        (method, budget): weight
        for weight, method, when in quantity.terms
        if (budget := budget_of(when, results, {when for *_, when in quantity.terms})) is not None
    }
    if len(terms) < len(quantity.terms):
        return Outcome(model, "not tested", reason="the experiment has too few budgets")
    planned_on = [*on] or results.benchmarks(model, methods)
    mixed = results.incomparable if quantity.kind not in ("metric", "step_seconds") else {}
    if refused := [f"{results.benchmark_title(name)}: {mixed[name]}" for name in planned_on if name in mixed]:
        return Outcome(model, "not testable here", reason=f"runs cannot be compared ({'; '.join(refused)})")
    if quantity.kind == "collapsed_runs":
        return _collapsed_runs(claim, results, model, planned_on)
    if _other_updates(quantity, results):
        return Outcome(model, "not testable here", reason="updates per batch are not in the paper's ratio")
    values, paired = _values(claim, results, model), results.experiment.draws_per_seed(model)
    if lacking := _without_a_number(results, model, values, terms, planned_on):
        return Outcome(model, "not testable here", reason=lacking)
    if not (benchmarks := available(values, terms, planned_on, paired)):
        return Outcome(model, "not tested", reason="not measured yet")
    score = _score(claim, results)
    if score and _too_few_validations(results, model, terms, benchmarks):
        reason = f"a budget holds fewer than {MIN_VALIDATIONS} validations of a run"
        return Outcome(model, "not testable here", reason=reason)
    if quantity.kind == "best_on_each":
        first, *rivals = terms
        pairs = [(b, {first: 1.0, rival: -1.0}) for b in benchmarks for rival in rivals]
        leads = [(b, _estimate(claim, results, model, values, pair, [b])) for b, pair in pairs]
        return _best_on_each(claim, leads, Outcome(model, "undecided", score=score))
    estimate = _estimate(claim, results, model, values, terms, benchmarks)
    on_each = {name: _estimate(claim, results, model, values, terms, [name]) for name in benchmarks}
    p_values = claim.rule.p_holds(estimate), claim.rule.p_violated(estimate)
    counts = len(benchmarks), _holding(claim, on_each)
    beside: dict[str, Any] = {"on_each": on_each}
    if quantity.kind == "score":
        beside["over_benchmarks"] = over_benchmarks([each.value for each in on_each.values()])
    return Outcome(model, "undecided", estimate, score, *counts, *p_values, estimate.several_seeds, **beside)


def _holding(claim: Claim, on_each: Mapping[str, Estimate]) -> int:
    """The number of benchmarks whose own interval satisfies the rule."""
    return sum(each.several_seeds and claim.rule.p_holds(each) < ALPHA for each in on_each.values())


def _score(claim: Claim, results: Results) -> str:
    """Which score a claim is a contrast of; empty for other quantities."""
    return (claim.quantity.score or results.deciding) if claim.quantity.kind in ("score", "best_on_each") else ""


def _values(claim: Claim, results: Results, model: str) -> Values:
    """The claim's number; a difference of two logarithms is a ratio in which both are uncertain."""
    found = results.of(model, _score(claim, results) or claim.quantity.metric or "step_seconds")
    if not claim.quantity.relative_to:
        return found
    return {of: {seed: np.log(values) for seed, values in runs.items()} for of, runs in found.items()}


def _estimate(
    claim: Claim, results: Results, model: str, values: Values, terms: Terms, benchmarks: Sequence[str]
) -> Estimate:
    """The contrast of ``terms`` on benchmarks that have them all."""
    share = claim.quantity.kind == "metric" and claim.unit == "percent" and len(terms) == 1
    bounds, paired = PERCENT if share or _score(claim, results) else None, results.experiment.draws_per_seed(model)
    found = combine(values, terms, benchmarks, bounds, paired)
    assert found is not None  # the benchmarks are available
    return Ratio.of(found) if claim.quantity.relative_to else found


def _without_a_number(results: Results, model: str, values: Values, terms: Terms, benchmarks: Sequence[str]) -> str:
    """Which finished runs lack a claim's number, if any: to decide by the others is to choose by the outcome."""
    lacking = {
        run[1]
        for run, row in results.run_rows.items()
        for method, when in terms
        if (run[0], run[2], row["status"]) == (model, method, "finished")
        if run[3] not in values.get((run[1], method, when), {})
    }
    where = joined([results.benchmark_title(name) for name in benchmarks if name in lacking])
    return f"finished runs on {where} have no number for it" if where else ""


def _too_few_validations(results: Results, model: str, terms: Terms, benchmarks: Sequence[str]) -> bool:
    """Whether a budget of some run is too short for its score to mean anything."""
    numbers = results.of(model, "validations")
    counts = (numbers.get((b, *term), {}) for b in benchmarks for term in terms)
    return any(number[0] < MIN_VALIDATIONS for runs in counts for number in runs.values())


def _best_on_each(claim: Claim, leads: list[tuple[str, Estimate]], outcome: Outcome) -> Outcome:
    """Whether the first method is above every rival on every benchmark, from its lead on a benchmark over each rival.

    Every comparison must be shown (an intersection-union test: the largest p-value counts). One comparison that shows
    the opposite refutes the claim (the smallest p-value after Holm's correction). The estimate is the smallest lead.
    """
    rule, smallest = claim.rule, Smallest.of([lead for _, lead in leads])
    by_benchmark = [[lead for name, lead in leads if name == b] for b in dict(leads)]
    against = holm([rule.p_violated(lead) for _, lead in leads])
    return replace(
        outcome,
        estimate=smallest,
        benchmarks=len(by_benchmark),
        holding=sum(all(lead.several_seeds and rule.p_holds(lead) < ALPHA for lead in of) for of in by_benchmark),
        p_holds=max(rule.p_holds(lead) for _, lead in leads) if smallest.has_interval else math.nan,
        p_violated=float(np.nanmin([*against, 1.0])),
        several_seeds=smallest.several_seeds,
    )


def _collapsed_runs(claim: Claim, results: Results, model: str, planned_on: list[str]) -> Outcome:
    """The share of a method's runs that collapsed, all benchmarks together; runs of one base model are one unit.

    Those whose collapse is clear must show or refute the claim, too: noise neither makes a collapse nor breaks a run
    that stands still.
    """
    ((_, method, _),) = claim.quantity.terms
    ends = results.run_ends
    ends = ends[(ends["model"] == model) & (ends["method"] == method) & ends["benchmark"].isin(planned_on)]
    last = list(results.budget_seconds)[-1]
    if lacking := _without_a_number(results, model, results.of(model, "end"), {(method, last): 1.0}, planned_on):
        return Outcome(model, "not testable here", reason=lacking)
    if ends.empty:
        return Outcome(model, "not tested", reason="not measured yet")
    by_benchmark = ends.groupby("benchmark", sort=False)
    estimate, clear = share_of(ends, "collapsed"), share_of(ends, "clear")
    on_each = {str(benchmark): share_of(found, "collapsed") for benchmark, found in by_benchmark}
    counts = len(on_each), _holding(claim, on_each)
    p_values = max(map(claim.rule.p_holds, (estimate, clear))), max(map(claim.rule.p_violated, (estimate, clear)))
    several = bool(by_benchmark.size().min() > 1)
    beside: dict[str, Any] = {"on_each": on_each, "clear": clear}
    return Outcome(model, "undecided", estimate, "", *counts, *p_values, several, **beside)


def share_of(ends: pd.DataFrame, name: str) -> Proportion:
    """The share of runs for which a column of ``Results.run_ends`` is true."""
    return Proportion.of([[*unit] for _, unit in ends.groupby("unit")[name]])


def _other_updates(quantity: Quantity, results: Results) -> bool:
    """Whether seconds per step cannot be compared: updates per batch are not in the paper's ratio."""
    papers = quantity.updates_per_batch or {}
    batch, methods = results.experiment.training.questions_per_batch, results.experiment.methods
    here = {name: max(1, batch // methods[name].mini_batch_questions) for name in papers}
    return len({here[name] / papers[name] for name in papers}) > 1


def budget_of(when: str, results: Results, beside: Set[str] = frozenset()) -> str | None:
    """The budget that ``first``, ``next_to_last`` or ``last`` stands for; None if it is another of them, too."""
    budgets = list(results.budget_seconds)
    # of two budgets one is next to the last only beside it, where a claim has terms of both
    places = {"last": (-1, 1), "first": (0, 2), "next_to_last": (-2, 2 if "last" in beside else 3)}
    place, least = places.get(when, (0, 0))
    return when if not least else budgets[place] if len(budgets) >= least else None
