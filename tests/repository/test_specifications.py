"""The specification curve against the report's claims, a search's trials by hand, and the paper's table."""

from __future__ import annotations

import pandas as pd
import pytest
import specifications
import yaml
from paths import ROOT

import published

TUNED = yaml.safe_load((ROOT / "configs" / "tuned" / "miniature.yaml").read_text())


@pytest.fixture(scope="module")
def curve() -> pd.Series:
    frame = specifications.curve({"registered": published.results_of("registered")}, TUNED)
    assert not frame.duplicated(["source", "specification"]).any()
    return frame.set_index(["source", "specification"])


def test_the_deciding_rows_are_the_registered_claims(curve: pd.DataFrame) -> None:
    claims = published.rows_of("registered")
    for budget, claim in enumerate(("srpo_over_grpo_first", "srpo_over_grpo_middle", "srpo_over_grpo_last"), 1):
        estimate = claims[claim]["finding"].outcomes[0].estimate
        row = curve.loc["registered", f"budget {budget}, cross-fitted"]
        assert (row.value, row.low, row.high) == pytest.approx((estimate.value, estimate.low, estimate.high))


def test_trials_are_subtracted_at_equal_settings(curve: pd.DataFrame) -> None:
    scores = {
        t["method"]: t["score"]
        for t in TUNED["trials"]
        if t["values"] == {"learning_rate": 0.0003, "mini_batch_questions": 2}
    }
    row = curve.loc["tuning", "learning rate 0.0003, 4 updates per batch"]
    assert row.value == pytest.approx(scores["srpo"] - scores["grpo"])


def test_the_papers_rows_are_table_1s(curve: pd.DataFrame) -> None:
    assert curve.loc["paper", "Qwen3-8B, 10 h"].value == pytest.approx(77.4 - 74.0)
