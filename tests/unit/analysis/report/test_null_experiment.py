"""Verdicts that survive a sceptic: no claim from chance, one seed, an exact zero, or a number counted twice."""

from dataclasses import replace

import null_experiment
import numpy as np
import pytest
from null_experiment import Null, results_of
from scipy import stats

from srpo.analysis.claims import Claim, load_claims
from srpo.analysis.figures import our_differences
from srpo.analysis.numbers import with_numbers
from srpo.analysis.report import remarks, write_report
from srpo.analysis.statistics.deciding import holm
from srpo.analysis.verdicts import UNTESTED, findings
from srpo.analysis.write import make_table
from srpo.hosts.functional import load_method

FAMILY = [claim for claim in load_claims() if claim.primary]
PRIMARY = [c.id for c in FAMILY if {method for _, method, _ in c.quantity.terms} <= {*null_experiment.METHODS}]


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
    assert "primary claims: " in page
    assert " holds, " not in page.split("primary claims: ")[1].split("</li>")[0]


def test_few_null_experiments_have_any_primary_verdict(tmp_path):
    decided = 0
    for number in range(1, 6):
        found = verdicts(results_of(tmp_path / str(number), Null(number=number)), FAMILY)
        decided += any(found[name] in ("holds", "does not hold") for name in PRIMARY)
    assert decided <= 1  # expected: at most one in twenty


def test_a_large_difference_holds_with_seeds_and_not_with_one(one_seed, tmp_path):
    several = verdicts(results_of(tmp_path, Null(run_sd=1.0, gain=(("srpo", 12.0),))))
    for name in ("srpo_over_grpo_last", "srpo_over_sdpo_last"):
        assert several[name] == "holds"
        assert verdicts(one_seed)[name] == "one seed"
    assert "holds" not in verdicts(one_seed).values()
    assert "does not hold" not in verdicts(one_seed).values()


def one_seed_of(method, benchmark=None):
    """Every run but the second and third seeds of ``method``, on all benchmarks or on one."""
    return lambda run: run.seed == 1 or run.method != method or benchmark not in (None, run.benchmark)


@pytest.mark.parametrize(
    ("gain", "several", "side"), [(12.0, "holds", "satisfies"), (-12.0, "does not hold", "violates")]
)
def test_one_seed_on_either_side_neither_shows_nor_refutes_a_claim(gain, several, side, tmp_path):
    null = Null(run_sd=1.0, gain=(("srpo", gain),))
    assert verdicts(results_of(tmp_path / "several", null), FAMILY)["srpo_over_grpo_last"] == several
    for lone in (("grpo", None), ("srpo", "physics")):
        results = results_of(tmp_path / "-".join(map(str, lone)), null, run_exists=one_seed_of(*lone))
        (finding,) = (finding for finding in findings(results, FAMILY) if finding.claim.id == "srpo_over_grpo_last")
        (outcome,) = finding.outcomes
        assert (outcome.estimate.low > 0, outcome.estimate.high < 0) == (gain > 0, gain < 0)
        assert finding.verdict == "one seed"
        assert outcome.reason == f"the interval {side} the rule"


def test_no_claim_about_a_method_with_one_seed_is_decided_and_others_are(tmp_path):
    results = results_of(tmp_path, Null(gain=(("srpo", 12.0),)), run_exists=one_seed_of("srpo"))
    found = findings(results)
    about_srpo = [f for f in found if "srpo" in {method for _, method, _ in f.claim.quantity.terms}]
    assert {f.verdict for f in about_srpo} <= {"one seed", "not tested"}
    assert {"holds", "does not hold"} & {f.verdict for f in found if f not in about_srpo}


