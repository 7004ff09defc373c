"""The registered analysis: ``configs/NAME.yaml``, written down before the first run of the experiment ``NAME``.

It decides which claims of that experiment are primary, with their terms and rules, by which score; whatever
``reports/claims.yaml`` says later. A test holds the checksums of these files, so they cannot change unseen.
"""

from __future__ import annotations

import datetime
import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from srpo.analysis.claims import Claim, Quantity, Rule, load_claims
from srpo.experiment.config import Experiment
from srpo.ground.errors import SrpoError
from srpo.ground.files import read_mapping
from srpo.ground.mistakes import validated
from srpo.ground.repository import CONFIGS
from srpo.ground.schema import Config


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


def claims_of(experiment: Experiment, folder: Path = CONFIGS) -> tuple[Claim, ...]:
    """The claims as they are decided for ``experiment``: a registered one has its own primary claims."""
    registration = registration_of(experiment, folder)
    return registration.decide(load_claims()) if registration else load_claims()


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
