"""What the report says about the runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from html import unescape
from itertools import product

import null_experiment
import pandas as pd
import pytest
from null_experiment import Null
from report_cases import EXPERIMENT, make, results_of
from synthetic import paper_experiment, tiny_experiment, tiny_of, write_results

from srpo import __version__
from srpo.analysis.figures.curves import Series, clock_curves
from srpo.analysis.figures.drawing import LinesByMethod
from srpo.analysis.figures.registry import FIGURES, _all, _metrics, _title, figure_data
from srpo.analysis.report.first_look import (
    LONGEST,
    _published,
    _support,
    _verdict,
    answers,
    card,
    command,
    listed,
    stored,
    what_was_run,
)
from srpo.analysis.report.page import render
from srpo.analysis.report.summary import background, misspelt, remarks
from srpo.analysis.results.claims import load_claims
from srpo.analysis.results.estimates import Estimate
from srpo.analysis.results.load import load_results
from srpo.analysis.results.scores import Scores
from srpo.analysis.results.verdicts import UNTESTED, Outcome, findings
from srpo.analysis.tables.registry import build_tables
from srpo.experiment.compose import load_experiment
from srpo.repository import CONFIGS
from srpo.text import duration


def test_remarks_name_runs_of_other_settings_and_early_ends(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    folder = tmp_path / "runs/miniature-small/physics/srpo/seed1"
    record = (folder / "run.yaml").read_text()
    (folder / "run.yaml").write_text(record.replace("weight_decay: 0.01", "weight_decay: 0.5"))
    copied = tmp_path / "runs/miniature-small/physics/grpo/seed1/run.yaml"
    copied.write_text(copied.read_text().replace("experiment: tiny", "experiment: another"))
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"stopped_by": "max_steps", "clock": 12.0}))
    results = load_results(tmp_path)
    found = " ".join(remarks(results))
    named = "Miniature-S · Physics · SRPO · seed 1 (training.weight_decay = 0.5, now 0.01)."
    assert f"differ from the experiment's, so snakemake trains them again: {named}" in found
    assert "before the last budget" in found
    assert "disagrees" not in found
    curves = clock_curves(results, EXPERIMENT.methods).query("benchmark == 'physics'")
    ends = curves.groupby("method")["clock"].max()
    assert 11.5 < ends["srpo"] <= 12
    assert ends["grpo"] == ends["sdpo"] == 20


def test_remarks_name_evaluations_with_another_number_of_samples(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    results = load_results(tmp_path)
    assert not any("evaluation.rollouts" in remark for remark in remarks(results))
    more = EXPERIMENT.evaluation.model_copy(update={"rollouts": 2 * EXPERIMENT.evaluation.rollouts})
    (said,) = (
        remark
        for remark in remarks(replace(results, experiment=EXPERIMENT.model_copy(update={"evaluation": more})))
        if "evaluation.rollouts" in remark
    )
    named = f"evaluation.rollouts = {more.rollouts}, but these have other numbers: Miniature-S · "
    assert said.startswith(named)
    assert f"seed 1 ({EXPERIMENT.evaluation.rollouts})" in said


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("wall", "wall. A budget is measured time: a faster machine takes more steps"),
        ("modelled", "modelled. A budget is FLOPs at nominal rates"),
        ("calibrated", "calibrated. A budget is a number of steps: each counts what it took in the paper (figure 4b)"),
    ],
)
def test_the_page_says_which_clock_counted(tmp_path, kind, words):
    training = tiny_experiment()["training"] | {"clock": {"kind": kind}}
    page = make(tmp_path, load_experiment(tiny_experiment(training=training)))
    assert f"The training clock is {words}" in unescape(page)
    assert f"of the {kind} clock" in unescape(page)


def test_our_questions_are_not_taken_for_the_papers_claims(tmp_path):
    """They stand in a table of their own, and the summary counts the paper's alone."""
    page = make(tmp_path, tiny_of(methods=["grpo", "srpo", "rlsd"]))
    tables = re.findall(r'aria-label="(Claim|Question)s">(.*?)</table>', page, flags=re.S)
    shown = {kind: " ".join(rows for name, rows in tables if name == kind) for kind in ("Claim", "Question")}
    results = load_results(tmp_path)
    found = findings(results)
    blocks = {finding.claim.block for finding in found if finding.verdict != "not tested"}
    for finding in found:
        claim = finding.claim
        assert (f'id="claim-{claim.id}"' in shown["Claim"]) is (claim.block in blocks and not claim.ours)
        asked = claim.ours and finding.verdict != "not tested"
        assert (f'id="claim-{claim.id}"' in shown["Question"]) is asked
    tested = [f for f in found if f.verdict != "not tested" and not (f.claim.ours or f.claim.check)]
    primary = sum(finding.claim.primary for finding in tested)
    said = answers(results, found)
    assert said[-2].endswith(f", of {primary} primary claims.")
    assert said[-1].startswith("Of our 2 questions ")