def test_best_on_each_is_not_decided_if_a_rival_that_is_not_the_closest_has_one_seed(tmp_path):
    null = Null(run_sd=0.5, gain=(("srpo", 12.0), ("sdpo", -12.0)))
    assert verdicts(results_of(tmp_path / "all", null))["srpo_best_on_each"] == "holds"
    found = {f.claim.id: f for f in findings(results_of(tmp_path / "one", null, run_exists=one_seed_of("sdpo")))}
    (outcome,) = found["srpo_best_on_each"].outcomes
    assert min(outcome.estimate.among, key=lambda lead: lead.value).several_seeds  # the closest, with GRPO
    assert found["srpo_best_on_each"].verdict == "one seed"


def test_every_verdict_is_interim_while_a_run_is_missing(same, tmp_path):
    results = results_of(tmp_path, Null(), run_exists=lambda run: run.seed < 3 or run.benchmark != "physics")
    found = findings(results)
    assert all(finding.interim for finding in found if finding.verdict not in UNTESTED)
    assert not any(finding.interim for finding in findings(same))
    write_report(results, tmp_path / "report.html")
    assert "Interim: 3 of 45 planned runs not finished." in (tmp_path / "report.html").read_text()


def test_other_test_questions_are_named_and_refused(same):
    (some, other) = list(same.experiment.runs())[:2]
    provenance = {some: {"data": {"test": "aa"}}, other: {"data": {"test": "bb"}}}
    mixed = with_numbers(replace(same, provenance=provenance))
    reasons = {finding.outcomes[0].reason for finding in findings(mixed) if finding.claim.id in PRIMARY}
    assert reasons == {"runs cannot be compared (Chemistry: 2 different test files)"}
    assert "Runs on Chemistry are not compared: 2 different test files." in remarks(mixed)
    longer = same.validations.copy()
    longer.at[longer.index[0], "question_scores"] = longer["question_scores"].iloc[0][:-1]
    counts = with_numbers(replace(same, validations=longer))
    assert verdicts(counts)["srpo_over_grpo_last"] == "not testable here"
    assert any("209 and 210 test questions" in remark for remark in remarks(counts))


def test_a_model_without_a_right_answer_is_a_remark(same):
    bases = same.bases.copy()
    bases.at[1, "question_scores"] = 0 * bases.at[1, "question_scores"]
    (said,) = (remark for remark in remarks(replace(same, bases=bases)) if "no answer" in remark)
    assert same.benchmark_title(bases.at[1, "benchmark"]) in said


def test_a_run_that_never_reached_its_second_phase_is_a_remark(same):
    phased = load_method("srpo_then_grpo", first_phase_steps=10**6)
    experiment = same.experiment.model_copy(update={"methods": same.experiment.methods | {"srpo": phased}})
    said = sum("first phase" in remark for remark in remarks(replace(same, experiment=experiment)))
    assert said == sum(same.runs["method"] == "srpo")


def claim(terms, rule, **given):
    quantity = {"kind": "score", "terms": terms}
    fields = {"id": "x", "statement": "X", "section": "1", "unit": "points", "paper": "drawn"}
    return Claim.model_validate(fields | {"quantity": quantity, "rule": rule} | given)


def test_a_claim_waits_for_what_must_be_given(same, one_seed):
    terms = [[1, "sdpo", "last"], [-1, "base", "base"]]
    impossible = {"statement": "SDPO gains 90 points", "terms": terms, "rule": {"above": 90}}
    without, given = claim(terms, {"above": 0}), claim(terms, {"above": 0}, given=impossible)
    assert verdicts(same, (without,)) == {"x": "holds"}
    (finding,) = findings(same, (given,))
    assert (finding.verdict, finding.outcomes[0].reason) == ("undecided", "not shown that SDPO gains 90 points")
    assert verdicts(one_seed, (without,)) == verdicts(one_seed, (given,)) == {"x": "one seed"}


def test_equivalence_is_shown_by_a_narrow_interval_only(same):
    terms = [[1, "srpo", "last"], [-1, "grpo", "last"]]
    (wide,), (narrow,) = (findings(same, (claim(terms, {"within": margin}),)) for margin in (20.0, 0.05))
    assert wide.verdict == "holds"
    assert narrow.verdict == "undecided"


