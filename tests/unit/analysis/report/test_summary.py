"""What the report says about the runs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape

import null_experiment
import pytest
from null_experiment import Null
from report_cases import EXPERIMENT, make
from synthetic import paper_experiment, tiny_experiment, write_results

from srpo.analysis.figures.curves import average_curves
from srpo.analysis.figures.registry import FIGURES, _title
from srpo.analysis.report.page import render
from srpo.analysis.report.summary import (
    LONGEST,
    _listed,
    _target,
    answers,
    background,
    power_sentence,
    remarks,
    what_was_run,
)
from srpo.analysis.results.load import load_results
from srpo.analysis.results.verdicts import UNTESTED, findings
from srpo.experiment.compose import load_experiment


def test_remarks_name_runs_of_other_settings_and_early_ends(tmp_path):
    write_results(tmp_path, EXPERIMENT)
    folder = tmp_path / "runs/miniature-small/physics/srpo/seed1"
    record = (folder / "run.yaml").read_text()
    (folder / "run.yaml").write_text(record.replace("weight_decay: 0.01", "weight_decay: 0.5"))
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"stopped_by": "max_steps", "clock": 12.0}))
    results = load_results(tmp_path)
    found = " ".join(remarks(results))
    assert "differ from the experiment's: miniature-small/physics/srpo/seed1." in found
    assert "before the last budget" in found
    assert "disagrees" not in found
    curves = average_curves(results, EXPERIMENT.methods)
    ends = curves.groupby("method")["clock"].max()
    assert 11.5 < ends["srpo"] <= 12
    assert ends["grpo"] == ends["sdpo"] == 20


def test_each_number_of_seeds_is_said_of_its_methods(tmp_path):
    (block,) = tiny_experiment()["matrix"]
    matrix = [block | {"methods": ["grpo", "srpo"], "seeds": [1, 2, 3]}, block | {"methods": ["advantage_mix"]}]
    write_results(tmp_path, load_experiment(tiny_experiment(matrix=matrix)))
    said = power_sentence(load_results(tmp_path))
    assert said.startswith("GRPO and SRPO: 3 seeds would resolve ±")
    assert " Advantage mix: one seed resolves nothing, 2 seeds ±" in said


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
    (block,) = tiny_experiment()["matrix"]
    page = make(tmp_path, load_experiment(tiny_experiment(matrix=[block | {"methods": ["grpo", "srpo", "rlsd"]}])))
    tables = re.findall(r'aria-label="(Claim|Question)s">(.*?)</table>', page, flags=re.S)
    shown = {kind: " ".join(rows for name, rows in tables if name == kind) for kind in ("Claim", "Question")}
    results = load_results(tmp_path)
    found = findings(results)
    for finding in found:
        claim = finding.claim
        assert (f'id="claim-{claim.id}"' in shown["Claim"]) is not claim.ours
        asked = claim.ours and finding.verdict != "not tested"
        assert (f'id="claim-{claim.id}"' in shown["Question"]) is asked
    tested = [f for f in found if f.verdict != "not tested" and not (f.claim.ours or f.claim.check)]
    others = sum(not finding.claim.primary for finding in tested)
    assert f"of {others} other claims " in answers(results, found)[1]


def test_the_answer_names_what_holds_what_does_not_and_the_target(tmp_path):
    made = null_experiment.write(tmp_path, Null(run_sd=1.0, gain=(("srpo", 12.0), ("sdpo", 12.0))))
    results = load_results(tmp_path)
    found = findings(results)
    holds, rest, target = answers(results, found)
    primary = {f.claim.id: f for f in found if f.claim.primary}
    assert primary["srpo_over_grpo_last"].verdict == "holds"
    assert primary["grpo_overtakes_sdpo"].verdict == "does not hold"
    assert primary["srpo_over_grpo_last"].claim.statement in holds or " more." in holds
    assert f"1 does not hold ({primary['grpo_overtakes_sdpo'].claim.statement})" in rest
    assert target.startswith("This is about one base model (Qwen3-8B) and the average of 5 benchmarks; ")
    assert all(len(sentence) <= LONGEST + 20 for sentence in (holds, rest, target))
    assert what_was_run(results) == (
        f"Qwen3-8B on {len(made.benchmarks)} benchmarks of invented questions · GRPO, SDPO and SRPO · 3 seeds · "
        "10 h of wall clock"
    )


def test_one_seed_and_what_is_not_testable_are_named(tmp_path):
    null_experiment.write(tmp_path, Null(seeds=(1,)))
    results = load_results(tmp_path)
    found = findings(results)
    primary = [finding for finding in found if finding.claim.primary and finding.verdict != "not tested"]
    assert {finding.verdict for finding in primary} == {"one seed"}
    holds, rest, target = answers(results, found)
    assert holds == f"Of {len(primary)} primary claims, 0 hold here."
    assert rest.startswith(f"{len(primary)} have one seed; of ")
    assert target.endswith("; intervals cover other test questions, not other runs or other base models.")
    log = results.validations
    few = replace(results, validations=log[(log["clock"] < 2500) | (log["clock"] > 5 * 3600)])  # two within 5 h
    assert answers(few, findings(few))[1].startswith("3 have one seed; 4 are not testable here; of ")


@pytest.mark.parametrize(
    ("draws", "seeds", "about", "covered"),
    [
        ("per_seed", [1, 2, 5], "3 base models (", "other base models, training runs and test questions."),
        ("per_seed", [1], "one base model (", "other test questions, not other runs or other base models."),
        ("shared", [1, 2, 5], "one base model (", "other training runs and test questions, not other base models."),
    ],
)
def test_intervals_cover_other_base_models_only_if_each_seed_has_one(tmp_path, draws, seeds, about, covered):
    experiment = load_experiment(tiny_experiment())
    (name, model), *_ = experiment.models.items()
    (block, *_) = experiment.matrix
    changed = {
        "models": {name: model.model_copy(update={"draws": draws})},
        "matrix": [block.model_copy(update={"models": [name], "seeds": seeds})],
    }
    said = _target(load_results(tmp_path, experiment.model_copy(update=changed)))
    assert said.startswith(f"This is about {about}")
    assert said.endswith(f"; intervals cover {covered}")


def test_the_checks_are_one_line_beside_the_verdicts_and_not_counted_with_one_seed(tmp_path):
    null_experiment.write(tmp_path / "several", Null())
    results = load_results(tmp_path / "several")
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
        assert f"<td>check: {finding.verdict}</td>" in row
        assert 'class="verdict' not in row
    null_experiment.write(tmp_path / "one", Null(seeds=(1,)))
    one = load_results(tmp_path / "one")
    assert "any learning method fulfils" not in " ".join(background(one, findings(one)))


def test_many_statements_are_cut_to_two_lines():
    statements = [f"statement number {i} of some length" for i in range(20)]
    short = _listed(statements, 100)
    assert short == "; ".join(statements[:2]) + "; and 18 more"
    assert _listed(statements[:1], 5) == statements[0]


def test_a_toy_is_called_a_toy_in_the_first_line_and_in_figures(tmp_path):
    page = make(tmp_path)
    assert "A toy model of 0.10 M parameters on 2 benchmarks of invented questions" in page
    assert _title(FIGURES["routing"], load_results(tmp_path)).endswith(" · toy")
    assert "toy" not in what_was_run(load_results(tmp_path, paper_experiment()))