def test_the_sentences_have_the_scores_the_leads_and_the_verdicts(tmp_path):
    made = null_experiment.write(tmp_path, Null(run_sd=1.0, gain=(("srpo", 12.0), ("sdpo", 12.0))))
    results = load_results(tmp_path)
    found = findings(results)
    scores, leads, decided = answers(results, found)
    terms = {method: {(method, "10h"): 1.0} for method in ("grpo", "sdpo", "srpo")}
    ends = {
        method: Scores.of(results).estimate("qwen3-8b", term, made.benchmarks).value for method, term in terms.items()
    }
    last = [Scores.of(results).estimate("qwen3-8b", term, made.benchmarks, "end").value for term in terms.values()]
    base = 100 * results.bases["avg_at_k"].mean()
    assert scores == (
        f"At its best checkpoint, chosen on other questions, GRPO has {ends['grpo']:.1f} % right, "
        f"SDPO {ends['sdpo']:.1f} % and SRPO {ends['srpo']:.1f} % (untrained {base:.1f} %), "
        "on average over 5 benchmarks. Mean of their last three validations: {:.1f}, {:.1f} and {:.1f} %.".format(*last)
    )
    outcomes = {f.claim.id: f.outcomes[0] for f in found}
    over = [outcomes[f"srpo_over_{rival}_last"] for rival in ("grpo", "sdpo")]
    assert over[0].verdict == "holds"
    for outcome, rival in zip(over, ("GRPO", "SDPO"), strict=True):
        estimate = outcome.estimate
        assert estimate.value == pytest.approx(ends["srpo"] - ends[rival.lower()])
        side = "above" if estimate.value > 0 else "below"
        assert f"{abs(estimate.value):.1f}{' points' * (rival == 'GRPO')} {side} {rival} [{estimate.low:.1f}, " in leads
        shown = [n for n, e in outcome.on_each.items() if (e.low > 0 if estimate.value > 0 else e.high < 0)]
        alone = f"{results.experiment.benchmarks[shown[0]].title.lower()} alone" if len(shown) == 1 else ""
        assert (alone or f"{len(shown)} of 5") in leads
        opposite = [n for n, e in outcome.on_each.items() if (e.high < 0 if estimate.value > 0 else e.low > 0)]
        assert ("below on " in leads.split(rival)[1].split(")")[0]) is (estimate.value > 0 and bool(opposite))
        assert all(results.experiment.benchmarks[name].title.lower() in leads for name in opposite)
        beyond = outcome.over_benchmarks.low <= 0 <= outcome.over_benchmarks.high
        assert ("not shown for new benchmarks" in leads.split(rival)[1].split(")")[0]) is beyond
    assert leads.endswith(f": with 3 runs each the first is shown, the second is {over[1].verdict}.")
    assert "1 does not hold" in decided
    primary, others = (sum(map(int, re.findall(r"(\d+) (?:hold|do|is|are)", part))) for part in decided.split(";"))
    assert [primary, others] == [int(n) for n in re.findall(r"(\d+) (?:primary claim|other)", decided)]
    assert all(len(sentence) <= LONGEST for sentence in (scores, leads, decided))
    assert what_was_run(results) == (
        f"Qwen3-8B on {len(made.benchmarks)} benchmarks of invented questions · GRPO, SDPO and SRPO · 3 seeds · "
        "10 h of wall clock"
    )


