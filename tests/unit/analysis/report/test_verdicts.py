"""Verdicts of our questions follow the logs; those of the paper's claims are in test_claims.py."""

from __future__ import annotations

from report_cases import report, verdicts
from synthetic import CURVES, tiny_of, write_results

from srpo.analysis.report.page import _beside
from srpo.analysis.results.claims import load_claims
from srpo.analysis.results.estimates import Proportion
from srpo.analysis.results.verdicts import Outcome


def test_our_questions_are_answered_where_the_controls_were_run(tmp_path):
    """A control that is SRPO under another name and one that is GRPO: the intervals say so."""
    names = ["srpo", "srpo_without_weighting"]
    experiment = tiny_of(methods=names, seeds=[1, 2, 3])
    controls = {"srpo_equal_loss_scale": "srpo", "grpo_at_srpo_settings": "srpo"}
    methods = experiment.methods | {
        name: experiment.methods[like].model_copy(update={"name": name, "title": name})
        for name, like in controls.items()
    }
    block = experiment.matrix[0].model_copy(update={"methods": list(methods)})
    experiment = experiment.model_copy(update={"methods": methods, "matrix": [block]})
    CURVES.update({"srpo_equal_loss_scale": CURVES["srpo"], "grpo_at_srpo_settings": (0.5, 20.0, 0.0)})
    write_results(tmp_path, experiment)
    seen = verdicts(tmp_path, experiment)
    assert seen["srpo_over_grpo_at_its_settings"] == "holds"
    assert {seen["weighting_at_equal_loss_scale"], seen["scale_explains_no_gain"]} <= {
        "holds",
        "suggestive",
        "undecided",
    }
    page = report(tmp_path, experiment)
    assert "SRPO minus grpo_at_srpo_settings" in page
    assert "Numbers are means over 3 seeds; intervals cover other training runs and other test questions." in page
    assert "no interval covers another base model" in page


def test_no_clear_collapse_has_an_interval_that_says_why_it_decides_nothing():
    """None of 40 runs of 8 base models: the runs of one may be alike, so eight runs say as much."""
    claim = next(claim for claim in load_claims() if claim.id == "srpo_is_stable")
    none = Proportion.of([[False] * 5] * 8)
    (said,) = _beside(Outcome("m", "suggestive", none, clear=none, reason="R"), claim, comparable=False)[:-1]
    assert said == "0 of 40 collapsed clearly, percent [0.0, 36.9]"
