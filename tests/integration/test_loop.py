"""A whole training step of the driver against an independent float64 implementation on plain transformers."""

import numpy as np
import pytest
import torch
from one_step import OneStep, Reference, local
from tiny import hash_reward, prepare, tiny_experiment
from torch import Tensor

from srpo.ground.files import read_events
from srpo.policy.in_process import InProcessPolicy
from srpo.rollout.embedded import EmbeddedEngine
from srpo.training.loop import Run
from srpo.training.step import Step


@pytest.fixture(autouse=True)
def _rewards(monkeypatch):
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)


@pytest.fixture
def start(tmp_path):
    def start(method, **training):
        spec, layout = prepare(tiny_experiment(method, **training), tmp_path / f"{method}{training}".replace("/", "-"))
        if method == "grpo":  # one update, so that the policy of the update is the base model
            spec = spec.model_copy(update={"method": spec.method.model_copy(update={"mini_batch_questions": 4})})
        run = Run(spec, layout, InProcessPolicy(spec, layout.model(spec.id.model)))
        run.resume()
        return run

    return start


def step_and_reference(run, monkeypatch) -> tuple[dict, list[dict[str, Tensor]], Reference]:
    """Take the first step.

    Returns:
        Its rollouts and old log-probs, the gradients of each backward pass, and the slow program before its step.
    """
    seen, gradients, engine = {}, [], run.policy.worker.actor.engine
    generate, compute, step = Step.generate, Step.compute_log_prob, engine.optimizer_step

    def generating(self, questions):
        seen["questions"], seen["rollouts"] = questions, generate(self, questions)
        return seen["rollouts"]

    def computing(self, batch):
        seen["old_log_probs"] = compute(self, batch)
        return seen["old_log_probs"]

    def stepping():
        gradients.append({n: local(p.grad).clone() for n, p in engine.module.named_parameters()})
        return step()

    monkeypatch.setattr(Step, "generate", generating)
    monkeypatch.setattr(Step, "compute_log_prob", computing)
    engine.optimizer_step = stepping
    questions: list = []
    reference = Reference(OneStep(run.spec, run.policy, questions))
    run.take_step()
    questions += seen["questions"]
    return seen, gradients, reference


def assert_gradient_is(found: dict[str, Tensor], reference: Reference, rollouts) -> dict[str, Tensor]:
    """The update's gradient is the slow one, which is returned."""
    _, (expected,), _ = reference.step(rollouts)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found[name], gradient, rtol=2e-3, atol=2e-6, err_msg=name)
    return expected


@pytest.mark.parametrize("method", ["grpo", "sdpo", "srpo", "srpo_equal_loss_scale"])
def test_gradient_of_a_step_matches_an_independent_implementation(start, monkeypatch, method):
    seen, (gradient,), reference = step_and_reference(start(method), monkeypatch)
    assert_gradient_is(gradient, reference, seen["rollouts"])


@pytest.mark.parametrize("method", ["srpo", "advantage_mix", "grpo_with_anchor", "rlsd"])
def test_gradient_with_a_teacher_that_is_not_the_student(start, monkeypatch, method):
    run = start(method)
    of_the_base = Reference(OneStep(run.spec, run.policy, []))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in run.policy.worker.actor.engine.teacher.parameters():
            local(parameter).add_(0.05 * torch.randn(parameter.shape, generator=generator))
    seen, (gradient,), reference = step_and_reference(run, monkeypatch)
    expected = assert_gradient_is(gradient, reference, seen["rollouts"])
    of_the_base.run.train_questions.extend(seen["questions"])
    _, (other,), _ = of_the_base.step(seen["rollouts"])
    assert max((expected[name] - other[name]).abs().max().item() for name in other) > 1e-4  # the noise matters


def test_rollout_engine_and_trainer_agree_on_log_probs(start, monkeypatch):
    run = start("srpo_equal_loss_scale")  # whose weights need a pass before the only update
    seen, *_ = step_and_reference(run, monkeypatch)
    assert len(seen["old_log_probs"]) == len(seen["rollouts"])
    for row, old in seen["old_log_probs"].items():
        torch.testing.assert_close(old, seen["rollouts"].rollout_log_probs[row], rtol=0, atol=1e-5)


def test_the_peak_memory_is_that_of_all_processes(start, monkeypatch):
    run = start("grpo")
    monkeypatch.setattr("srpo.training.loop.host_memory_gb", lambda: 99.0)
    run.take_step()
    assert run.summary()["peak_memory_gb"] == 99


@pytest.mark.parametrize(("precision", "least", "most"), [("float32", 0, 1e-5), ("bfloat16", 1e-3, 0.07)])
def test_the_log_tells_a_sampler_with_other_weights(precision, least, most, start, monkeypatch):
    """The mean importance weight does not: it is 1 for any policy that samples from itself."""
    run = start("grpo", execution={"precision": precision})
    run.take_step()
    send = EmbeddedEngine.update_weights

    def send_others(engine, weights):
        torch.manual_seed(0)
        send(engine, ((name, weight + 0.05 * weight.std() * torch.randn_like(weight)) for name, weight in weights))

    monkeypatch.setattr(EmbeddedEngine, "update_weights", send_others)
    run.take_step()
    honest, other = (event["metrics"] for event in read_events(run.folder / "steps.jsonl"))
    assert least <= honest["rollout_corr/log_prob_rms"] < most
    assert other["rollout_corr/log_prob_rms"] > 0.3
    assert other["actor/rollout_is_weight"] == pytest.approx(1, abs=0.1)  # of about 90 tokens