def test_every_score_of_the_first_sentence_stands_in_a_table(tmp_path):
    results = results_of(tmp_path, tiny_of(seeds=[1, 2]))
    tables = build_tables(results)
    numbers = {}
    for name, score in (("table1", "cross_fitted"), ("ends", "end")):
        frame = tables[name].frame
        numbers[name] = frame[(frame["benchmark"] == "average") & (frame["budget"] == "10h")][score]
    best, end = answers(results, findings(results))[0].split(" Mean of their last three validations: ")
    assert re.findall(r"([\d.]+) %", best.split("(untrained")[0]) == [f"{value:.1f}" for value in numbers["table1"]]
    assert re.findall(r"\d+\.\d", end) == [f"{value:.1f}" for value in numbers["ends"]]


@pytest.mark.parametrize(
    ("value", "verdict", "said"),
    [
        (5.0, "holds", "shown"),
        (-5.0, "does not hold", "shown"),  # the sentence says that it is below
        (5.0, "suggestive", "suggestive, not shown after correction"),
        (-5.0, "undecided", "undecided after correction"),
        (0.5, "undecided", "undecided"),
    ],
)
def test_a_verdict_is_about_the_side_that_the_sentence_names(value, verdict, said):
    assert _verdict(Outcome("m", verdict, Estimate(value, error=1.0, dof=20.0))) == said


def test_a_lead_that_one_benchmark_shows_names_it(tmp_path):
    clear, unclear = (Estimate(value, "seed", 3, error=1.0, dof=1e6) for value in (5.0, 1.0))
    outcome = Outcome("m", "holds", clear, benchmarks=2, several_seeds=True)
    alone = replace(outcome, on_each={"chemistry": unclear, "physics": clear})
    both = replace(outcome, on_each={"chemistry": clear, "physics": clear})
    results = results_of(tmp_path)
    assert _support(results, alone, again=False) == " [3.0, 7.0] (shown on physics alone)"
    assert _support(results, alone, again=True) == " [3.0, 7.0] (physics alone)"
    assert _support(results, both, again=False) == " [3.0, 7.0] (shown on 2 of 2 benchmarks)"


def test_a_lead_of_one_run_each_has_no_interval_and_decides_nothing(tmp_path):
    results = null_experiment.results_of(tmp_path, Null(seeds=(1,)))
    found = findings(results)
    primary = [finding for finding in found if finding.claim.primary and finding.verdict != "not tested"]
    assert {finding.verdict for finding in primary} == {"one seed"}
    _, leads, decided = answers(results, found)
    estimate = next(f for f in found if f.claim.id == "srpo_over_grpo_last").outcomes[0].estimate
    assert estimate.has_interval  # over questions alone
    assert "[" not in leads
    assert leads.endswith(": one run each, no interval.")
    assert "decided" not in leads
    assert decided == f"One run each: nothing is decided, of {len(primary)} primary claims."
    log = results.validations
    few = replace(results, validations=log[(log["clock"] < 2500) | (log["clock"] > 5 * 3600)])  # two within 5 h
    assert answers(few, findings(few))[-1] == decided  # some are not testable here


def test_the_sentences_of_each_model_and_of_many_methods(tmp_path):
    methods = ["grpo", "sdpo", "srpo", "rlsd", "sc_sdpo", "srpo_frozen_teacher", "srpo_equal_loss_scale"]
    results = results_of(tmp_path, tiny_of(models=["miniature-small", "miniature-tiny"], methods=methods))
    said = answers(results, findings(results))
    titles = [model.title for model in results.experiment.models.values()]
    assert [sentence.split(":")[0] for sentence in said[:4]] == [titles[0], titles[0], titles[1], titles[1]]
    estimate = partial(Scores.of(results).estimate, "miniature-small", benchmarks=["chemistry", "physics"])
    ends = [estimate({(method, "10h"): 1.0}).value for method in methods[3:]]
    assert f"; 4 other methods have {min(ends):.1f} to {max(ends):.1f} % (untrained " in said[0]


def test_nothing_to_compare_is_no_sentence(tmp_path):
    results = results_of(tmp_path, tiny_of(methods=["sdpo"]))
    scores, decided = answers(results, findings(results))
    assert scores.startswith("At its best checkpoint, chosen on other questions, SDPO has ")
    assert decided.startswith("No primary claim is tested here: not run with srpo, grpo; ")


