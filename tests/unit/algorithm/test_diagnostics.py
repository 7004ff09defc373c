"""What a step says about itself, by hand-worked examples and against float64 gradients."""

import math

import pytest
import torch
from helpers import slow_objective
from one_step import (
    Reference,
    before_update,
    branch_gradients,
    draw_rollouts,
    local,
    update,
    weights,
)
from tiny import hash_reward, prepare, tiny_experiment

from srpo.algorithm.diagnostics import (
    is_repetitive,
    weight_metrics,
)
from srpo.ground.files import read_events
from srpo.training import loop

# ---------------------------------------------------------------- the scale of the loss


@pytest.mark.parametrize(("name", "preserved"), [("srpo_equal_loss_scale", True), ("srpo", False)])
def test_weights_that_preserve_the_loss_scale_have_a_scale_of_one(name, preserved, start):
    run = start(name)
    rollouts = draw_rollouts(run)
    metrics, _ = update(run, before_update(run, rollouts))
    assert (metrics["weights/loss_scale"] == pytest.approx(1, abs=1e-5)) == preserved


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("questions", [4, 2])
def test_the_gradient_of_each_branch(start, questions):
    """Of the first mini-batch, before clipping, against float64 models; nothing moves."""
    run = start("srpo", mini_batch_questions=questions, clip_grad=0.05)
    rollouts = draw_rollouts(run)
    reference = Reference(run)
    samples = reference.samples(rollouts)
    rows = range(4 * questions)
    student = {i: reference.log_probs(reference.student, rollouts.prompts[i], rollouts.responses[i]) for i in rows}
    loss = slow_objective(run.method, samples, student, rows)
    expected = {}
    for name, part in (("grpo", loss.policy), ("sdpo", loss.distillation)):
        gradients = torch.autograd.grad(part, list(reference.student.parameters()), retain_graph=True)
        expected[f"grad_norm/{name}"] = math.sqrt(sum(g.square().sum().item() for g in gradients))

    prepared = before_update(run, rollouts)
    engine = run.policy.worker.actor.engine
    before = [weights(engine.module), weights(engine.teacher)]
    rate = engine.lr_scheduler.get_last_lr()
    assert branch_gradients(run, prepared) == pytest.approx(expected, rel=1e-4)
    after = [weights(engine.module), weights(engine.teacher)]
    assert all(torch.equal(old[name], new[name]) for old, new in zip(before, after, strict=True) for name in old)
    assert not engine.optimizer.state
    assert engine.lr_scheduler.get_last_lr() == rate


def test_measured_gradients_leave_the_update_alone(start):
    found = []
    for measured in (False, True):
        run = start("srpo", folder=str(measured))
        rollouts = draw_rollouts(run)
        prepared = before_update(run, rollouts)
        if measured:
            branch_gradients(run, prepared)
        update(run, prepared)
        found.append([local(p).clone() for p in run.policy.worker.actor.engine.module.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["grpo", "sdpo", "advantage_mix"])
def test_one_branch_has_no_norm_of_its_own(start, name):
    run = start(name)
    rollouts = draw_rollouts(run)
    assert branch_gradients(run, before_update(run, rollouts)) == {}


# ---------------------------------------------------------------- weights


def test_the_distribution_of_weights():
    found = weight_metrics(torch.arange(11.0))
    assert found == pytest.approx(
        {
            "weights/p10": 1,
            "weights/median": 5,
            "weights/p90": 9,
            "weights/max": 10,
            "weights/effective_fraction": 55**2 / (11 * 385),
        }
    )
    assert weight_metrics(torch.ones(3))["weights/effective_fraction"] == 1
    assert {*weight_metrics(torch.zeros(3)).values()} == {0}  # of solved groups only: no weight, and no 0 / 0


# ---------------------------------------------------------------- in a run


def test_a_run_measures_branches_every_so_many_steps(tmp_path, monkeypatch):
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    spec, layout = prepare(tiny_experiment("srpo", max_steps=5, branch_gradients_every=2), tmp_path)
    loop.train(spec, layout)
    steps = read_events(layout.run(spec.id) / "steps.jsonl")
    assert [event["step"] for event in steps if "grad_norm/grpo" in event["metrics"]] == [2, 4]
    for event in steps:
        metrics = event["metrics"]
        if metrics["routing/sdpo_fraction"]:
            assert (
                metrics["weights/p10"] <= metrics["weights/median"] <= metrics["weights/p90"] <= metrics["weights/max"]
            )


# ---------------------------------------------------------------- repetition


@pytest.mark.parametrize(
    ("tokens", "repetitive"),
    [
        ([], False),
        ([1, 1, 1], False),
        ([1] * 5, False),  # two 4-grams, half of them seen before
        ([1] * 6, True),
        ([1, 2, 3, 4, 5] * 2, False),
        ([1, 2, 3, 4, 5] * 3, True),
        (list(range(100)), False),
        ([*range(40), *[7, 8, 9] * 10], False),
        ([*range(20), *[7, 8, 9] * 10], True),
    ],
)
def test_a_response_repeats_itself_if_most_of_its_4_grams_were_there_before(tokens, repetitive):
    assert is_repetitive(tokens) is repetitive
    seen, again = set(), 0
    for i in range(len(tokens) - 3):
        gram = tuple(tokens[i : i + 4])
        again += gram in seen
        seen.add(gram)
    assert (again > max(len(tokens) - 3, 0) / 2) is repetitive
