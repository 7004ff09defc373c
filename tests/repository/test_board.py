"""The board: its rows, and its differences against the published numbers by other code."""

import csv
import math
import re

import numpy as np
import pandas as pd
import pytest
from board import SERIES, averages, comparisons, papers, reproductions, run_spread
from paths import ROOT
from scipy.stats import t as student_t

from srpo.analysis.paper import paper_splits
from srpo.analysis.statistics.contrasts import Arm, contrast
from srpo.analysis.statistics.estimates import Estimate
from srpo.ground.repository import REFERENCE

ROWS = reproductions()
PAGE = " ".join((ROOT / "docs" / "gpus.md").read_text().split())
FIVE = {*paper_splits()["benchmark"]}


def test_only_the_papers_methods_and_models_and_benchmarks_with_both_count() -> None:
    rows = [
        dict.fromkeys(ROWS.columns, "")
        | {"source": "a", "model": "Qwen3-8B", "method": method, "benchmark": benchmark, "score": score}
        | {"paper_method": "yes", "when": "best", "seeds": 1, "read": "source"}
        for method, score in (("srpo", 90.0), ("grpo", 60.0))
        for benchmark in FIVE
    ]
    frame = pd.DataFrame(rows)
    for column, value in (("paper_method", "no"), ("model", "Llama-3.2-1B")):
        assert papers(frame.assign(**{column: value})).empty
    both = papers(frame[(frame["method"] == "grpo") | (frame["benchmark"] == "biology")])
    (found,) = comparisons(both, ("srpo", "grpo"), ("best",))
    assert (found.benchmarks, found.value) == (1, 30.0)
    spread, dof = run_spread(ROWS)
    assert found.chance == pytest.approx(student_t.ppf(0.975, dof) * spread * math.sqrt(2))


def test_the_spread_and_chance_by_hand() -> None:
    """TASD's two seeds and I-SDPO's five runs of SRPO, read with other code."""
    with (REFERENCE / "reproductions.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["source"] in ("TASD", "I-SDPO")]
    runs = {}
    for row in rows:
        runs.setdefault((row["source"], row["method"], row["benchmark"]), []).append(float(row["score"]))
    squares = [(x - sum(of) / len(of)) ** 2 for of in runs.values() for x in of]
    dof = sum(len(of) - 1 for of in runs.values())
    assert dof == 10 + 16
    spread = math.sqrt(sum(squares) / dof)
    assert run_spread(ROWS) == (pytest.approx(spread), dof)
    (found,) = (c for c in comparisons(ROWS, ("grpo", "sdpo"), ("best",)) if c.source == "TASD")
    assert found.runs == 2
    assert found.chance == pytest.approx(student_t.ppf(0.975, dof) * spread * math.sqrt(2 / 2 / 5))


def test_a_difference_by_hand() -> None:
    sdcl, i_sdpo = comparisons(papers(ROWS), ("srpo", "grpo"), ("1h", "short"))
    srpo = (62.28 + 66.35 + 66.50 + 65.15 + 66.01) / 5  # means of the five runs, rounded
    assert i_sdpo.value == pytest.approx(srpo - (32.12 + 70.74 + 62.92 + 60.88) / 4, abs=0.01)
    assert sdcl.value == pytest.approx(11.8, abs=0.05)
    assert f"less than {sdcl.chance:.1f} points" in PAGE


def simulated(count: int = 3000) -> list[Estimate]:
    """Experiments like ``paper-arms``: two methods with three runs each on 210 and on 50 questions, with avg@16."""
    draw, (of_runs, _), found = np.random.default_rng(0), run_spread(ROWS), []
    for _ in range(count):
        strata = []
        for questions in (210, 50):
            solved = draw.beta(0.6, 0.6, questions)
            samples = 1e4 * np.mean(solved * (1 - solved)) / 16 / questions
            runs = draw.normal(0, math.sqrt(of_runs**2 - samples), (2, 3, 1))  # the spread has the samples' noise, too
            scores = 100 * draw.binomial(16, solved, (2, 3, questions)) / 16 + runs
            strata.append([Arm(scores[0]), Arm(-scores[1])])
        found.append(contrast(strata))
    return found


def test_what_six_runs_of_each_method_can_show() -> None:
    def said(pattern: str) -> list[float]:
        return [float(number) for number in re.search(pattern, PAGE).groups()]  # type: ignore[union-attr]

    experiments = simulated()
    width = np.median([each.high - each.low for each in experiments]) / 2
    assert said(r"± ([\d.]+) points") == pytest.approx([width], abs=0.06)
    leads = said(r"leads GRPO by ([\d.]+) points after 5 hours and by ([\d.]+) after 10")
    shares = [100 * np.mean([each.low + lead > 0 for each in experiments]) for lead in leads]
    assert said(r"excludes 0 in (\d+) % .* and in (\d+) % after 10") == pytest.approx(shares, abs=0.6)


def test_the_page_counts_broken_runs() -> None:
    page = " ".join((ROOT / "docs" / "reproductions.md").read_text().split())
    known = papers(ROWS)[lambda rows: (rows["method"] == "srpo") & (rows["when"] == "best") & (rows["run"] != "")]
    known = known.drop_duplicates(["source", "run", "benchmark"])
    assert {*known["source"]} == {"SDCL"}
    assert f"{(known['collapse'] != '').sum()} of {len(known)} ended with broken responses" in page


# The averages that the sources print beside the scores: a score that was copied wrongly shows here.
METHODS = ("base", "grpo", "sdpo", "srpo")
PRINTED = {
    ("VERPO", "Qwen3-8B"): (49.31, 68.57, 68.95, 68.33),
    ("VERPO", "Qwen3-4B"): (51.77, 66.08, 62.13, 68.26),
    ("VERPO", "Llama-3.2-1B"): (6.13, 47.51, 35.07, 43.50),
    ("DRIFT", "Qwen3-8B"): (49.5, 63.0, 72.0),
}


def test_every_score_says_where_it_is_from_and_can_be_one():
    assert ROWS["reference"].map(lambda name: bool(re.fullmatch(r"arXiv:\d{4}\.\d{5}|[\w-]+/[\w.-]+", name))).all()
    assert ROWS["document"].str.len().min() > 0
    assert ROWS["score"].between(0, 100).all()
    assert not ROWS.duplicated([*SERIES, "benchmark"]).any()
    assert ROWS.groupby("source")["reference"].nunique().eq(1).all()


def test_averages_are_those_that_the_sources_print():
    found = averages(ROWS).set_index(["source", "model", "method"])["score"]
    assert found["VERPO"].size + found["DRIFT"].size == sum(map(len, PRINTED.values()))
    for key, printed in PRINTED.items():
        for method, score in zip(METHODS, printed, strict=False):
            assert found[*key, method] == pytest.approx(score, abs=0.051 if key[0] == "DRIFT" else 0.0051), key
