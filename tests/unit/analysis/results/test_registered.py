"""A registered analysis: its file cannot change unseen, and it decides whatever the file of claims says later."""

import datetime
import hashlib
from dataclasses import replace
from functools import partial

import null_experiment
import pytest
import yaml
from null_experiment import Null

from srpo.analysis.claims import load_claims
from srpo.analysis.clocks import ADDED, GENERATION
from srpo.analysis.registered import claims_of, load_registration, registration_of
from srpo.analysis.report import provenance, registered
from srpo.analysis.verdicts import findings
from srpo.experiment.compose import experiment_file, load_experiment
from srpo.ground.errors import SrpoError
from srpo.ground.repository import CONFIGS

SHA256 = {
    "registered": "6489f889d780371d2db149d45edb5ef38228ca6af98ad2441b209ec4bfa7c8cb",
    "registered-doses": "7c18d1fcb209258f1957328355c9c15bf1ba96a8c014e0dbc44817ae65eba83f",
}
"""Of ``configs/NAME.yaml``. Change both only before the first run of the experiment."""

CONTENT = {
    "experiment": "null",
    "date": datetime.date(2026, 1, 2),
    "commit": "ab" * 20,
    "score": "cross_fitted",
    "clock": "wall",
    "alternatives": ["steps"],
    "budgets": {"1h": 3600, "5h": 18000, "10h": 36000},
    "benchmarks": ["chemistry", "physics", "biology", "materials", "tooluse"],
    "base_models": [1, 2, 3],
    "claims": {
        "srpo_over_grpo_last": {"terms": [[1, "srpo", "last"], [-1, "grpo", "last"]], "above": 0},
        "srpo_early_pace": {"terms": [[1, "sdpo", "first"], [-1, "grpo", "first"]], "above": -90},
    },
}


@pytest.mark.parametrize("name", SHA256)
def test_a_file_is_the_one_that_was_registered(name):
    path, experiment = CONFIGS / f"{name}.yaml", load_experiment(experiment_file(name))
    assert hashlib.sha256(path.read_bytes()).hexdigest() == SHA256[name]
    assert load_registration(path).sha256 == SHA256[name]
    assert registration_of(experiment).departures(experiment) == []


def test_its_claims_are_the_primary_ones_with_the_same_terms():
    content, primary = load_registration(CONFIGS / "registered.yaml"), {c.id: c for c in load_claims() if c.primary}
    # all methods have the same settings, so that claim is srpo_over_grpo_last
    assert content.claims.keys() == primary.keys() - {"srpo_over_grpo_at_its_settings"}
    for name, found in content.claims.items():
        assert (found.terms, found.above) == (primary[name].quantity.terms, primary[name].rule.above)
    assert set(content.alternatives) <= {*ADDED, *GENERATION}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("registered")
    return null_experiment.results_of(root, Null())


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Registers other contents for the experiment ``null``."""

    def write(**changes):
        path = tmp_path / str(len(list(tmp_path.iterdir()))) / "null.yaml"
        path.parent.mkdir()
        path.write_text(yaml.safe_dump(CONTENT | changes))
        monkeypatch.setattr("srpo.analysis.report.registration_of", partial(registration_of, folder=path.parent))
        return path

    return write


def test_the_registered_claims_are_the_family_with_their_registered_meaning(results, written):
    without = {finding.claim.id: finding for finding in findings(results)}
    claims = claims_of(results.experiment, written().parent)
    found = {finding.claim.id: finding for finding in findings(results, claims)}
    assert {name for name, finding in found.items() if finding.claim.primary} == set(CONTENT["claims"])
    last, pace = found["srpo_over_grpo_last"], found["srpo_early_pace"]
    assert last.outcomes[0].estimate == without["srpo_over_grpo_last"].outcomes[0].estimate
    assert pace.outcomes[0].estimate == without["sdpo_early_lead"].outcomes[0].estimate  # the terms of the file
    assert pace.verdict == "holds"  # its rule, too
    raw = last.claim.rule.p_holds(last.outcomes[0].estimate)
    assert last.outcomes[0].p_holds == pytest.approx(raw)  # the larger of two: Holm's factor is 1


def test_the_report_has_date_checksum_and_departures(results, written):
    assert registered(results) == []
    path = written()
    (said,) = registered(results)
    assert "registered on 2026-01-02, before the first run" in said
    assert hashlib.sha256(path.read_bytes()).hexdigest() in dict(provenance(results))["registered"]
    written(base_models=[1, 2, 3, 4], clock="modelled")
    departures = registered(results)[1]
    assert "base models: [1, 2, 3], registered [1, 2, 3, 4]" in departures
    assert "clock: wall, registered modelled" in departures
    claims = {"srpo_over_grpo_at_its_settings": {"terms": [[1, "rlsd", "last"], [-1, "grpo", "last"]], "above": 0}}
    written(claims=claims)
    assert registered(results)[1] == "Other than registered: no runs of rlsd."
    other = replace(results, experiment=results.experiment.model_copy(update={"name": "other"}))
    assert registered(other) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"claims": {"x": {"terms": [[1, "srpo", "early"]], "above": 0}}}, "term srpo early: kind score allows"),
        ({"claims": {"x": {"terms": [[1, "srpo", "last"]]}}}, "claims.x = .*: give above, below or within"),
    ],
)
def test_what_cannot_be_is_named(tmp_path, changes, message):
    path = tmp_path / "registered.yaml"
    path.write_text(yaml.safe_dump(CONTENT | changes))
    with pytest.raises(SrpoError, match=message):
        load_registration(path)


def test_a_claim_that_the_report_does_not_know_is_named(results, written):
    path = written(claims={"unheard": CONTENT["claims"]["srpo_over_grpo_last"]})
    with pytest.raises(SrpoError, match=r"claims.unheard is not in reports/claims.yaml"):
        claims_of(results.experiment, path.parent)
