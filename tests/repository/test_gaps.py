"""The gap before training: the pairs that the pages are about, their slopes by hand, and what is drawn."""

from __future__ import annotations

import gaps
import pandas as pd
import pytest


def test_the_doses_have_the_same_base_models_and_benchmarks() -> None:
    rows = gaps.dosed(gaps.read())
    pairs = {
        dose: {(m.rsplit("-", 1)[1], b) for m, b in zip(of["model"], of["benchmark"], strict=True)}
        for dose, of in rows.groupby("dose")
    }
    assert list(pairs) == [0, 10, 30, 60]
    assert all(of == {(seed, benchmark) for seed in gaps.SEEDS for benchmark in gaps.DOSED} for of in pairs.values())
    assert len(rows) == 24


def test_slopes_are_of_all_pairs_and_within_groups() -> None:
    """The gain is 2 x gap in both groups, and 10 more in one, whose gaps are larger by 10: 3 x gap over the means."""
    rows = pd.DataFrame(
        {"benchmark": list("aaabbb"), "gap": [-1, 0, 1, 9, 10, 11], "gain_sdpo": [-2, 0, 2, 28, 30, 32]}
    ).assign(gap_masked=[0, 1, 0, 0, 1, 0], student=[1, 0, 0, 1, 0, 0])
    found = gaps.slopes(rows, ["benchmark"]).set_index(["of", "pairs"])["slope"]
    assert found["gap", "within groups"] == found["gap", "a"] == found["gap", "b"] == pytest.approx(2)
    assert 2 < found["gap", "all pairs"] < 3


def test_every_pair_is_a_point_of_the_picture() -> None:
    rows = gaps.dosed(gaps.read())
    (axes,) = gaps.draw(rows).axes
    points = [line for line in axes.lines if len(line.get_xdata()) == len(rows)]
    assert [list(line.get_xdata()) for line in points] == [list(rows["gap"])] * len(gaps.METHODS)
    assert [list(line.get_ydata()) for line in points] == [list(rows[f"gain_{method}"]) for method in gaps.METHODS]
