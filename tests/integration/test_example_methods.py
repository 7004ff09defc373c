"""The methods of ``examples/methods``: each registers itself, trains through the loop, and computes what it says."""

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