def test_p_values_of_primary_claims_are_holms(same):
    found = {finding.claim.id: finding.outcomes[0] for finding in findings(same)}
    assert found["srpo_over_grpo_at_its_settings"].reason == "not run with grpo_at_srpo_settings"
    primary = [claim for claim in load_claims() if claim.id in PRIMARY]  # the family is without this control
    alone = [c.rule.p_holds(found[c.id].estimate) for c in primary]
    assert [found[c.id].p_holds for c in primary] == pytest.approx(holm(alone))


def test_our_questions_are_decided_together_and_apart_from_the_primary_claims(tmp_path):
    """The same runs with and without the methods of our questions: the primary claims have the same p-values."""
    results = results_of(tmp_path, Null(methods=(*null_experiment.METHODS, "rlsd", "sc_sdpo"), gain=(("rlsd", 3.0),)))
    found = {finding.claim.id: finding.outcomes[0] for finding in findings(results)}
    asked = [claim for claim in load_claims() if claim.ours and found[claim.id].several_seeds]
    assert [c.id for c in asked] == ["rlsd_over_srpo", "sc_sdpo_over_srpo", "sc_sdpo_over_sdpo", "rlsd_over_grpo"]
    for family in (asked, [claim for claim in load_claims() if claim.id in PRIMARY]):
        for p in ("p_holds", "p_violated"):
            alone = [getattr(c.rule, p)(found[c.id].estimate) for c in family]
            assert [getattr(found[c.id], p) for c in family] == pytest.approx(holm(alone))


def test_an_equivalence_is_in_the_table_of_questions_and_not_in_their_figure(tmp_path):
    """Its limit is a margin, not 0; it counts in the family all the same."""
    methods = ("srpo", "srpo_equal_loss_scale", "srpo_without_weighting")
    results = results_of(tmp_path, Null(methods=methods))
    asked = {finding.claim.id: finding for finding in findings(results) if finding.asked}
    assert set(asked) == {"weighting_at_equal_loss_scale", "scale_explains_no_gain"}
    assert set(our_differences.data(results)["claim"]) == {"weighting_at_equal_loss_scale"}
    write_report(results, tmp_path / "report.html")
    assert 'id="claim-scale_explains_no_gain"' in (tmp_path / "report.html").read_text()


def test_claims_that_one_seed_keeps_from_being_decided_cost_the_others_nothing(tmp_path):
    results = results_of(tmp_path, Null(), run_exists=one_seed_of("grpo"))
    found = {finding.claim.id: finding.outcomes[0] for finding in findings(results)}
    tested = [claim for claim in load_claims() if claim.primary and found[claim.id].several_seeds]
    assert [claim.id for claim in tested] == ["srpo_over_sdpo_middle", "srpo_over_sdpo_last"]
    alone = [c.rule.p_holds(found[c.id].estimate) for c in tested]
    assert [found[claim.id].p_holds for claim in tested] == pytest.approx(holm(alone))


def test_the_cross_fitted_score_decides_and_is_the_one_that_is_shown(same):
    """The resampled score of SRPO is raised by 12 points, its validations are not: no verdict changes."""
    of_srpo, scores = same.evaluations["method"] == "srpo", same.evaluations["question_scores"]
    raised = scores.where(~of_srpo, scores.map(lambda s: np.clip(s + 0.12, 0, 1)))
    changed = with_numbers(replace(same, evaluations=same.evaluations.assign(question_scores=raised)))
    one, other = ({f.claim.id: f for f in findings(results)} for results in (same, changed))
    assert {name: f.verdict for name, f in one.items()} == {name: f.verdict for name, f in other.items()}
    (outcome,) = other["srpo_over_grpo_last"].outcomes
    assert outcome.score == "cross_fitted"
    differences = make_table("differences", changed).frame.set_index(["method", "benchmark", "budget"])["difference"]
    assert differences["grpo", "average", "10h"] == outcome.estimate.value
    table = make_table("table1", changed).frame.set_index(["method", "benchmark", "budget"])["cross_fitted"]
    apart = table["srpo", "average", "10h"] - table["grpo", "average", "10h"]
    assert apart == pytest.approx(outcome.estimate.value)


