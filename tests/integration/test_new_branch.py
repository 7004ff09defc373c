"""A branch that no file of the package knows is configured, trained, logged and reported like the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from test_loop import record, reference_gradient
from tiny import hash_reward, prepare, tiny_experiment

from srpo.algorithm.branches import BRANCHES
from srpo.config import Method
from srpo.files import read_events
from srpo.policy.in_process import InProcessPolicy
from srpo.training.loop import _Run


@pytest.fixture
def registered():
    """The registry with the branch of ``kl_of_the_student.py``; afterwards as it was."""
    before = dict(BRANCHES)
    import kl_of_the_student

    BRANCHES[kl_of_the_student.KL_OF_THE_STUDENT.name] = kl_of_the_student.KL_OF_THE_STUDENT
    yield kl_of_the_student.KL_OF_THE_STUDENT
    BRANCHES.clear()
    BRANCHES.update(before)


@pytest.mark.parametrize(
    "routing",
    [
        {"wrong_with_sibling": "kl_of_the_student"},
        {"correct_with_sibling": "sdpo", "wrong_with_sibling": "kl_of_the_student"},  # two divergences in a micro-batch
    ],
    ids=["instead of SDPO", "beside SDPO"],
)
def test_a_branch_from_outside_is_trained(registered, routing, tmp_path, monkeypatch):
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    experiment = tiny_experiment("srpo", branch_gradients_every=1)
    spec, layout = prepare(experiment, tmp_path)
    raw = spec.method.model_dump(mode="json")
    method = Method.model_validate({**raw, "routing": {**raw["routing"], **routing}})
    spec = spec.model_copy(update={"method": method})
    run = _Run(spec, layout, InProcessPolicy(spec, layout.model(spec.id.model)))
    run.resume()
    seen = record(run, monkeypatch)
    run.take_step()
    branches = {"grpo", *routing.values()}
    gradient = seen["gradients"][-1]  # the update; before it, each branch alone was measured
    for name, expected in reference_gradient(run, seen).items():
        np.testing.assert_allclose(gradient[name], expected, rtol=2e-3, atol=2e-6, err_msg=name)
    (event,) = read_events(layout.run(spec.id) / "steps.jsonl")
    metrics = event["metrics"]
    assert metrics["routing/kl_of_the_student_fraction"] > 0
    assert {f"loss/{name}" for name in branches} <= metrics.keys()
    taken = {name for name in branches if metrics[f"routing/{name}_fraction"] > 0}
    assert len(taken) > 1
    assert {f"grad_norm/{name}" for name in taken} <= metrics.keys()
    assert metrics["loss/total"] == pytest.approx(sum(metrics[f"loss/{name}"] for name in branches))
    total = torch.tensor([metrics[f"routing/{name}_fraction"] for name in BRANCHES]).sum()
    assert total.item() == pytest.approx(1)


def test_a_branch_that_is_not_registered_is_refused():
    raw = tiny_experiment("srpo").methods["srpo"].model_dump(mode="json")
    raw["routing"]["wrong_with_sibling"] = "kl_of_the_student"
    with pytest.raises(ValueError, match="kl_of_the_student: no branch; use dropped, grpo, sdpo, mix, anchored"):
        Method.model_validate(raw)


def test_a_distilling_branch_needs_a_sibling(registered):
    raw = tiny_experiment("srpo").methods["srpo"].model_dump(mode="json")
    raw["routing"]["wrong_without_sibling"] = "kl_of_the_student"
    with pytest.raises(ValueError, match="wrong_without_sibling = kl_of_the_student: no sibling"):
        Method.model_validate(raw)
