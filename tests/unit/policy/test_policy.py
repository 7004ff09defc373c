"""verl's worker in this process: every pass and every update against plain transformers and torch.optim."""

import dataclasses
import json
import math
from statistics import fmean

import pytest
import torch
from helpers import CONTEXTS, METHODS, TEACHERS
from one_step import (
    RUNS,
    Reference,
    assert_same_weights,
    before_update,
    draw_rollouts,
    kept,
    largest_difference,
    local,
    update,
    update_with,
    weights,
)
from torch import Tensor
from transformers import AutoModelForCausalLM

from srpo.ground.layout import WEIGHTS
from srpo.policy.placement import RowOrder, order_rows
from srpo.policy.shared_prompts import SHARED_PROMPTS
from srpo.training.batch import Schedule
from srpo.training.metrics import teacher_metrics

pytestmark = pytest.mark.fault


# ---------------------------------------------------------------- passes


TOKENS = {"max_tokens_per_rank": 120}


@pytest.mark.parametrize("execution", [{}, TOKENS], ids=["rows", "tokens"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_both_passes_before_the_update_equal_transformers(start, temperature, execution):
    run = start("srpo", mini_batch_questions=2, execution=execution, temperature=temperature)
    rollouts = draw_rollouts(run)
    samples = Reference(run).samples(rollouts)
    prepared = before_update(run, rollouts)
    of_teacher = [0, 3, 8, 9, 11]
    assert sorted(prepared.old_log_probs) == list(range(RUNS))
    top_k_ids, log_q = kept(run, rollouts, "top_k_ids"), kept(run, rollouts, "teacher_log_probs")
    assert sorted(top_k_ids) == sorted(log_q) == sorted(prepared.teacher.entropy) == of_teacher
    for i, sample in enumerate(samples):
        tokens = torch.tensor(sample.tokens)[:, None]
        torch.testing.assert_close(
            prepared.old_log_probs[i].double(), sample.old.gather(1, tokens)[:, 0], rtol=0, atol=1e-5
        )
    for i in of_teacher:
        p, q, length = samples[i].old, samples[i].teacher, len(samples[i].tokens)
        ids = top_k_ids[i]
        assert ids.shape == (length, 20)
        torch.testing.assert_close(p.gather(1, ids), p.topk(20).values, rtol=0, atol=1e-5)
        tokens = torch.tensor(samples[i].tokens)[:, None]
        torch.testing.assert_close(prepared.teacher.log_probs[i].double(), q.gather(1, tokens)[:, 0], rtol=0, atol=1e-5)
        torch.testing.assert_close(prepared.teacher.entropy[i].double(), -(q.exp() * q).sum(1), rtol=0, atol=1e-5)
        tail = q.scatter(1, ids, -torch.inf).logsumexp(1, keepdim=True)
        found = log_q[i].double()
        torch.testing.assert_close(found, torch.cat([q.gather(1, ids), tail], 1), rtol=0, atol=1e-5)


def test_the_teacher_reads_the_tokens_of_the_student_with_its_own_weights(start):
    run = start("srpo", mini_batch_questions=2)
    rollouts = draw_rollouts(run)
    before = before_update(run, rollouts)
    for parameter in run.policy.worker.actor.engine.teacher.parameters():
        local(parameter).mul_(0.9)
    after = before_update(run, rollouts)
    assert all(torch.equal(log_probs, after.old_log_probs[i]) for i, log_probs in before.old_log_probs.items())
    assert all((before.teacher.entropy[i] - after.teacher.entropy[i]).abs().min() > 1e-4 for i in after.teacher.entropy)


# ---------------------------------------------------------------- updates


@pytest.mark.parametrize(
    ("name", "questions", "tied", "execution"),
    [
        *((name, 2, True, {}) for name in METHODS),
        *((name, 4, True, {}) for name in METHODS),
        ("srpo", 1, True, {}),  # some mini-batches have nothing to distil
        ("sdpo", 1, True, {}),  # some have nothing at all
        ("srpo", 2, False, {}),
        *((name, questions, True, TOKENS) for name in ("srpo", "advantage_mix") for questions in (2, 4)),
        *((name, 2, True, {}) for name in (*TEACHERS, *CONTEXTS)),
    ],
)
def test_updates_equal_transformers_and_adamw(name, questions, tied, execution, start):
    # the clip binds; the second update is off-policy, an only one finds pi_old itself; by tokens, with a temperature
    temperature = 0.7 if execution else 1.0
    run = start(
        name, mini_batch_questions=questions, clip_grad=0.05, tied=tied, execution=execution, temperature=temperature
    )
    rollouts = draw_rollouts(run)
    reference = Reference(run)
    losses, expected, norms = reference.step(rollouts)
    metrics, gradients = update(run, before_update(run, rollouts))
    assert len(gradients) == len(expected) == len([loss for loss in losses if loss])
    for found, slow in zip(gradients, expected, strict=True):
        scale = max(gradient.abs().max().item() for gradient in slow.values())
        assert largest_difference(found, slow) <= 1e-4 * scale
    assert max(norms) > 0.05
    student = weights(run.policy.worker.actor.engine.module)
    assert_same_weights(student, weights(reference.student))
    if run.policy.worker.actor.engine.teacher is not None:
        assert largest_difference(weights(run.policy.worker.actor.engine.teacher), weights(reference.teacher)) < 5e-6

    by_branch = {name.removeprefix("loss/"): value for name, value in metrics.items() if name.startswith("loss/")}
    total, _ = by_branch.pop("total"), by_branch.pop("divergence", None)
    assert by_branch.keys() == {*run.method.routing.branches} - {"dropped"}
    policy = sum(by_branch.get(branch, 0) for branch in ("grpo", "mix", "anchored", "rlsd"))
    distillation = by_branch.get("sdpo", 0)
    assert policy == pytest.approx(fmean([loss.policy.item() for loss in losses]), abs=1e-5)
    assert distillation == pytest.approx(fmean([loss.distillation.item() for loss in losses]), abs=1e-5)
    assert total == pytest.approx(policy + distillation)
    divergences = [value for loss in losses for value in loss.divergences]
    clipped = [value for loss in losses for value in loss.clipped]
    assert metrics.get("loss/divergence") == (pytest.approx(fmean(divergences), abs=1e-5) if divergences else None)
    assert metrics.get("actor/clip_fraction") == (pytest.approx(fmean(clipped), abs=0.01) if clipped else None)
    assert metrics["actor/grad_norm"] == pytest.approx(fmean(norms), rel=1e-4)
    log_ratios = [value for loss in losses for value in loss.log_ratios]
    corrections = [min(math.exp(value), 2) for value in log_ratios]
    assert metrics["actor/rollout_is_weight"] == pytest.approx(fmean(corrections), abs=1e-5)
    assert metrics["rollout_corr/log_prob_rms"] == pytest.approx(math.sqrt(fmean(x * x for x in log_ratios)), rel=1e-4)


@pytest.mark.parametrize("name", ["srpo", "sdpo"])
def test_the_size_of_a_micro_batch_changes_nothing(name, start):
    """Of mini-batches of 8 rows (fewer for SDPO), 64 at a time need no filler, 3 at a time one."""
    found = []
    for size in (64, 3, 1):
        run = start(name, mini_batch_questions=2, micro_batch_size=size, folder=f"micro{size}")
        rollouts = draw_rollouts(run)
        metrics, gradients = update(run, before_update(run, rollouts))
        found.append((metrics, gradients, weights(run.policy.worker.actor.engine.module)))
    for metrics, gradients, student in found[1:]:
        assert metrics == pytest.approx(found[0][0], abs=1e-6, rel=1e-4)
        for one, other in zip(gradients, found[0][1], strict=True):
            assert largest_difference(one, other) < 1e-6
        assert_same_weights(student, found[0][2])


@pytest.mark.parametrize("vocabulary", [4096, 0], ids=["whole-distributions", "top-k-first"])
@pytest.mark.parametrize("name", ["srpo", "sdpo", "advantage_mix", "grpo"])
def test_an_only_update_logs_what_passes_before_it_would(name, vocabulary, start, monkeypatch):
    run = start(name, folder="before")
    rollouts = draw_rollouts(run)
    monkeypatch.setattr("srpo.training.step.KEPT_VOCABULARY", vocabulary)
    monkeypatch.setattr("srpo.training.step.schedule_of", lambda *_: Schedule.OLD_FIRST)
    prepared = before_update(run, rollouts)
    assert sorted(prepared.old_log_probs) == prepared.batch.trained
    expected, gradients = update(run, prepared)
    expected |= teacher_metrics(prepared.targets, prepared.teacher)
    monkeypatch.undo()
    monkeypatch.setattr("srpo.training.step.KEPT_VOCABULARY", vocabulary)

    run = start(name, folder="within")
    prepared = before_update(run, rollouts)
    assert prepared.old_log_probs == {}
    # no pass before the update, or one of those rollouts alone that the teacher must be asked about
    assert sorted(kept(run, rollouts, "top_k_ids")) == (prepared.batch.of_teacher if vocabulary == 0 else [])
    metrics, found = update(run, prepared)
    metrics |= teacher_metrics(prepared.targets, prepared.teacher)
    assert metrics == pytest.approx(expected, abs=1e-5, rel=1e-4)
    for one, other in zip(found, gradients, strict=True):
        assert largest_difference(one, other) < 1e-6


def test_fillers_change_nothing(start, monkeypatch):
    run = start("srpo", folder="plain")
    rollouts = draw_rollouts(run)
    expected, gradients = update(run, before_update(run, rollouts))

    def with_fillers(*args):
        layout = order_rows(*args)
        assert len(layout.rows) == layout.mini_batch_size
        rows = [None, *layout.rows[:3], None, *layout.rows[3:], None, None]
        return RowOrder(rows, len(rows), len(rows) // 2)

    padded = start("srpo", folder="padded")
    prepared = before_update(padded, rollouts)
    monkeypatch.setattr("srpo.policy.placement.order_rows", with_fillers)
    found, padded_gradients = update(padded, prepared)
    assert found == pytest.approx(expected, abs=1e-6)
    assert largest_difference(gradients[0], padded_gradients[0]) < 1e-6


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_step_with_gradients_that_are_not_finite_moves_nobody(start, poison):
    run = start("srpo")
    engine, rollouts = run.policy.worker.actor.engine, draw_rollouts(run)
    prepared = before_update(run, rollouts)
    before = weights(engine.module), weights(engine.teacher)
    healthy = prepared.targets[2]
    prepared.targets[2] = dataclasses.replace(healthy, advantage=torch.full_like(healthy.advantage, poison))
    metrics = update_with(run, prepared)
    assert not math.isfinite(metrics["actor/grad_norm"])
    assert largest_difference(weights(engine.module), before[0]) == 0
    assert largest_difference(weights(engine.teacher), before[1]) == 0
    prepared.targets[2] = healthy
    assert math.isfinite(update_with(run, prepared)["actor/grad_norm"])
    assert largest_difference(weights(engine.module), before[0]) > 0


def test_warm_up_counts_batches_not_updates(start):
    run = start("srpo", mini_batch_questions=1, warmup_steps=4)
    engine, rollouts, rates = run.policy.worker.actor.engine, draw_rollouts(run), []
    step = engine.optimizer_step

    def recording():
        rates[-1].append(engine.optimizer.param_groups[0]["lr"])
        return step()

    engine.optimizer_step = recording
    for _ in range(6):
        rates.append([])
        update_with(run, before_update(run, rollouts))
    for found, expected in zip(rates, [0, 0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3], strict=True):
        assert found == pytest.approx([expected] * 4)


# ---------------------------------------------------------------- checkpoints


def test_a_checkpoint_restores_everything_that_the_next_update_depends_on(start, tmp_path):
    run = start("srpo", mini_batch_questions=2, warmup_steps=5, folder="run")
    rollouts = draw_rollouts(run)
    for _ in range(2):
        update_with(run, before_update(run, rollouts))
    run.policy.worker.save_checkpoint(str(tmp_path / "checkpoint"), global_step=2)
    engine = run.policy.worker.actor.engine
    saved = weights(engine.module), weights(engine.teacher)
    expected = update_with(run, before_update(run, rollouts))

    other = start("srpo", mini_batch_questions=2, warmup_steps=5, folder="other")
    restored = other.policy.worker.actor.engine
    other.policy.worker.load_checkpoint(str(tmp_path / "checkpoint"))
    assert largest_difference(weights(restored.module), saved[0]) == 0
    assert largest_difference(weights(restored.teacher), saved[1]) == 0
    assert update_with(other, before_update(other, rollouts)) == expected
    assert largest_difference(weights(restored.module), weights(engine.module)) == 0
    assert largest_difference(weights(restored.teacher), weights(engine.teacher)) == 0
    for found, right in zip(moments(restored), moments(engine), strict=True):
        assert torch.equal(found, right)

    described = json.loads((tmp_path / "checkpoint/huggingface/config.json").read_text())
    assert "attn_implementation" not in described  # nobody else has that of shared prompts
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint" / "huggingface")
    assert exported.dtype == torch.float32
    assert largest_difference(weights(exported), saved[0]) == 0


def test_float32_weights_are_the_bytes_that_verl_would_write(start, tmp_path):
    run = start("srpo", mini_batch_questions=2)
    run.policy.save_checkpoint(tmp_path / "complete", 1)
    run.policy.save_weights(tmp_path / "weights")
    manager = run.policy.worker.actor.engine.checkpoint_manager
    manager.checkpoint_save_contents = ["hf_model"]
    manager.save_checkpoint(str(tmp_path / "verl"))
    expected = {path.name: path.read_bytes() for path in (tmp_path / "verl" / WEIGHTS).iterdir()}
    config = json.loads(expected.pop("config.json"))
    assert {"model.safetensors", "tokenizer.json"} <= expected.keys()
    # verl also writes the attention of the training, and bfloat16 whatever the weights are
    assert config.pop("attn_implementation") == SHARED_PROMPTS
    for kind in ("complete", "weights"):
        found = {path.name: path.read_bytes() for path in (tmp_path / kind / WEIGHTS).iterdir()}
        assert json.loads(found.pop("config.json")) == config | {"dtype": "float32"}
        assert found == expected
    assert not list((tmp_path / "weights").glob("*.pt"))
    assert list((tmp_path / "complete").glob("optim*.pt"))


def test_bfloat16_weights_are_the_rounded_ones(start, tmp_path):
    run = start("srpo", mini_batch_questions=2, execution={"precision": "bfloat16"})
    run.policy.save_weights(tmp_path)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / WEIGHTS, dtype="auto")
    master = weights(run.policy.worker.actor.engine.module)
    found = weights(exported)
    assert {tensor.dtype for tensor in found.values()} == {torch.bfloat16}
    assert {tensor.dtype for tensor in master.values()} == {torch.float32}
    assert found.keys() == master.keys()
    assert all(torch.equal(tensor, master[name].bfloat16()) for name, tensor in found.items())


def moments(engine) -> list[Tensor]:
    """AdamW's state of every parameter, in order."""
    states = [engine.optimizer.state[parameter] for parameter in engine.module.parameters()]
    return [local(state[key]) for state in states for key in ("step", "exp_avg", "exp_avg_sq")]
