"""The paper's claims, as ``reports/claims.yaml`` has them, and the registered analysis. No claim is named here.

``configs/NAME.yaml`` is what was written down before the first run of the experiment ``NAME``. It decides which claims
of that experiment are primary, with their terms and rules, by which score; whatever ``reports/claims.yaml`` says later.
A test holds the checksums of these files, so they cannot change unseen.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from srpo.analysis.results import BASE
from srpo.analysis.statistics.deciding import equivalence_p
from srpo.analysis.statistics.estimates import Estimate
from srpo.experiment.config import Experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_mapping, read_yaml
from srpo.ground.mistakes import validated
from srpo.ground.repository import CONFIGS, REPORTS
from srpo.ground.schema import Config

CLAIMS = REPORTS / "claims.yaml"

Block = Literal["primary", "questions", "mechanism", "time", "ablations"]
"""A part of the report that shows claims."""

_BUDGETS = {"first", "next_to_last", "last"}
_WHEN = {
    "score": _BUDGETS | {"base"},
    "best_on_each": _BUDGETS,
    "step_seconds": _BUDGETS,
    "metric": {"early", "late", "all"},
    "collapsed_runs": {"end"},
}
_ONLY_OF = {
    "score": "score",
    "metric": "metric",
    "relative_to": "step_seconds",
    "updates_per_batch": "step_seconds",
}
"""Keys of a quantity, and the kind that has them."""


class Quantity(Config):
    """What is computed for each model: a contrast of ``terms`` (weight, method, when)."""

    kind: Literal["score", "best_on_each", "metric", "step_seconds", "collapsed_runs"]
    terms: Annotated[list[tuple[float, str, str]], Field(min_length=1)]
    score: Literal["in_training", "resampled", "cross_fitted", "end"] | None = None
    metric: str | None = None
    relative_to: str | None = None
    updates_per_batch: dict[str, int] | None = None

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Quantity:
        for _, method, when in self.terms:
            if when not in _WHEN[self.kind] or (method == BASE) != (when == BASE):
                raise ValueError(f"term {method} {when}: kind {self.kind} allows {', '.join(sorted(_WHEN[self.kind]))}")
        for key, kind in _ONLY_OF.items():
            if getattr(self, key) is not None and self.kind != kind and (key, self.kind) != ("score", "best_on_each"):
                raise ValueError(f"{key} belongs to kind {kind}")
        if self.kind == "metric" and self.metric is None:
            raise ValueError("kind metric needs metric")
        if self.kind == "collapsed_runs" and [weight for weight, *_ in self.terms] != [1.0]:
            raise ValueError("kind collapsed_runs needs one method of weight 1")
        if self.relative_to and [(w, m == self.relative_to) for w, m, _ in self.terms] != [(1.0, False), (-1.0, True)]:
            raise ValueError("relative_to needs a method of weight 1, then the method that it names of weight -1")
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

    @property
    def _given(self) -> tuple[str, float]:
        """The one of the three that is given, and its number."""
        return next((name, value) for name, value in self if value is not None)

    def p_holds(self, estimate: Estimate) -> float:
        """One-sided p-value against "the rule is not satisfied"; NaN without an interval."""
        where, limit = self._given
        if where == "within":
            return equivalence_p(estimate, limit)
        return estimate.p_above(limit) if where == "above" else estimate.p_below(limit)

    def p_violated(self, estimate: Estimate) -> float:
        """One-sided p-value against "the rule is satisfied"; NaN without an interval."""
        where, limit = self._given
        if where == "within":
            nearer = estimate.p_above(limit) if estimate.value > 0 else estimate.p_below(-limit)
            return min(nearer, 0.5) * 2  # either side violates it
        return estimate.p_below(limit) if where == "above" else estimate.p_above(limit)

    def met(self, value: float) -> bool:
        where, limit = self._given
        if where == "within":
            return abs(value) < limit
        return value > limit if where == "above" else value < limit

    def in_words(self, unit: str) -> str:
        """The rule for a number in ``unit``, a plural: ``below 1 point``, ``within 2 points of 0``."""
        where, limit = self._given
        unit = re.sub(r"s\b", "", unit, count=1) if limit == 1 else unit
        return f"{where} {limit:g} {unit}{' of 0' if where == 'within' else ''}"


class Given(Config):
    """What must be shown first, so that a claim has a meaning: for example, that there is a gain."""

    statement: str
    terms: Annotated[list[tuple[float, str, str]], Field(min_length=1)]
    rule: Rule


class Claim(Config):
    """One claim of the paper, or our question about one.

    Attributes:
        kind: ``primary`` claims are decided together. A ``check`` is fulfilled by any method that learns; it shows
            that the runs are sound, and is no verdict on the paper.
        block: the part of the report that shows it; ``questions`` are ours, and decided together, too.
        at_equal_settings: the id of the claim that this one is if an experiment lacks its control, but that claim's
            methods have the same learning rate and updates per batch.
    """

    id: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    statement: str
    section: Annotated[str, Field(coerce_numbers_to_str=True)]
    quantity: Quantity
    unit: str
    rule: Rule
    paper: dict[str, float] | str
    block: Block = "mechanism"
    kind: Literal["primary", "exploratory", "check"] = "exploratory"
    given: Given | None = None
    at_equal_settings: str | None = None

    @property
    def primary(self) -> bool:
        """Whether this is a primary claim of the paper: all of them are decided together."""
        return self.kind == "primary"

    @property
    def ours(self) -> bool:
        """Whether it is our question and not a claim of the paper."""
        return self.block == "questions"

    @property
    def digits(self) -> int:
        return 3 if self.unit == "nats" else 1

    @property
    def signed(self) -> bool:
        """Whether the quantity is a difference, shown with its sign."""
        return any(weight < 0 for weight, _, _ in self.quantity.terms)


@cache
def load_claims(path: Path = CLAIMS) -> tuple[Claim, ...]:
    """Read and check a file of claims.

    Raises:
        SrpoError: naming the claim and key that is wrong.
    """
    if not isinstance(raw := read_yaml(path), list):
        raise SrpoError(f"{path}: give a list of claims")
    named = [each.get("id", number) if isinstance(each, dict) else number for number, each in enumerate(raw)]
    claims: tuple[Claim, ...] = tuple(validated(Claim, e, f"{path}: {n}") for n, e in zip(named, raw, strict=True))
    ids = [claim.id for claim in claims]
    if len(set(ids)) < len(ids):
        raise SrpoError(f"{path}: two claims share an id: {', '.join(sorted({i for i in ids if ids.count(i) > 1}))}")
    if unknown := [claim for claim in claims if claim.at_equal_settings not in (None, *ids)]:
        raise SrpoError(f"{path}: {unknown[0].id}.at_equal_settings: {unknown[0].at_equal_settings} is no claim's id")
    return claims


# ---------------------------------------------------------------- what was registered before the first run


class RegisteredClaim(Rule):
    """A difference of scores, as in a claim's ``quantity``, and the rule for its true value."""

    terms: Annotated[list[tuple[float, str, str]], Field(min_length=1)]