def _ended_by_max_steps(results, seconds=7200.0, budgets=("10h",), max_steps=100):
    """The same runs, each at its planned last step long before the last budget."""
    training = results.experiment.training
    kept = {budget: training.budget_seconds[budget] for budget in budgets}
    changed = training.model_copy(update={"max_steps": max_steps, "budget_seconds": kept})
    return replace(
        results,
        experiment=results.experiment.model_copy(update={"training": changed}),
        runs=results.runs.assign(stopped_by="max_steps", clock=seconds),
        validations=results.validations[results.validations["clock"] <= seconds],
        evaluations=results.evaluations[results.evaluations["budget"].isin(budgets)],
    )


@pytest.mark.parametrize("budgets", [("10h",), ("1h", "10h")])
@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)])
def test_a_run_that_ended_by_max_steps_has_reached_its_last_budget(tmp_path, seeds, budgets):
    results = null_experiment.results_of(tmp_path, Null(seeds=seeds, gain=(("srpo", 12.0),)))
    ended = _ended_by_max_steps(results, budgets=budgets)
    _, leads, decided = answers(ended, findings(ended))
    benchmarks = [*ended.experiment.benchmarks]
    for rival in ("grpo", "sdpo"):
        terms = {("srpo", "10h"): 1.0, (rival, "10h"): -1.0}
        estimate = Scores.of(ended).estimate("qwen3-8b", terms, benchmarks)
        ends = f" [{estimate.low:.1f}, {estimate.high:.1f}]" if len(seeds) > 1 else ""
        assert f"above {rival.upper()}{ends} (" in leads
    assert ("one run each" in leads, ": with 3 runs each" in leads) == (len(seeds) == 1, len(seeds) == 3)
    assert "not tested" not in leads
    assert "stopped before" not in decided
    early = _ended_by_max_steps(results, budgets=budgets, max_steps=None)  # nobody planned this end
    assert "srpo_over_grpo_last" not in {f.claim.id for f in findings(early) if f.verdict != "not tested"}


@pytest.mark.parametrize(
    ("methods", "said"), [(["grpo", "sdpo"], "SDPO's best is"), (["srpo", "rlsd"], "SRPO's best is")]
)
def test_a_difference_that_no_claim_tests_has_its_interval_on_the_first_screen(tmp_path, methods, said):
    results = results_of(tmp_path, tiny_of(methods=methods, seeds=[1, 2]))
    leads = answers(results, findings(results))[1]
    assert leads.startswith(said)
    assert "[" in leads


def test_a_run_without_a_number_is_said_to_have_none(tmp_path):
    results = null_experiment.results_of(tmp_path, Null(seeds=(1,)))
    late = replace(results, validations=results.validations[results.validations["clock"] > 3600])
    reasons = {outcome.reason for finding in findings(late) for outcome in finding.outcomes}
    assert "finished runs have no number for it" in reasons
    assert "not measured yet" not in reasons


