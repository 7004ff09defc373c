"""The paper's claims, as ``reports/claims.yaml`` has them. No claim is named here."""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Literal

from pydantic import Field, model_validator

from srpo.analysis.statistics.contrasts import BASE
from srpo.analysis.statistics.estimates import Estimate
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_yaml
from srpo.ground.mistakes import validated
from srpo.ground.repository import REPORTS
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
        """One-sided p-value against "the rule is not satisfied"; NaN without an interval.

        That a difference is not 0 beyond a margin takes two one-sided tests (TOST; Schuirmann 1987): above minus the
        margin, and below the margin.
        """
        where, limit = self._given
        if where == "within":
            return max(estimate.p_above(-limit), estimate.p_below(limit))
        return estimate.p_above(limit) if where == "above" else estimate.p_below(limit)

    def p_violated(self, estimate: Estimate) -> float:
        """One-sided p-value against "the rule is satisfied"; NaN without an interval."""
        where, limit = self._given
        if where == "within":
            nearer = estimate.p_above(limit) if estimate.value > 0 else estimate.p_below(-limit)
            return min(nearer, 0.5) * 2  # either side violates it
        return estimate.p_below(limit) if where == "above" else estimate.p_above(limit)

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
def load_claims() -> tuple[Claim, ...]:
    """Read and check the claims.

    Raises:
        SrpoError: naming the claim and key that is wrong.
    """
    raw = read_yaml(CLAIMS)
    named = [each.get("id", number) if isinstance(each, dict) else number for number, each in enumerate(raw)]
    claims: tuple[Claim, ...] = tuple(validated(Claim, e, f"{CLAIMS}: {n}") for n, e in zip(named, raw, strict=True))
    ids = [claim.id for claim in claims]
    if len(set(ids)) < len(ids):
        raise SrpoError(f"{CLAIMS}: two claims share an id: {', '.join(sorted({i for i in ids if ids.count(i) > 1}))}")
    return claims
