"""Families of claims, equivalence, power and aggregates, against values worked out by hand or by scipy."""

import math

import numpy as np
import pytest

from srpo.analysis.claims import Rule
from srpo.analysis.statistics.deciding import holm
from srpo.analysis.statistics.estimates import Estimate


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.01, math.nan, 0.02])[[0, 2]] == pytest.approx([0.02, 0.02])
    assert math.isnan(holm([0.5, math.nan])[1])
    assert len(holm([])) == 0


def test_holm_keeps_the_error_of_a_family_of_nulls():
    rng = np.random.default_rng(0)
    families = rng.uniform(size=(2000, 11))
    assert np.mean([np.nanmin(holm(family)) < 0.025 for family in families]) == pytest.approx(0.025, abs=0.012)
    assert np.mean(families.min(axis=1) < 0.025) > 0.2


def test_equivalence_needs_the_interval_of_twice_the_level_within_the_margin():
    estimate = Estimate(0.5, "question", 40, error=0.7, dof=20)
    low, high = estimate.interval(0.95)
    assert Rule(within=high).p_holds(estimate) == pytest.approx(0.025)
    assert Rule(within=high + 0.01).p_holds(estimate) < 0.025
    assert Rule(within=high - 0.01).p_holds(estimate) > 0.025
    assert low < 0
    assert Rule(within=2).p_holds(Estimate(0.0, "question", 40, error=5.0, dof=20)) > 0.025  # no evidence of absence