def test_the_published_leads_stand_beside_those_of_the_same_model(tmp_path):
    results = results_of(tmp_path / "results")
    folder = tmp_path / "registered"
    assert _published(results, folder) == []
    folder.mkdir()
    (folder / "provenance.yaml").write_text("runs: 120\n")
    places = ("average", *results.experiment.benchmarks)
    keys = product(places, ("grpo", "sdpo"), ("1h", "9h"))
    rows = pd.DataFrame(keys, columns=["benchmark", "method", "budget"])
    rows = rows.assign(model=next(iter(results.experiment.models)), difference=range(len(rows)))
    rows = rows.assign(difference_low=rows["difference"] - 8.04, difference_high=rows["difference"] + 7)
    rows.to_csv(folder / "differences.csv", index=False)

    def lead(rival: str, *benchmarks: str) -> str:
        terms = {("srpo", "10h"): 1.0, (rival, "10h"): -1.0}
        model, *_ = results.experiment.models
        return f"{Scores.of(results).estimate(model, terms, benchmarks or ['chemistry', 'physics']).value:+.1f}"

    average = (
        f"on average {lead('grpo')} (+1.0 [-7.0, +8.0]) over GRPO and {lead('sdpo')} (+3.0 [-5.0, +10.0]) over SDPO"
    )
    start = "SRPO's lead in points here, and in brackets that of our published experiment (registered, 120 runs): "
    assert _published(results, folder) == [f"{start}{average}."]
    elsewhere = rows[rows["benchmark"] == "physics"].assign(benchmark="biology")
    pd.concat([rows[["model", *rows.columns.drop("model")]], elsewhere]).to_csv(folder / "differences.csv", index=False)
    assert _published(results, folder) == [
        f"{start}on chemistry {lead('grpo', 'chemistry')} (+5.0 [-3.0, +12.0]) over GRPO and "
        f"{lead('sdpo', 'chemistry')} (+7.0 [-1.0, +14.0]) over SDPO; "
        f"on physics {lead('grpo', 'physics')} (+9.0 [+1.0, +16.0]) over GRPO and "
        f"{lead('sdpo', 'physics')} (+11.0 [+3.0, +18.0]) over SDPO."
    ]
    without = results_of(tmp_path / "without-grpo", tiny_of(methods=["sdpo", "srpo"]))
    (sentence,) = _published(without, folder)
    assert "over SDPO" in sentence
    assert "GRPO" not in sentence
    rows.assign(model="miniature-large").to_csv(folder / "differences.csv", index=False)
    assert _published(results, folder) == []


def test_the_card_has_a_line_for_what_is_known(tmp_path):
    results = results_of(tmp_path)
    names = ["code", "processor", "training", "model", "questions", "command"]
    assert [name for name, _ in card(results)] == names
    first, second = (tmp_path / "runs" / run.path / "attempts.jsonl" for run in EXPERIMENT.runs()[:2])
    start = 1795572000.0  # 25 November 2026, 02:00 UTC
    day = 24 * 3600
    events = {
        first: [(1, "start", 0), (1, "end", 60), (2, "start", 2 * day)],  # the second attempt was killed
        second: [(1, "start", 30), (1, "end", 90)],
    }
    for path, log in events.items():
        lines = [{"attempt": n, "event": event, "time": start + at, "step": 1} for n, event, at in log]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = load_results(tmp_path)
    found = dict(card(results))
    assert found["date"] == "2026-11-25"
    assert found["code"] == f"srpo {__version__}, commit 13707f0"
    seconds = sum(json.loads(path.read_text())["wall_seconds"] for path in (tmp_path / "runs").rglob("summary.json"))
    assert found["training"] == f"{len(EXPERIMENT.runs())} runs, {duration(seconds)} of wall time"
    assert found["model"] == "Miniature-S (a toy of 0.10 M parameters)"
    assert found["questions"].startswith("2 benchmarks of invented questions, each ")


def test_the_card_has_each_version_once_with_its_commits(tmp_path):
    results = results_of(tmp_path)
    origins = [{"srpo": "0.3.0", "commit": f"{n}" * 40, "processor": f"Maker, {n}"} for n in (1, 2, 1)]
    made = replace(results, provenance=dict(zip(EXPERIMENT.runs(), origins, strict=False)))
    found = dict(card(made))
    assert found["code"] == "srpo 0.3.0, commit 1111111; 2222222"
    assert found["processor"] == "Maker, 1; Maker, 2"


def test_the_first_line_has_the_steps_at_which_runs_end(tmp_path):
    results = null_experiment.results_of(tmp_path, Null(seeds=(1,)))
    assert what_was_run(_ended_by_max_steps(results)).endswith(" · 1 seed · 100 steps")
    some = _ended_by_max_steps(results)
    some.runs.loc[some.runs.index[0], "stopped_by"] = "budget"
    assert what_was_run(some).endswith(" · at most 100 steps or 10 h of wall clock")


def test_benchmarks_with_the_same_test_questions_are_said(tmp_path):
    results = results_of(tmp_path)
    assert not [remark for remark in remarks(results) if "same test questions" in remark]
    twice = {
        name: results.experiment.benchmarks["physics"].model_copy(update={"name": name, "title": name.title()})
        for name in results.experiment.benchmarks
    }
    results = replace(results, experiment=results.experiment.model_copy(update={"benchmarks": twice}))
    assert remarks(results)[0].startswith("The same test questions: Chemistry and Physics. ")


