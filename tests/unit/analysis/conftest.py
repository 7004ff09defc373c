"""Results that several tests read and none changes."""

from __future__ import annotations

import math

import pytest
from report_cases import EXPERIMENT
from sweep_cases import OF_METHODS, OF_MODELS
from synthetic import write_results

from srpo.analysis.results.load import load_results
from srpo.analysis.tables.registry import write_tables


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("finished")
    write_results(root, EXPERIMENT)
    write_tables(load_results(root), root / "tables")
    return root


@pytest.fixture(scope="session", params=["methods", "models"])
def swept(request, tmp_path_factory):
    """A sweep of either kind: its results, and (line, setting) to the (model, method) of its runs."""
    made = {"methods": OF_METHODS, "models": OF_MODELS}[request.param]
    root = tmp_path_factory.mktemp(request.param)
    write_results(root, made)
    if request.param == "methods":
        runs = {("srpo", value): ("miniature-small", f"srpo-entropy_beta-{value:g}") for value in (2, 0, 0.5)}
        runs["grpo", math.nan] = ("miniature-small", "grpo")
    else:
        runs = {(m, value): (f"miniature-small-brevity-{value:g}", m) for m in ("sdpo", "srpo") for value in (0, 0.3)}
    return load_results(root), runs
