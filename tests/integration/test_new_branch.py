"""A branch that no file of the package knows is configured, trained, logged and reported like the others."""

import re
import textwrap

import helpers
import pytest
import torch
from paths import ROOT
from test_loop import assert_gradient_is, step_and_reference
from tiny import hash_reward, prepare, tiny_experiment

from srpo.algorithm import branches, divergence
from srpo.algorithm.branches import BRANCHES
from srpo.algorithm.method import Method
from srpo.ground.files import read_events
from srpo.policy.in_process import InProcessPolicy
from srpo.training.loop import Run


@pytest.fixture
def registered():
    """The registry with the branch of ``kl_of_the_student.py``; afterwards as it was."""
    before = dict(BRANCHES)
    import kl_of_the_student

    BRANCHES[kl_of_the_student.KL_OF_THE_STUDENT.name] = kl_of_the_student.KL_OF_THE_STUDENT
    yield kl_of_the_student.KL_OF_THE_STUDENT
    BRANCHES.clear()
    BRANCHES.update(before)


@pytest.mark.parametrize("of_correct", ["grpo", "sdpo"], ids=["instead of SDPO", "beside SDPO"])
def test_a_branch_from_outside_is_trained(registered, of_correct, tmp_path, monkeypatch):
    """Beside SDPO a micro-batch has two divergences."""
    monkeypatch.setitem(helpers.ROUTES, "srpo", (of_correct, "grpo", "kl_of_the_student", "grpo"))
    monkeypatch.setitem(helpers.ALPHA, "kl_of_the_student", 1.0)
    routing = {"correct_with_sibling": of_correct, "wrong_with_sibling": "kl_of_the_student"}
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    experiment = tiny_experiment("srpo")
    spec, layout = prepare(experiment, tmp_path)
    raw = spec.method.model_dump(mode="json")
    method = Method.model_validate({**raw, "routing": {**raw["routing"], **routing}})
    spec = spec.model_copy(update={"method": method})
    run = Run(spec, layout, InProcessPolicy(spec, layout.model(spec.id.model)))
    run.resume()
    seen, gradients, reference = step_and_reference(run, monkeypatch)
    names = {"grpo", *routing.values()}
    (gradient,) = gradients
    assert_gradient_is(gradient, reference, seen["rollouts"])
    (event,) = read_events(layout.run(spec.id) / "steps.jsonl")
    metrics = event["metrics"]
    assert metrics["routing/kl_of_the_student_fraction"] > 0
    assert {f"loss/{name}" for name in names} <= metrics.keys()
    taken = {name for name in names if metrics[f"routing/{name}_fraction"] > 0}
    assert len(taken) > 1
    assert metrics["loss/total"] == pytest.approx(sum(metrics[f"loss/{name}"] for name in names))
    total = torch.tensor([metrics.get(f"routing/{name}_fraction", 0.0) for name in BRANCHES]).sum()
    assert total.item() == pytest.approx(1)


def test_the_example_of_the_documentation_is_a_branch(registered, monkeypatch):
    section = (ROOT / "docs" / "extending.md").read_text().split("\n## A branch\n")[1].split("\n## ")[0]
    function, definition = (textwrap.dedent(block) for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    code: dict = {}
    exec(function, vars(divergence) | {"__name__": divergence.__name__}, code)
    monkeypatch.setattr(divergence, "reverse_kl", code["reverse_kl"], raising=False)
    exec(definition, vars(branches), code)
    assert BRANCHES["reverse_kl"] is code["REVERSE_KL"]
    raw = tiny_experiment("srpo").methods["srpo"].model_dump(mode="json")
    method = Method.model_validate({**raw, "routing": {**raw["routing"], "wrong_with_sibling": "reverse_kl"}})
    student, teacher = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    found = code["REVERSE_KL"].divergence_function(method, student, teacher)
    expected = torch.nn.functional.kl_div(teacher, student, reduction="none", log_target=True).sum(-1)
    torch.testing.assert_close(found, expected)