class Registered(Config):
    """A registered analysis.

    Attributes:
        experiment: the name of the experiment that it is about.
        date, commit: when it was written down, and the revision whose analysis decides.
        score: the score that decides.
        clock, alternatives: the kind of training clock, and the other clocks, of the table ``clocks``.
        budgets: seconds by label.
        models: by their names in the experiment; None: not registered.
        base_models: the numbers of the base models (seeds); one pair of runs from each.
        claims: decided together with Holm's correction, by their ids in ``reports/claims.yaml``.
        sha256: of the file.
    """

    experiment: str
    date: datetime.date
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    score: Literal["cross_fitted"]
    clock: str
    alternatives: list[str]
    budgets: dict[str, float]
    models: list[str] | None = None
    benchmarks: Annotated[list[str], Field(min_length=1)]
    base_models: Annotated[list[int], Field(min_length=2)]
    claims: Annotated[dict[str, RegisteredClaim], Field(min_length=1)]
    sha256: str

    @model_validator(mode="after")
    def _terms_of_scores(self) -> Registered:
        for claim in self.claims.values():
            Quantity(kind="score", score=self.score, terms=claim.terms)
        return self

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for claim in self.claims.values() for _, method, _ in claim.terms))

    def departures(self, experiment: Experiment) -> list[str]:
        """Where ``experiment`` is not what was registered, in words; empty if it is."""
        runs, training = list(experiment.runs()), experiment.training
        pairs = {
            "budgets": (self.budgets, dict(training.budget_seconds)),
            "clock": (self.clock, training.clock.kind),
            "models": (self.models or list(experiment.models), list(experiment.models)),
            "base models": (sorted(self.base_models), sorted({run.seed for run in runs})),
            "benchmarks": (sorted(self.benchmarks), sorted({run.benchmark for run in runs})),
        }
        found = [f"{name}: {here}, registered {there}" for name, (there, here) in pairs.items() if there != here]
        missing = [method for method in self.methods if method not in {run.method for run in runs}]
        return found + [f"no runs of {method}" for method in missing]

    def decide(self, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        """``claims`` with the registered ones as the only primary ones, and with their registered terms and rules.

        Raises:
            SrpoError: if a registered claim is not among them.
        """
        known = {claim.id for claim in claims}
        if unknown := [name for name in self.claims if name not in known]:
            raise SrpoError(f"configs/{self.experiment}.yaml: claims.{unknown[0]} is not in reports/claims.yaml")
        return tuple(self._decided(claim) for claim in claims)

    def _decided(self, claim: Claim) -> Claim:
        if claim.id not in self.claims:
            return claim.model_copy(update={"kind": "exploratory"}) if claim.primary else claim
        found = self.claims[claim.id]
        rule = Rule(**found.model_dump(exclude={"terms"}))
        quantity = Quantity(kind="score", score=self.score, terms=found.terms)
        return claim.model_copy(update={"kind": "primary", "quantity": quantity, "rule": rule, "given": None})


def registration_of(experiment: Experiment, folder: Path = CONFIGS) -> Registered | None:
    """The registration of ``experiment``; None if it was not registered."""
    path = folder / f"{experiment.name}.yaml"
    if not path.is_file() or read_mapping(path).get("experiment") != experiment.name:
        return None
    return load_registration(path)


@cache
def load_registration(path: Path) -> Registered:
    """Read and check a registered analysis.

    Raises:
        SrpoError: naming the key that is wrong.
    """
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return validated(Registered, read_mapping(path) | {"sha256": sha256}, str(path))
