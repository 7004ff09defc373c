"""Verdicts that survive a sceptic: no claim from chance, one seed, an exact zero, or a number counted twice."""

import json
import math
from dataclasses import replace

import null_experiment
import pytest
from null_experiment import Null

from srpo.analysis.report.claims import Claim, findings, load_claims
from srpo.analysis.report.page import write_report
from srpo.analysis.report.summary import headlines, remarks
from srpo.analysis.results.load import load_results

PRIMARY = [claim.id for claim in load_claims() if claim.primary]


def results_of(root, null, **options):
    null_experiment.write(root, null, **options)
    return load_results(root)


def verdicts(results, claims=None):
    return {finding.claim.id: finding.verdict for finding in findings(results, claims)}


@pytest.fixture(scope="module")
def same(tmp_path_factory):
    return results_of(tmp_path_factory.mktemp("null"), Null())


@pytest.fixture(scope="module")
def one_seed(tmp_path_factory):
    return results_of(tmp_path_factory.mktemp("one"), Null(seeds=(1,), run_sd=0, gain=(("srpo", 12.0),)))


def test_one_method_under_three_names_gives_a_report_without_a_primary_claim_that_holds(same, tmp_path):
    found = verdicts(same)
    assert {found[name] for name in PRIMARY} <= {"undecided", "suggestive", "does not hold"}
    assert found["srpo_best_on_each"] != "holds"
    write_report(same, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert f"Of the {len(PRIMARY)} primary claims, 0 hold." in page
    assert "one may be wrong by chance" not in page


def test_few_null_experiments_have_any_primary_verdict(tmp_path):
    decided = 0
    for number in range(1, 9):
        found = verdicts(results_of(tmp_path / str(number), Null(number=number)))
        decided += any(found[name] in ("holds", "does not hold") for name in PRIMARY)
    assert decided <= 2  # expected: at most one in twenty


def test_a_large_difference_holds_with_seeds_and_is_suggestive_with_one(one_seed, tmp_path):
    several = verdicts(results_of(tmp_path, Null(run_sd=1.0, gain=(("srpo", 12.0),))))
    for name in ("srpo_over_grpo_last", "srpo_over_sdpo_last"):
        assert several[name] == "holds"
        assert verdicts(one_seed)[name] == "suggestive"
    assert "holds" not in verdicts(one_seed).values()
    assert "does not hold" not in verdicts(one_seed).values()


def one_seed_of(method, benchmark=None):
    """Every run but the second and third seeds of ``method``, on all benchmarks or on one."""
    return lambda run: run.seed == 1 or run.method != method or benchmark not in (None, run.benchmark)


def test_one_seed_is_widened_by_the_spread_of_other_methods_seeds_and_says_so(tmp_path):
    results = results_of(tmp_path, Null(gain=(("srpo", 12.0),)), run_exists=one_seed_of("srpo"))
    found = {finding.claim.id: finding for finding in findings(results)}
    (outcome,) = found["srpo_over_grpo_last"].outcomes
    assert outcome.estimate.spread.sd == pytest.approx(2.0, abs=1.0)
    assert outcome.estimate.spread.dof == 20
    assert outcome.estimate.meaning == "question, run SD"
    assert "no claim about it holds; a claim can be suggestive" in " ".join(headlines(results, [*found.values()]))


@pytest.mark.parametrize(
    ("gain", "several", "one"), [(12.0, "holds", "suggestive"), (-12.0, "does not hold", "undecided")]
)
def test_one_seed_on_either_side_neither_shows_nor_refutes_a_claim(gain, several, one, tmp_path):
    null = Null(run_sd=1.0, gain=(("srpo", gain),))
    assert verdicts(results_of(tmp_path / "several", null))["srpo_over_grpo_last"] == several
    for lone in (("srpo", None), ("grpo", None), ("srpo", "physics")):
        results = results_of(tmp_path / "-".join(map(str, lone)), null, run_exists=one_seed_of(*lone))
        (finding,) = (finding for finding in findings(results) if finding.claim.id == "srpo_over_grpo_last")
        (outcome,) = finding.outcomes
        assert (outcome.estimate.low > 0, outcome.estimate.high < 0) == (gain > 0, gain < 0)
        assert finding.verdict == one
        assert outcome.reason.endswith("but a method has one seed only")


def test_no_claim_about_a_method_with_one_seed_is_decided_and_others_are(tmp_path):
    results = results_of(tmp_path, Null(gain=(("srpo", 12.0),)), run_exists=one_seed_of("srpo"))
    found = findings(results)
    about_srpo = [f for f in found if "srpo" in {method for _, method, _ in f.claim.quantity.terms}]
    assert {f.verdict for f in about_srpo} <= {"suggestive", "undecided", "not tested"}
    assert {"holds", "does not hold"} & {f.verdict for f in found if f not in about_srpo}


def test_best_on_each_is_suggestive_if_a_rival_that_is_not_the_closest_has_one_seed(tmp_path):
    null = Null(run_sd=0.5, gain=(("srpo", 12.0), ("sdpo", -12.0)))
    assert verdicts(results_of(tmp_path / "all", null))["srpo_best_on_each"] == "holds"
    found = {f.claim.id: f for f in findings(results_of(tmp_path / "one", null, run_exists=one_seed_of("sdpo")))}
    (outcome,) = found["srpo_best_on_each"].outcomes
    assert outcome.estimate.several_seeds  # the closest comparison, with GRPO
    assert found["srpo_best_on_each"].verdict == "suggestive"


def test_every_verdict_is_interim_while_a_run_is_missing(same, tmp_path):
    results = results_of(tmp_path, Null(), run_exists=lambda run: run.seed < 3 or run.benchmark != "physics")
    found = findings(results)
    assert all(finding.interim for finding in found if finding.verdict != "not tested")
    assert not any(finding.interim for finding in findings(same))
    write_report(results, tmp_path / "report.html")
    assert "Interim: 3 of 45 planned runs are not finished." in (tmp_path / "report.html").read_text()
    assert headlines(results, found)[0].startswith("Interim: of the paper's")


def test_other_test_questions_are_named_and_refused(same):
    (some, other) = list(same.experiment.runs())[:2]
    provenance = {some: {"data": {"test": "aa"}}, other: {"data": {"test": "bb"}}}
    mixed = replace(same, provenance=provenance)
    reasons = {finding.outcomes[0].reason for finding in findings(mixed) if finding.claim.id in PRIMARY}
    assert reasons == {"runs cannot be compared (Chemistry: 2 different test files)"}
    assert any("Chemistry (2 different test files)" in remark for remark in remarks(mixed))
    longer = same.validations.copy()
    longer.at[longer.index[0], "question_scores"] = longer["question_scores"].iloc[0][:-1]
    counts = replace(same, validations=longer)
    assert verdicts(counts)["srpo_over_grpo_last"] == "not tested"
    assert any("209 and 210 test questions" in remark for remark in remarks(counts))


def test_with_fewer_budgets_a_number_is_counted_once(same):
    for kept, expected in ((["1h", "10h"], "not tested"), (["10h"], "not tested")):
        budgets = {name: same.experiment.training.budget_seconds[name] for name in kept}
        training = same.experiment.training.model_copy(update={"budget_seconds": budgets})
        results = replace(same, experiment=same.experiment.model_copy(update={"training": training}))
        found = {finding.claim.id: finding for finding in findings(results)}
        assert found["srpo_over_grpo_first"].verdict != "not tested"
        assert found["srpo_over_grpo_middle"].verdict == expected
        if len(kept) == 1:
            assert found["srpo_over_grpo_last"].outcomes[0].reason.startswith("the same number as")
            assert found["grpo_overtakes_sdpo"].verdict == "not tested"  # SDPO's early lead with the other sign


def test_a_claim_waits_for_what_must_be_given(same, one_seed):
    quantity = {"kind": "score", "terms": [[1, "sdpo", "last"], [-1, "base", "base"]]}
    claim = {"id": "x", "statement": "X", "section": "1", "quantity": quantity, "unit": "points", "paper": "drawn"}
    claim |= {"rule": {"above": 0}, "evidence": "table1"}
    impossible = {"statement": "SDPO gains 90 points", "terms": quantity["terms"], "rule": {"above": 90}}
    without, given = (Claim.model_validate(claim | more) for more in ({}, {"given": impossible}))
    assert verdicts(same, (without,)) == {"x": "holds"}
    (finding,) = findings(same, (given,))
    assert (finding.verdict, finding.outcomes[0].reason) == ("undecided", "not shown that SDPO gains 90 points")
    assert verdicts(one_seed, (without,)) == {"x": "suggestive"}
    assert verdicts(one_seed, (given,)) == {"x": "undecided"}


def test_equivalence_is_shown_by_a_narrow_interval_only(same):
    def claim(margin):
        terms = [[1, "srpo", "last"], [-1, "grpo", "last"]]
        quantity = {"kind": "score", "terms": terms}
        fields = {"id": "x", "statement": "X", "section": "1", "quantity": quantity, "unit": "points"}
        return Claim.model_validate(fields | {"rule": {"within": margin}, "paper": "drawn", "evidence": "table1"})

    (wide,), (narrow,) = findings(same, (claim(20.0),)), findings(same, (claim(0.05),))
    assert wide.verdict == "holds"
    assert narrow.verdict == "undecided"


def test_scores_outside_their_range_and_corrupt_lines_are_named(tmp_path):
    made = null_experiment.write(tmp_path, Null(seeds=(1,)))
    log = tmp_path / "runs" / next(iter(made.runs())).path / "validations.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    event = json.loads(lines[2])
    event["question_scores"][0] = 1.2
    log.write_text("".join([*lines[:2], json.dumps(event) + "\n", *lines[3:]]))
    with pytest.raises(Exception, match=r"the score of step 6 has a question outside 0 to 1"):
        load_results(tmp_path)
    log.write_text("".join([*lines[:4], "{broken\n", *lines[5:]]))
    with pytest.raises(Exception, match=r"validations\.jsonl, line 5: not JSON"):
        load_results(tmp_path)


def test_p_values_of_primary_claims_are_holms(same):
    found = {finding.claim.id: finding.outcomes[0] for finding in findings(same)}
    for claim in load_claims():
        if claim.primary:
            alone = claim.rule.p_holds(found[claim.id].estimate)
            assert found[claim.id].p_holds >= alone or math.isclose(found[claim.id].p_holds, alone)