def test_the_command_names_a_shipped_file_only_if_that_says_the_same(tmp_path):
    smoke = load_experiment(CONFIGS / "experiments" / "smoke.yaml")
    assert command(load_results(tmp_path, smoke)) == "snakemake --configfile configs/experiments/smoke.yaml"
    mine = smoke.model_copy(update={"title": "Mine"})
    assert command(load_results(tmp_path, mine)) == "snakemake --configfile results/smoke/experiment.yaml"
    (tmp_path / "provenance.yaml").write_text("trained: 2026-11-25\n")  # as in a published experiment
    assert command(load_results(tmp_path, mine)) == "snakemake --configfile published/smoke/experiment.yaml"
    assert stored(load_results(tmp_path, smoke)) == "published/smoke"


def test_the_checks_are_one_line_beside_the_verdicts_and_not_counted_with_one_seed(tmp_path):
    results = null_experiment.results_of(tmp_path / "several", Null())
    found = findings(results)
    checks = [f for f in found if f.claim.check and f.verdict not in UNTESTED]
    said = background(results, found)[0]
    assert checks
    assert said.startswith(f"Of {len(checks)} checks that any learning method fulfils, ")
    assert all(f.claim.statement in said for f in checks if f.verdict != "holds")
    assert not any(f.claim.statement in " ".join(answers(results, found)) for f in checks)
    page = render(results, tmp_path)
    for finding in checks:
        row = page.split(f'<tr id="claim-{finding.claim.id}">')[1].split("</tr>")[0]
        assert f">check: {finding.verdict}</td>" in row
        assert 'class="verdict' not in row
    one = null_experiment.results_of(tmp_path / "one", Null(seeds=(1,)))
    assert "any learning method fulfils" not in " ".join(background(one, findings(one)))


def test_many_statements_are_cut_to_two_lines():
    statements = [f"statement number {i} of some length" for i in range(20)]
    short = listed(statements, 100)
    assert short == "; ".join(statements[:2]) + "; and 18 more"
    assert listed(statements[:1], 5) == statements[0]


def test_a_toy_is_called_a_toy_in_the_first_line_and_in_figures(tmp_path):
    page = make(tmp_path)
    assert "Miniature-S (a toy of 0.10 M parameters) on 2 benchmarks of invented questions" in page
    assert _title(FIGURES["routing"], load_results(tmp_path)).endswith(" · toy")
    assert "toy" not in what_was_run(load_results(tmp_path, paper_experiment()))


def test_a_misspelt_name_of_a_claim_or_figure_is_said(tmp_path, monkeypatch):
    results = results_of(tmp_path)
    assert misspelt(results) == []
    claims = load_claims()
    (of_metric, *_) = (c for c in claims if c.quantity.metric == "response_length/mean")
    wrong = {"metric": "response_lenght/mean"}, {"terms": [(1.0, "srpo_succes_buffer", "late")]}
    own = tuple(
        of_metric.model_copy(update={"id": f"own_{n}", "quantity": of_metric.quantity.model_copy(update=each)})
        for n, each in enumerate(wrong)
    )
    monkeypatch.setattr("srpo.analysis.report.summary.load_claims", lambda: (*claims, *own))
    for number, (name, branch) in enumerate({"los/sdpo": "sdpo", "los/mix": "mix"}.items()):
        figure = ("teacher_entropy", "response_length")[number]
        spec = _metrics(figure, "X", _all, LinesByMethod(Series(name, branch=branch), "x"), "X.")
        monkeypatch.setitem(FIGURES, figure, spec)
    figure_data.cache_clear()
    assert misspelt(results) == [
        "claim own_1: method srpo_succes_buffer: unknown; did you mean srpo_success_buffer?",
        "figure teacher_entropy: metric los/sdpo: unknown; did you mean loss/sdpo?",
        "claim own_0: metric response_lenght/mean: unknown; did you mean response_length/mean?",
    ]
    assert {*misspelt(results)} <= {*remarks(results)}
