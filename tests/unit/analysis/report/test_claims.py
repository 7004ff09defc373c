"""Claims on logs whose truth is known: the paper's numbers give the paper's tables and verdicts, reversed ones not."""

import math
from dataclasses import replace

import paper_truth
import pytest

from srpo.analysis.claims import Rule, load_claims
from srpo.analysis.figures import step_seconds
from srpo.analysis.load import load_results
from srpo.analysis.numbers import with_numbers
from srpo.analysis.outline import all_sections
from srpo.analysis.statistics.estimates import Estimate
from srpo.analysis.verdicts import Finding, budget_of, findings, overall
from srpo.analysis.write import make_table, make_tables
from srpo.hosts.functional import load_method

# The paper's numbers, right as they are, do not decide these with three seeds and its questions: a gain of 1.8 points
# needs seven, and no benchmark alone tells 1 point.
TOO_CLOSE = {"weighting_late_gain", "weighting_gain_widens", "srpo_best_on_each"}
# Of the reversed numbers: none of 15 runs does not rule out one in four at 2.5 %, for one of two models.
NOT_REFUTED = {"sdpo_collapses"}
NOT_IN_THE_MATRIX = {"failed_only_keeps_benefit", "correct_only_degrades", "srpo_over_grpo_at_its_settings"}
NOT_IN_THE_MATRIX |= {"srpo_at_grpo_settings_over_grpo", "srpo_over_sdpo_at_its_settings"}


def of_the_paper(results) -> dict[str, Finding]:
    """What was found of the paper's claims: whoever adds questions of theirs changes nothing here."""
    return {finding.claim.id: finding for finding in findings(results) if not finding.claim.ours}


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    root = tmp_path_factory.mktemp("paper")
    experiment = paper_truth.experiment()
    paper_truth.write(root, paper_truth.PAPER, experiment)
    return load_results(root)


@pytest.fixture(scope="module")
def tables(paper):
    return make_tables(paper)


def test_table_1_is_the_papers_to_the_digit(tables):
    frame = tables["table1"].frame
    trained = frame[frame["method"] != "base"]
    assert len(trained) == 2 * 3 * 6 * 3
    assert set(trained["in_training_seeds"]) == {3}
    for row in frame.itertuples():
        here = row.resampled if row.method == "base" else row.in_training
        assert f"{here:.1f}" == f"{row.paper:.1f}", row
    published = {(r["model"], r["benchmark"], r["method"], r["budget_hours"]) for r in paper_truth.read("table1_main")}
    assert len(frame) == len(published)


def test_table_2_is_the_papers_to_the_digit(tables):
    frame = tables["table2"].frame
    averages = frame[(frame["benchmark"] == "average") & (frame["model"] == "qwen3-8b")]
    assert len(averages) == 9
    for row in averages.itertuples():
        assert f"{row.in_training:.1f}" == f"{row.paper:.1f}"
    gained = averages.set_index(["method", "budget"])["in_training_difference"]
    assert f"{-gained['srpo_without_weighting', '10h']:.1f}" == "1.8"
    assert f"{-gained['advantage_mix', '10h']:.1f}" == "3.3"


def test_the_selection_bias_is_found(tables):
    bias = tables["table1"].frame.query("benchmark == 'average' and method != 'base'")
    assert bias["selection_bias"].to_numpy() == pytest.approx(paper_truth.SELECTION_BIAS, abs=0.06)


def test_figure_4b_is_the_papers(paper):
    frame = step_seconds.data(paper).query("model == 'qwen3-8b'").dropna(subset="paper")
    assert len(frame) == 9
    assert frame["step_seconds"].to_numpy() == pytest.approx(frame["paper"].to_numpy(), abs=0.01)


def test_the_papers_numbers_make_its_claims_hold(paper):
    found = of_the_paper(paper)
    verdicts = {name: finding.verdict for name, finding in found.items()}
    assert {name for name, verdict in verdicts.items() if verdict == "not tested"} == NOT_IN_THE_MATRIX
    assert {name for name, verdict in verdicts.items() if verdict == "undecided"} == TOO_CLOSE
    assert {name for name, verdict in verdicts.items() if verdict != "holds"} == NOT_IN_THE_MATRIX | TOO_CLOSE
    for name, finding in found.items():
        for outcome in finding.outcomes:
            if outcome.estimate:
                assert outcome.estimate.sampling_unit in ("seed and question", "seed", "run"), name
                assert not finding.interim


