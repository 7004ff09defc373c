"""The methods of ``examples/methods``: each registers itself, trains through the loop, and computes what it says."""

from __future__ import annotations

import importlib
import math
import sys

import pytest
import torch
import yaml
from helpers import load_method
from paths import ROOT
from tiny import hash_reward, prepare, tiny_experiment

from srpo.algorithm.branches import BRANCHES
from srpo.algorithm.divergence import generalised_jsd
from srpo.algorithm.method import Method, patched
from srpo.ground.files import read_events
from srpo.policy.in_process import InProcessPolicy
from srpo.training.loop import Run

FOLDER = ROOT / "examples" / "methods"
FILES = sorted(FOLDER.glob("*.yaml"))
MODULES = [path.stem for path in FOLDER.glob("*.py")]


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    """The package's branches, which the examples add to; afterwards as they were."""
    before = dict(BRANCHES)
    monkeypatch.syspath_prepend(FOLDER)
    yield
    BRANCHES.clear()
    BRANCHES.update(before)
    for name in MODULES:
        sys.modules.pop(name, None)


def example(path) -> Method:
    def parent(name):
        return load_method(name).model_dump(mode="json")

    return Method.model_validate(patched(yaml.safe_load(path.read_text()), parent) | {"name": path.stem})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_trains_two_steps(path, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    spec, layout = prepare(tiny_experiment("srpo"), tmp_path)
    method = example(path)
    settings = {"mini_batch_questions": spec.method.mini_batch_questions, "learning_rate": spec.method.learning_rate}
    run = Run(
        spec.model_copy(update={"method": method.model_copy(update=settings)}),
        layout,
        InProcessPolicy(spec.model_copy(update={"method": method}), layout.model(spec.id.model)),
    )
    run.resume()
    run.take_step()
    run.take_step()
    for event in read_events(layout.run(spec.id) / "steps.jsonl"):
        metrics = event["metrics"]
        assert metrics["actor/grad_norm"] > 0
        assert math.fsum(metrics.get(f"routing/{name}_fraction", 0) for name in {*method.branches}) == pytest.approx(1)
        losses = [metrics[f"loss/{name}"] for name in {*method.branches} - {"dropped"}]
        assert metrics["loss/total"] == pytest.approx(math.fsum(losses))


def test_rlrt_by_hand() -> None:
    """q/p is 2 or 1/2, both beyond the clip, and half of the weight counts; where they agree it is GRPO."""
    rlrt, method = importlib.import_module("rlrt"), load_method("rlsd")
    advantage = torch.tensor([0.75, 0.75, -0.25, -0.25])
    p, q = torch.tensor([0.25, 0.5, 0.25, 0.5]).log(), torch.tensor([0.5, 0.25, 0.5, 0.25]).log()
    found = rlrt.reversed_advantages(method, advantage, p.requires_grad_(), q)
    weights = [0.8, 1.2, 1.2, 0.8]
    assert found.tolist() == pytest.approx(
        [a * (0.5 + 0.5 * w) for a, w in zip(advantage.tolist(), weights, strict=True)]
    )
    assert not found.requires_grad
    assert rlrt.reversed_advantages(method, advantage, p, p).equal(advantage)


def test_a_damped_teacher_by_hand() -> None:
    """q = (0.9, 0.1) and p = (0.5, 0.5): half of each, in logarithms, is (0.75, 0.25)."""
    damped_teacher = importlib.import_module("damped_teacher").damped_teacher
    p, q = torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.9, 0.1]]).log()
    found = damped_teacher(p, q, 0.5, slope=1e9)  # so steep that the share is the largest one
    torch.testing.assert_close(found.exp(), torch.tensor([[0.75, 0.25]]))
    # D = 0.1017 nats: at the slope 10 the sigmoid is 0.7344, the share 0.3 (0.7344 - 0.5) = 0.0703
    distance = 0.5 * sum(
        x * math.log(2 * x / (x + y)) + y * math.log(2 * y / (x + y)) for x, y in ((0.5, 0.9), (0.5, 0.1))
    )
    share = 0.3 * (1 / (1 + math.exp(-10 * distance)) - 0.5)
    drawn = [0.9 ** (1 - share) * 0.5**share, 0.1 ** (1 - share) * 0.5**share]
    assert damped_teacher(p, q, 0.15, slope=10.0).exp()[0].tolist() == pytest.approx([x / sum(drawn) for x in drawn])


def test_limits_and_gradient_of_a_damped_teacher() -> None:
    module, method = importlib.import_module("damped_teacher"), load_method("srpo")
    generator = torch.Generator().manual_seed(1)
    student, teacher = (torch.randn(6, 5, generator=generator).log_softmax(-1).requires_grad_() for _ in range(2))
    undamped = module.damped_teacher(student, teacher, 0.0, 50.0)
    torch.testing.assert_close(undamped, teacher.detach())
    damped = module.damped_reverse_kl(method, student, teacher)
    assert (damped < generalised_jsd(student, teacher, 1.0)).all()
    assert module.damped_reverse_kl(method, student, student.detach()).abs().max() < 1e-6
    damped.sum().backward()
    assert teacher.grad is None
    target = module.damped_teacher(student, teacher, module.LARGEST, module.SLOPE)
    # of sum p (log p - log q*) with q* constant
    torch.testing.assert_close(student.grad, (student.exp() * (1 + student - target)).detach())


def test_a_divergence_above_the_bound_is_the_bound_without_gradient() -> None:
    module, method = importlib.import_module("clipped_divergence"), load_method("srpo", distillation_alpha=0.0)
    student = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.1, 0.8]]).log().requires_grad_()
    teacher = torch.tensor([[0.58, 0.31, 0.11], [0.7, 0.2, 0.1]])
    found = module.clipped_jensen_shannon(method, student, teacher.log())
    kl = [
        sum(q * math.log(q / p) for q, p in zip(*rows, strict=True))
        for rows in zip(teacher.tolist(), student.exp().tolist(), strict=True)
    ]
    assert kl[0] < module.BOUND < kl[1]
    assert found.tolist() == pytest.approx([kl[0], module.BOUND], abs=1e-6)
    found.sum().backward()
    torch.testing.assert_close(student.grad, -teacher * torch.tensor([[1.0], [0.0]]))
