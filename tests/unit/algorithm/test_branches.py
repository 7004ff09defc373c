"""The registry of branches: a branch is one definition, and its function is imported when it is first used."""

import re
import subprocess
import sys

import pytest
import torch
from helpers import load_method

from srpo.algorithm.branches import BRANCHES, MIX, Branch, register
from srpo.algorithm.method import Method

READ: set[str] = set()


class Noting(Method):
    """A method that notes which of its keys are read."""

    def __getattribute__(self, key):
        if key in Method.model_fields:
            READ.add(key)
        return super().__getattribute__(key)


@pytest.mark.parametrize("name", BRANCHES)
def test_a_branch_names_the_settings_that_its_function_reads(name):
    branch, method = BRANCHES[name], Noting.model_validate(load_method("srpo").model_dump())
    READ.clear()
    student, teacher = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    if branch.advantage is not None:
        branch.advantage_function(method, torch.ones(3), student[:, 0], teacher[:, 0])
    if branch.divergence is not None:
        branch.divergence_function(method, student, teacher)
    assert {*branch.settings} == READ


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("srpo", {"mix_lambda": 0.5}, "mix_lambda = 0.5: no branch of the method is mix"),
        ("srpo", {"kl_coef": 0.2}, "kl_coef = 0.2: no branch of the method is anchored"),
        ("grpo", {"rlsd_clip": 0.1}, "rlsd_clip = 0.1: no branch of the method is rlsd"),
        ("rlsd", {"distillation_alpha": 1}, "distillation_alpha = 1.0: no branch of the method is sdpo"),
    ],
)
def test_a_setting_of_a_branch_that_the_method_does_not_have_is_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        load_method(name, **changes)


def test_a_setting_of_a_branch_of_another_phase_is_none_without_effect():
    second = dict.fromkeys(load_method("grpo").routing.model_dump(), "rlsd")
    method = load_method("srpo", second_routing=second, first_phase_steps=3, distillation_alpha=1, rlsd_lambda=0.2)
    assert [phase.rlsd_lambda for phase in method.phases] == [0.2, 0.2]


def test_settings_of_a_loss_are_set_alike_for_all_methods():
    for name in ("grpo", "sdpo", "srpo", "advantage_mix"):
        load_method(name, distillation_topk=20, distillation_is_clip=3, clip_ratio_high=0.3, rollout_is_threshold=5)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="branch mix: already registered"):
        register(Branch("mix", "another", loss="policy_gradient"))
    assert register(MIX) is MIX
    assert [*BRANCHES] == ["dropped", "grpo", "sdpo", "mix", "anchored", "rlsd"]


def test_distillation_needs_a_sibling():
    with pytest.raises(ValueError, match="branch new: distillation needs sibling = required"):
        Branch("new", "new", loss="distillation", divergence=max)


def test_configuration_reads_branches_and_methods_without_torch():
    command = "import sys, srpo.algorithm.method; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", command], check=True)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("loss='policy'", "branch new: loss = 'policy': give one of policy_gradient, distillation"),
        ("loss=None, sibling='always'", "branch new: sibling = 'always': give one of never, if_correct, required, not"),
        ("loss=None, settings=('colour',)", "branch new: settings = colour: unknown"),
        ("loss=None, excludes=('no_branch',)", "branch new: excludes = no_branch: unknown"),
    ],
)
def test_a_branch_of_ones_own_is_checked_before_a_run(tmp_path, monkeypatch, given, says) -> None:
    name = f"own_{abs(hash(given))}"
    imports = "import sys\nfrom srpo.algorithm.branches import Branch, register\n"
    (tmp_path / f"{name}.py").write_text(f"{imports}register(Branch('new', 'N', {given}))\n")
    monkeypatch.syspath_prepend(tmp_path)
    known = {**BRANCHES}
    monkeypatch.setattr("srpo.algorithm.branches.BRANCHES", known)
    monkeypatch.setattr("srpo.algorithm.method.BRANCHES", known)
    with pytest.raises(ValueError, match=re.escape(says)):
        load_method("grpo", module=name)