def test_the_published_value_of_every_claim_is_what_its_terms_give(paper):
    """The numbers in claims.yaml against the same contrast of the reference tables, with other code."""
    checked = 0
    scores = {
        (r["model"], r["method"], r["budget_hours"]): float(r["avg_at_16"])
        for r in paper_truth.read("table1_main")
        if r["benchmark"] == "average"
    }
    scores |= {
        (r["model"], r["method"], r["budget_hours"]): float(r["avg_at_16"]) for r in paper_truth.read("table2_ablation")
    }
    seconds = {
        (r["model"], r["method"], r["budget_hours"]): float(r["seconds_per_step"])
        for r in paper_truth.read("fig4b_step_seconds")
    }
    names = {"srpo_without_weighting": "srpo_no_dynamic_weighting"}
    hours = {"first": "1", "next_to_last": "5", "last": "10"}
    for claim in load_claims():
        for model, value in claim.paper.items() if isinstance(claim.paper, dict) else ():
            table = seconds if claim.quantity.kind == "step_seconds" else scores
            terms = [(w, table[model, names.get(m, m), hours[when]], m, when) for w, m, when in claim.quantity.terms]
            expected = sum(weight * number for weight, number, *_ in terms)
            if claim.quantity.relative_to:
                expected *= 100 / table[model, claim.quantity.relative_to, hours[terms[0][3]]]
            assert value == pytest.approx(expected, abs=0.051), claim.id
            checked += 1
    assert checked > 25


def test_where_claims_are_false_they_do_not_hold(tmp_path):
    paper_truth.write(tmp_path, paper_truth.REVERSED, paper_truth.experiment())
    found = of_the_paper(load_results(tmp_path))
    refuted = {name for name, finding in found.items() if finding.verdict == "does not hold"}
    assert found.keys() - refuted == NOT_IN_THE_MATRIX | NOT_REFUTED
    assert {found[name].verdict for name in NOT_REFUTED} == {"undecided"}


@pytest.mark.parametrize("hours", [9.9, 10.0])
def test_runs_that_stopped_before_a_budget_say_nothing_about_it(paper, hours):
    """All other verdicts stay; a run that stopped at the very end of the budget counts."""
    srpo = (paper.runs["model"] == "qwen3-8b") & (paper.runs["method"] == "srpo")
    runs = paper.runs.assign(
        clock=paper.runs["clock"].mask(srpo, hours * 3600), stopped_by=paper.runs["stopped_by"].mask(srpo, "max_steps")
    )
    found = of_the_paper(with_numbers(replace(paper, runs=runs))).values()
    silent = {
        finding.claim.id: finding.verdict
        for finding in found
        for outcome in finding.outcomes
        if outcome.reason.endswith("have no number for it")
    }
    of_the_last_budget = {
        claim.id
        for claim in load_claims()
        if claim.quantity.kind in ("score", "best_on_each", "step_seconds")
        if not claim.ours and claim.id not in NOT_IN_THE_MATRIX
        if any((method, when) == ("srpo", "last") for _, method, when in claim.quantity.terms)
    }
    assert set(silent) == (of_the_last_budget | {"srpo_is_stable"} if hours < 10 else set())
    assert {*silent.values()} <= {"not testable here"}  # also what the other model shows
    others = [finding for finding in found if finding.claim.id not in {*silent, *NOT_IN_THE_MATRIX}]
    assert {finding.verdict for finding in others if finding.claim.id not in TOO_CLOSE} == {"holds"}
    assert {finding.verdict for finding in others if finding.claim.id in TOO_CLOSE} <= {"undecided"}


def test_a_step_limit_is_the_end_of_the_last_budget_alone(paper):
    training = paper.experiment.training.model_copy(update={"max_steps": 100})
    experiment = paper.experiment.model_copy(update={"training": training})
    runs = paper.runs.assign(clock=4 * 3600.0, stopped_by="max_steps")
    numbers = with_numbers(replace(paper, runs=runs, experiment=experiment)).of("qwen3-8b", "in_training")
    assert {budget for _, method, budget in numbers if method == "srpo"} == {"1h", "10h"}
    assert {*make_table("budgets", replace(paper, runs=runs, experiment=experiment)).frame["budget"]} == {"1h", "10h"}


def test_one_number_is_not_that_of_two_budgets(paper):
    def places(*names):
        budgets = {name: paper.budget_seconds[name] for name in names}
        training = paper.experiment.training.model_copy(update={"budget_seconds": budgets})
        results = replace(paper, experiment=paper.experiment.model_copy(update={"training": training}))
        found = {finding.claim.id: finding.verdict for finding in findings(results)}
        assert (found["sdpo_stalls"] == "not tested") is (len(names) == 1)  # between the last two
        return [budget_of(when, results) for when in ("first", "next_to_last", "last")]

    assert places("1h", "5h", "10h") == ["1h", "5h", "10h"]
    assert (places("1h", "10h"), places("10h")) == (["1h", None, "10h"], [None, None, "10h"])


