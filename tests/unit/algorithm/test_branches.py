"""The registry of branches: a branch is one definition, and its function is imported when it is first used."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from srpo.algorithm.advantage import anchored_advantages, mixed_advantages
from srpo.algorithm.branches import ANCHORED, BRANCHES, MIX, SDPO, Branch, register
from srpo.algorithm.divergence import jensen_shannon


def test_functions_are_found_by_name_or_are_given():
    assert MIX.advantage_function is mixed_advantages
    assert ANCHORED.advantage_function is anchored_advantages
    assert SDPO.divergence_function is jensen_shannon
    assert Branch("new", "new", loss="policy_gradient", advantage=max).advantage_function is max


@pytest.mark.parametrize("name", BRANCHES)
def test_every_branch_names_functions_that_exist(name):
    branch = BRANCHES[name]
    if branch.advantage is not None:
        assert isinstance(branch.advantage_function, Callable)
    assert (branch.divergence is not None) == (branch.loss == "distillation")
    if branch.divergence is not None:
        assert isinstance(branch.divergence_function, Callable)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="branch mix: already registered"):
        register(Branch("mix", "another", loss="policy_gradient"))
    assert register(MIX) is MIX
    assert [*BRANCHES] == ["dropped", "grpo", "sdpo", "mix", "anchored", "rlsd", "rlrt", "damped"]


@pytest.mark.parametrize("given", [{"sibling": "required"}, {"divergence": max}])
def test_distillation_needs_a_divergence_and_a_sibling(given):
    with pytest.raises(ValueError, match="branch new: distillation needs a divergence and sibling = required"):
        Branch("new", "new", loss="distillation", **given)


def test_configuration_reads_branches_and_methods_without_torch():
    command = "import sys, srpo.algorithm.method; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", command], check=True)