def test_benchmarks_have_their_own_intervals_and_one_over_benchmarks(same):
    found = {finding.claim.id: finding for finding in findings(same)}
    (outcome,) = found["srpo_over_grpo_last"].outcomes
    terms = {("srpo", "10h"): 1.0, ("grpo", "10h"): -1.0}
    assert outcome.on_each == {b: same.estimate("qwen3-8b", terms, [b]) for b in same.experiment.benchmarks}
    assert outcome.holding == sum(each.low > 0 for each in outcome.on_each.values())
    ends = stats.ttest_1samp([each.value for each in outcome.on_each.values()], 0).confidence_interval()
    assert (outcome.over_benchmarks.low, outcome.over_benchmarks.high) == pytest.approx((ends.low, ends.high))


def test_a_gain_between_two_budgets_is_one_of_end_scores(same):
    found = {finding.claim.id: finding.outcomes[0] for finding in findings(same)}
    by_benchmark = []
    for benchmark in same.experiment.benchmarks:
        gains = []
        sdpo = same.validations[same.validations["method"] == "sdpo"]
        for _, log in sdpo[sdpo["benchmark"] == benchmark].groupby("seed"):
            means = [log[log["clock"] <= hours * 3600]["avg_at_k"].tail(3).mean() for hours in (10, 5)]
            gains.append(100 * (means[0] - means[1]))
        by_benchmark.append(np.mean(gains))
    assert found["sdpo_stalls"].estimate.value == pytest.approx(np.mean(by_benchmark))
    assert found["sdpo_stalls"].score == found["srpo_keeps_improving"].score == "end"


def test_benchmarks_without_a_number_are_not_left_out_of_a_verdict(same):
    """A slow method's first validation comes after the first budget; or a benchmark has too few test questions."""
    slow = (same.validations["method"] == "srpo") & (same.validations["clock"] <= 3600)
    late = with_numbers(
        replace(same, validations=same.validations[~(slow & (same.validations["benchmark"] != "physics"))])
    )

    def few(log):
        cut = log["question_scores"].map(lambda scores: scores[:5])
        return log.assign(question_scores=log["question_scores"].mask(log["benchmark"] == "physics", cut))

    short = with_numbers(
        replace(same, validations=few(same.validations), evaluations=few(same.evaluations), bases=few(same.bases))
    )
    assert (late.deciding, short.deciding) == ("cross_fitted", "cross_fitted")
    assert verdicts(late)["srpo_over_grpo_first"] == verdicts(short)["srpo_over_grpo_last"] == "not testable here"
    assert verdicts(late)["srpo_over_grpo_last"] not in UNTESTED
    for results, where in ((late, "Chemistry, Biology, Materials and Tool use"), (short, "Physics")):
        reasons = {found.claim.id: found.outcomes[0].reason for found in findings(results)}
        assert reasons["srpo_over_grpo_first"] == f"finished runs on {where} have no number for it"


def test_one_run_that_ended_early_makes_later_budgets_untestable(same):
    """To decide on the others is to choose by the outcome."""
    ended = (same.runs["method"] == "sdpo") & (same.runs["seed"] == 1) & (same.runs["benchmark"] == "physics")
    runs = same.runs.assign(
        clock=same.runs["clock"].mask(ended, 6 * 3600.0), stopped_by=same.runs["stopped_by"].mask(ended, "max_steps")
    )
    found = {finding.claim.id: finding for finding in findings(with_numbers(replace(same, runs=runs)))}
    for name in ("srpo_over_sdpo_last", "sdpo_stalls", "srpo_best_on_each"):
        assert found[name].verdict == "not testable here"
    for name in ("srpo_over_sdpo_middle", "srpo_over_grpo_last", "sdpo_early_lead"):
        assert found[name].verdict not in UNTESTED
