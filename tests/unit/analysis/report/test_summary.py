"""What the report says about the runs."""

from __future__ import annotations

import json
from html import unescape

import pytest
from report_cases import EXPERIMENT, make
from synthetic import tiny_experiment, write_results

from srpo.analysis.figures.curves import average_curves
from srpo.analysis.report.claims import load_claims
from srpo.analysis.report.summary import power_sentence, remarks
from srpo.analysis.results.load import load_results
from srpo.compose import load_experiment


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
    assert said.startswith("GRPO and SRPO: 3 seeds resolve about ±")
    assert " Advantage mix: one seed resolves nothing, 2 would resolve ±" in said


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
    """They stand in a table of their own, and the summary's count is the paper's alone."""
    page = make(tmp_path)
    ours = [claim for claim in load_claims() if claim.ours]
    rest = len(load_claims()) - len(ours)
    assert f"Of the paper's {rest} claims listed below" in unescape(page)
    before, after = page.split("<h3>Our questions</h3>")
    for claim in load_claims():
        assert f'id="claim-{claim.id}"' in (after if claim.ours else before)
