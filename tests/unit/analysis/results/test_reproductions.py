"""The independent numbers: what each column may hold, and averages that others have published too."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from srpo.analysis.results.paper import paper_splits
from srpo.analysis.results.reproductions import SERIES, averages, reproductions

ROWS = reproductions()
FIVE = {*paper_splits()["benchmark"]}

# The averages that the sources print beside the scores: a score that was copied wrongly shows here.
PRINTED = {
    ("VERPO", "Qwen3-8B", "base"): 49.31,
    ("VERPO", "Qwen3-8B", "grpo"): 68.57,
    ("VERPO", "Qwen3-8B", "sdpo"): 68.95,
    ("VERPO", "Qwen3-8B", "srpo"): 68.33,
    ("VERPO", "Qwen3-4B", "base"): 51.77,
    ("VERPO", "Qwen3-4B", "grpo"): 66.08,
    ("VERPO", "Qwen3-4B", "sdpo"): 62.13,
    ("VERPO", "Qwen3-4B", "srpo"): 68.26,
    ("VERPO", "Llama-3.2-1B", "base"): 6.13,
    ("VERPO", "Llama-3.2-1B", "grpo"): 47.51,
    ("VERPO", "Llama-3.2-1B", "sdpo"): 35.07,
    ("VERPO", "Llama-3.2-1B", "srpo"): 43.50,
    ("DRIFT", "Qwen3-8B", "base"): 49.5,
    ("DRIFT", "Qwen3-8B", "sdpo"): 72.0,
    ("DRIFT", "Qwen3-8B", "grpo"): 63.0,
}


def test_every_score_says_where_it_is_from_and_can_be_one():
    assert ROWS["reference"].map(lambda name: bool(re.fullmatch(r"arXiv:\d{4}\.\d{5}|[\w-]+/[\w.-]+", name))).all()
    assert ROWS["document"].str.len().min() > 0
    assert ROWS["score"].between(0, 100).all()
    assert not ROWS.duplicated([*SERIES, "benchmark"]).any()
    assert ROWS.groupby("source")["reference"].nunique().eq(1).all()


def test_columns_hold_what_they_may():
    assert {*ROWS["method"]} == {"base", "grpo", "sdpo", "srpo"}
    assert {*ROWS["when"]} == {"base", "best", "1h", "5h", "short", "last"}
    assert {*ROWS["read"]} == {"source", "second-hand"}
    assert ROWS["added"].map(lambda day: bool(re.fullmatch(r"20\d\d-\d\d-\d\d", day))).all()
    assert {*ROWS["collapse"]} <= {"", "entropy", "format", "length", "unspecified"}
    base = ROWS["method"] == "base"
    assert (base == (ROWS["when"] == "base")).all()
    assert (base == (ROWS["paper_method"] == "")).all()
    assert {*ROWS.loc[~base, "paper_method"]} == {"yes", "no"}
    assert {*ROWS["learning_rate"].dropna()} <= {1e-6, 5e-6, 1e-5}
    assert {*ROWS["updates_per_step"].dropna()} <= {1, 4, 8}
    assert ROWS["seeds"].dropna().eq(1).all()
    assert (ROWS["steps"].dropna() >= 0).all()
    assert (ROWS.loc[base, "steps"] == 0).all()


def test_a_method_that_is_not_the_papers_says_why():
    others = ROWS[ROWS["paper_method"] == "no"]
    assert (others["caveat"].str.len() > 0).all()
    assert {*others["source"]} == {"SDCL", "SDPO port", "RLCSD"}
    called_srpo = ROWS[~ROWS["benchmark"].isin(FIVE) & (ROWS["method"] == "srpo")]
    assert len(called_srpo)
    assert {*called_srpo["paper_method"]} == {"no"}


def test_averages_are_those_that_the_sources_print():
    found = averages(ROWS).set_index(["source", "model", "method"])["score"]
    assert found["VERPO"].size + found["DRIFT"].size == len(PRINTED)
    for key, printed in PRINTED.items():
        assert found[key] == pytest.approx(printed, abs=0.051 if key[0] == "DRIFT" else 0.0051), key


def test_a_series_with_a_missing_benchmark_has_no_average():
    part = ROWS[~((ROWS["source"] == "VERPO") & (ROWS["method"] == "srpo") & (ROWS["benchmark"] == "physics"))]
    left = averages(part)
    assert pd.Series([*averages(ROWS)["source"]]).eq("VERPO").sum() == 12
    assert left["source"].eq("VERPO").sum() == 9
    assert not {"srpo"} & {*left.loc[left["source"] == "VERPO", "method"]}