def test_the_report_shows_every_claim():
    assert {claim.block for claim in load_claims()} == {section.block for section in all_sections()} - {None}


@pytest.mark.parametrize(
    ("value", "above", "below", "within"),
    [
        (3, "holds", "does not hold", "does not hold"),
        (-3, "does not hold", "holds", "does not hold"),
        (0.5, "undecided", "undecided", "holds"),
        (1.5, "undecided", "undecided", "undecided"),
    ],
)
def test_rules(value, above, below, within):
    estimate = Estimate(value, "seed", 5, error=0.8 if value == 1.5 else 0.4, dof=20)

    def verdict(rule):
        decided = [rule.p_holds(estimate) < 0.025, rule.p_violated(estimate) < 0.025]
        return {(True, False): "holds", (False, True): "does not hold"}.get(tuple(decided), "undecided")

    assert verdict(Rule(above=0)) == above
    assert verdict(Rule(below=0)) == below
    assert verdict(Rule(within=1.5)) == within


def test_a_rule_agrees_with_the_95_percent_interval():
    estimate = Estimate(2.0, "seed", 5, error=1.1, dof=9)
    for threshold in (estimate.low, estimate.high):
        for step in (-0.01, 0.01):
            above, below = Rule(above=threshold + step), Rule(below=threshold + step)
            assert (above.p_holds(estimate) < 0.025) == (estimate.low > threshold + step)
            assert (below.p_holds(estimate) < 0.025) == (estimate.high < threshold + step)


def test_without_an_interval_no_rule_decides():
    estimate = Estimate(0.0, reason="every question gives the same value")
    for rule in (Rule(above=0), Rule(below=1), Rule(within=2)):
        assert math.isnan(rule.p_holds(estimate))
        assert math.isnan(rule.p_violated(estimate))


def test_one_model_against_a_claim_is_enough():
    assert overall(["holds", "does not hold"]) == "does not hold"
    assert overall(["holds", "undecided"]) == "undecided"
    assert overall(["holds", "not tested"]) == "holds"
    assert overall(["holds", "suggestive"]) == "suggestive"
    assert overall(["suggestive", "undecided"]) == "undecided"
    assert overall(["suggestive", "one seed"]) == "one seed"
    assert overall(["holds", "not testable here"]) == "not testable here"
    assert overall(["does not hold", "not testable here"]) == "does not hold"
    assert overall(["not tested", "not testable here"]) == "not testable here"
    assert overall(["not tested"]) == "not tested"


def test_the_primary_family_is_table_1s_and_the_matched_difference():
    primary = [claim for claim in load_claims() if claim.primary]
    assert [
        claim.id for claim in primary if "grpo_at_srpo_settings" in {method for _, method, _ in claim.quantity.terms}
    ]
    assert len(primary) == 8
    assert sum(when == "first" for claim in primary for _, _, when in claim.quantity.terms[:1]) == 2


def test_updates_per_batch_are_the_papers():
    """Table 3: a batch of 32 questions, in mini-batches."""
    for claim in load_claims():
        for name, updates in (claim.quantity.updates_per_batch or {}).items():
            assert 32 // load_method(name).mini_batch_questions == updates
        assert (claim.quantity.kind == "step_seconds") == (claim.quantity.updates_per_batch is not None)


def test_seconds_are_not_compared_where_updates_per_batch_are_not_the_papers(paper):
    grpo = paper.experiment.methods["grpo"]
    methods = paper.experiment.methods | {"grpo": grpo.model_copy(update={"mini_batch_questions": 10**6})}
    one_update = replace(paper, experiment=paper.experiment.model_copy(update={"methods": methods}))
    found = {finding.claim.id: finding for finding in findings(one_update)}
    assert found["step_cheaper_than_grpo_late"].verdict == "not testable here"
    assert "updates per batch" in found["step_cheaper_than_grpo_late"].outcomes[0].reason
    assert found["step_cheaper_than_sdpo_late"].verdict == "holds"


@pytest.mark.parametrize(("kept", "verdict"), [(3, "holds"), (2, "not testable here")])
def test_a_budget_with_few_validations_tests_nothing(paper, kept, verdict):
    """The first budget holds four validations; three are enough, two are not."""
    number = paper.validations.groupby(["model", "benchmark", "method", "seed"]).cumcount()
    validations = paper.validations[(number >= 4 - kept) | (paper.validations["method"] != "grpo")]
    found = {f.claim.id: f for f in findings(with_numbers(replace(paper, validations=validations)))}
    assert found["srpo_over_grpo_first"].verdict == verdict
    if kept == 2:
        assert "validations" in found["srpo_over_grpo_first"].outcomes[0].reason
    assert found["srpo_over_grpo_last"].verdict == "holds"
    assert found["step_dearer_than_grpo_early"].verdict == "holds"
