"""The gap before training: the pairs that the pages are about, and their slopes by hand."""

from __future__ import annotations

import gaps
import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student_t

from srpo.analysis.gap import MISS, forecast


def test_the_doses_have_the_same_base_models_and_benchmarks() -> None:
    rows = gaps.dosed(gaps.read())
    pairs = {
        dose: {(m.rsplit("-", 1)[1], b) for m, b in zip(of["model"], of["benchmark"], strict=True)}
        for dose, of in rows.groupby("dose")
    }
    assert list(pairs) == [0, 10, 30, 60]
    expected = {(seed, benchmark) for seed in ("9", "10", "11") for benchmark in ("physics", "tooluse")}
    assert all(of == expected for of in pairs.values())
    assert len(rows) == 24


def test_slopes_are_of_all_pairs_and_within_groups() -> None:
    """The gain is 2 x gap in both groups, and 10 more in one, whose gaps are larger by 10: 3 x gap over the means."""
    rows = pd.DataFrame(
        {"benchmark": list("aaabbb"), "gap": [-1, 0, 1, 9, 10, 11], "gain_sdpo": [-2, 0, 2, 28, 30, 32]}
    ).assign(gap_masked=[0, 1, 0, 0, 1, 0], student=[1, 0, 0, 1, 0, 0], expected_gain=range(6))
    found = gaps.slopes(rows, ["benchmark"]).set_index(["of", "pairs"])["slope"]
    assert found["gap", "within groups"] == found["gap", "a"] == found["gap", "b"] == pytest.approx(2)
    assert 2 < found["gap", "all pairs"] < 3


def test_an_interval_is_of_the_other_base_models() -> None:
    """Base model 1 has the mean 2 and the variance .5, base model 2 the mean 5.5 and the variance 24.5."""
    rows = pd.DataFrame({"model": ["m-1"] * 5 + ["m-2"] * 2, "gap": range(7), "gain_sdpo": [1, 2, 3, 2, 2, 2, 9]})
    inside, of, width = gaps.left_out(rows, "sdpo", by_gap=False)
    assert (inside, of) == (6, 7)  # 9 is too far from 2
    halves = student_t.ppf(0.975, 4) * np.sqrt(0.5 * 6 / 5), student_t.ppf(0.975, 1) * np.sqrt(24.5 * 3 / 2)
    assert width == pytest.approx((2 * halves[0] + 5 * halves[1]) / 7)


def test_a_line_through_all_pairs_leaves_no_width() -> None:
    rows = pd.DataFrame({"model": [f"m-{base}" for base in "abcdef"], "gap": [-3.0, 0, 1, 4, 5, 9]})
    noise = [0, 1e-9, 0, 0, -1e-9, 0]
    width = gaps.left_out(rows.assign(gain_sdpo=2 * rows["gap"] + 1 + noise), "sdpo")[2]
    assert width == pytest.approx(0, abs=1e-6)
    assert gaps.left_out(rows.assign(gain_sdpo=2 * rows["gap"] + 1), "sdpo", by_gap=False)[2] > 10


def test_the_forecast_is_as_wide_as_gains_are_far_from_the_law() -> None:
    """Also without the pairs of the base model that is forecast."""
    rows = gaps.toys(gaps.read()).dropna(subset=["expected_gain", "gain_sdpo"])
    miss, base = rows["gain_sdpo"] - rows["expected_gain"], rows["model"].str.rsplit("-", n=1).str[-1]
    half = {name: 1.96 * np.sqrt((miss[base != name] ** 2).mean()) for name in base.unique()}
    assert len(rows) == 64
    assert student_t.ppf(0.975, 64) * np.sqrt((miss**2).mean()) == pytest.approx(MISS, abs=0.5)
    assert (miss.abs() <= base.map(half)).mean() >= 0.9
    for row in rows.itertuples():
        low, high = forecast(row.expected_gain, row.student)
        assert max(low, row.expected_gain - MISS) == low >= -row.student
        assert min(high, row.expected_gain + MISS) == high <= 100 - row.student
