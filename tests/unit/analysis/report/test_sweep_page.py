"""What the page shows of a sweep."""

from __future__ import annotations

from sweep_cases import OF_METHODS
from synthetic import write_results

from srpo.analysis.figures.registry import FIGURES
from srpo.analysis.report.page import render
from srpo.analysis.results.load import load_results
from srpo.analysis.results.verdicts import findings


def test_nothing_yet(tmp_path):
    write_results(tmp_path, OF_METHODS, keep=lambda run: False, evaluate=False)
    results = load_results(tmp_path)
    assert FIGURES["sweep_response"].data(results).empty
    assert FIGURES["sweep_curves"].data(results).empty
    assert 'id="sweep"' in render(results, tmp_path)


def test_the_page_names_what_was_swept(swept):
    results, _ = swept
    page = render(results, results.root / "figures")
    words = {
        "methods": ["β (<code>entropy_beta</code>) of\nSRPO is", "\n2, 0 or 0.5.", "Each value is a separate method"],
        "models": [
            "teacher brevity (<code>warm_start.brevity</code>) of\nMiniature-S is",
            "\n0 or 0.3.",
            "Each value has its own base model",
        ],
    }
    for word in words[results.experiment.sweep.kind]:
        assert word in page


def test_claims_are_about_methods_by_name_and_each_model(swept):
    results, _ = swept
    found = {finding.claim.id: finding for finding in findings(results)}["srpo_is_stable"]
    if results.experiment.sweep.kind == "methods":
        assert (found.verdict, found.outcomes[0].reason) == ("not tested", "not run with srpo")
    else:
        assert [outcome.model for outcome in found.outcomes] == list(results.experiment.models)
        assert all(outcome.estimate is not None for outcome in found.outcomes)
