"""The default experiment has the two benchmarks on which the registered result's methods differ most."""

from __future__ import annotations

import pandas as pd
import pytest
from paths import ROOT

from srpo.analysis.published import read_published
from srpo.experiment.compose import experiment_file, load_experiment


def f_ratio(scores: pd.DataFrame) -> float:
    """Between methods over within base models: scores of base models (rows) and methods (columns)."""
    base_models, methods = scores.shape
    grand = scores.to_numpy().mean()
    between = base_models * ((scores.mean() - grand) ** 2).sum() / (methods - 1)
    residual = scores.sub(scores.mean(axis=1), axis=0) - scores.mean() + grand
    return float(between / ((residual**2).to_numpy().sum() / ((base_models - 1) * (methods - 1))))


def test_f_ratio_by_hand() -> None:
    # method means 2 and 4 around 3: 2 * (1 + 1) / 1 = 4; residuals +-0.5: 4 * 0.25 / 1 = 1
    assert f_ratio(pd.DataFrame({"a": [1.5, 2.5], "b": [4.5, 3.5]})) == pytest.approx(4.0)


def test_the_default_has_the_benchmarks_on_which_methods_differ_most() -> None:
    lines = read_published(ROOT / "published" / "registered", "evaluations")
    frame = pd.DataFrame(
        [{**line, "score": 100 * line["content"]["budgets"]["10h"]["avg_at_k"]} for line in lines]
    ).pivot(index=["benchmark", "seed"], columns="method", values="score")
    ratios = frame.groupby("benchmark").apply(f_ratio).sort_values(ascending=False)
    default = load_experiment(experiment_file("embedded"))
    assert [*default.benchmarks] == [*ratios.index[:2]]
    assert ratios.iloc[:3].tolist() == pytest.approx([27.0, 13.9, 12.9], abs=0.1)  # the next is close
