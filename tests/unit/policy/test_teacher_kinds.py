"""Every kind of teacher in verl's worker: its limiting cases bit for bit, its mixture in float64, its checkpoints."""

import itertools
import json
import math

import pytest
import tiny_runs
import torch
from one_step import (
    before_update,
    build_run,
    draw_rollouts,
    kept,
    largest_difference,
    local,
    record_updates,
    update,
    update_with,
    weights,
)
from tiny import hash_reward

from srpo.experiment.config import ModelledClock
from srpo.training import avg_at_k

FROZEN, LIVE = {"teacher": {"kind": "frozen"}}, {"teacher": {"kind": "live"}}


def ema(rate: float) -> dict:
    return {"teacher": {"kind": "ema"}, "teacher_update_rate": rate}


@pytest.fixture
def start(base, tmp_path):
    return lambda changes, folder="run", **options: build_run(
        base, tmp_path / folder, "srpo", changes=changes, **options
    )


def engine_of(run):
    return run.policy.worker.actor.engine


# ---------------------------------------------------------------- whole runs


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of four steps of two updates each, made once."""
    done: dict[str, tuple] = {}

    def trained(changes: dict, steps: tuple[int, ...] = (4,)):
        key = json.dumps([changes, steps])
        if key not in done:
            changed = changes | {"mini_batch_questions": 2}
            done[key] = tiny_runs.trained(tmp_path_factory.mktemp("run"), "srpo", changed, steps)
        return done[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("srpo.training.step.compute_reward", hash_reward)
        patch.setattr(avg_at_k, "compute_reward", hash_reward)
        yield trained


@pytest.mark.parametrize(("one", "other"), [(ema(0), FROZEN), (ema(1), LIVE)], ids=["ema-0-frozen", "ema-1-live"])
def test_limiting_cases_are_the_same_run_bit_for_bit(one, other, trained):
    (log, weights_of_one), (expected, weights_of_other) = trained(one), trained(other)
    assert largest_difference(weights_of_one, weights_of_other) == 0
    assert [step["metrics"] for step in log] == [step["metrics"] for step in expected]


def test_kinds_differ_from_each_other(trained):
    found = [trained(changes)[1] for changes in ({}, FROZEN, LIVE)]
    assert all(largest_difference(*pair) > 0 for pair in itertools.combinations(found, 2))


@pytest.mark.parametrize("changes", [FROZEN, ema(0.3)], ids=["frozen", "ema"])
def test_a_resumed_run_is_the_uninterrupted_one(changes, trained):
    tiny_runs.assert_same(trained(changes), trained(changes, steps=(2, 4)))


# ---------------------------------------------------------------- weights


def test_a_frozen_teachers_weights_stay_and_a_live_one_has_none(start):
    run = start(FROZEN, mini_batch_questions=1)
    engine, rollouts = engine_of(run), draw_rollouts(run)
    first = weights(engine.teacher)
    _, teachers = record_updates(engine)
    update_with(run, before_update(run, rollouts))
    assert len(teachers) == 4
    assert [largest_difference(found, first) for found in (*teachers, weights(engine.teacher))] == [0] * 5
    assert engine_of(start(LIVE, "live")).teacher is None


@pytest.mark.parametrize("moves_after", ["batch", "update"])
def test_the_average_moves_once_per_batch_or_once_per_update(base, tmp_path, moves_after):
    """Weights by hand, in float64: r of the student after the last update, or r of the student after each of four."""
    changes = {"teacher": {"kind": "ema", "moves_after": moves_after}, "teacher_update_rate": 0.3}
    run = build_run(base, tmp_path / "run", "srpo", mini_batch_questions=1, changes=changes)
    engine, rollouts = engine_of(run), draw_rollouts(run)
    expected = {name: tensor.double() for name, tensor in weights(engine.teacher).items()}
    students, _ = record_updates(engine)
    for _ in range(2):
        prepared, before = before_update(run, rollouts), weights(engine.teacher)
        students.clear()
        update_with(run, prepared)
        assert len(students) == 4
        assert largest_difference(before, expected) < 5e-7  # only updates move it
        for student in students if moves_after == "update" else students[-1:]:
            expected = {name: 0.7 * slow + 0.3 * student[name].double() for name, slow in expected.items()}
        assert largest_difference(weights(engine.teacher), expected) < 5e-7  # float32
    # the shards, which a state dict shows, have followed; not only what a forward pass left gathered
    state = {name: local(tensor) for name, tensor in engine.teacher.state_dict().items()}
    assert all(torch.equal(state[name], tensor) for name, tensor in weights(engine.teacher).items())


@pytest.mark.parametrize("moves_after", ["batch", "update"])
def test_a_batch_of_skipped_updates_moves_no_teacher(start, moves_after):
    """After a healthy batch of two updates, one whose updates are all skipped."""
    run = start({"teacher": {"kind": "ema", "moves_after": moves_after}}, mini_batch_questions=2)
    engine, rollouts = engine_of(run), draw_rollouts(run)
    update_with(run, before_update(run, rollouts))
    prepared, first = before_update(run, rollouts), weights(engine.teacher)
    for row, own in [*prepared.targets.items()]:
        prepared.targets[row] = type(own)(**{**vars(own), "advantage": torch.full_like(own.advantage, math.nan)})
    update_with(run, prepared)
    assert largest_difference(weights(engine.teacher), first) == 0


# ---------------------------------------------------------------- the pass


def test_no_gradient_goes_through_the_teacher(start):
    """What the pass returns are constants, and it leaves no gradient on either model."""
    run = start(ema(0.5))
    engine, rollouts = engine_of(run), draw_rollouts(run)
    prepared = before_update(run, rollouts)
    assert all(parameter.grad is None for parameter in engine.module.parameters())
    assert not any(parameter.requires_grad for parameter in engine.teacher.parameters())
    assert not any(tensor.requires_grad for tensor in kept(run, rollouts, "teacher_log_probs").values())
    _, gradients = update(run, prepared)
    assert gradients
    assert all(parameter.grad is None for parameter in engine.teacher.parameters())
    assert engine.module.training  # although the pass has set it to evaluation


def test_what_the_modelled_clock_counts_is_the_sum_of_the_lengths(start, monkeypatch):
    """By hand: a prompt once per question, or per prompt of the teacher; an update is three forward passes."""
    monkeypatch.setattr("srpo.training.step.compute_reward", hash_reward)
    run = start({}, mini_batch_questions=2, micro_batch_size=2)  # memory settings do not count
    step, rates = run.step, {"decode_flops_per_second": 1e6, "dense_flops_per_second": 1e7}
    rollouts = step.generate(run.train_questions[:4])
    batch = step.route(run.train_questions[:4], rollouts)
    old, teacher = step.compute_log_prob(batch), step.compute_teacher_log_prob(batch)
    step.update(batch, step.compute_targets(batch, old, teacher))

    shape = run.policy.worker.actor.engine.model_config.hf_config
    shapes = weights(engine_of(run).module).values()
    multiplied = sum(tensor.numel() for tensor in shapes)  # the embedding too: it is tied to the head
    width = shape.num_hidden_layers * shape.num_attention_heads * shape.head_dim

    def flops(first: int, last: int) -> int:
        return sum(2 * multiplied + 4 * width * position for position in range(first + 1, last + 1))

    def of_pass(rows: list[int], prompts: dict[int, list[int]]) -> int:
        whole = {(int(rollouts.question[row]), tuple(prompts[row])) for row in rows}
        own = ((len(prompts[row]), len(rollouts.responses[row])) for row in rows)
        return sum(flops(0, len(p)) for _, p in whole) + sum(flops(p, p + r) for p, r in own)

    prompts = {row: prompt.tolist() for row, prompt in enumerate(rollouts.prompts)}
    shown = {row: prompt.tolist() for row, prompt in step._teacher_prompts(batch).items()}
    asked = {int(question): prompts[row] for row, question in enumerate(rollouts.question)}
    decoded = sum(flops(len(prompts[row]), len(prompts[row]) + len(r)) for row, r in enumerate(rollouts.responses))
    assert len(shown) > len({tuple(prompt) for prompt in shown.values()}) > 1
    assert step.phases.seconds(ModelledClock(kind="modelled", **rates)) == pytest.approx(
        {
            "generate": decoded / 1e6 + sum(flops(0, len(prompt)) for prompt in asked.values()) / 1e7,
            "reward": 0.0,
            "log_prob": of_pass(batch.trained, prompts) / 1e7,
            "teacher": of_pass([*shown], shown) / 1e7,
            "update": 3 * of_pass(batch.trained, prompts) / 1e7,
        }
    )


def test_a_teacher_in_host_memory_changes_nothing(start):
    found = []
    for offload in (False, True):
        run = start(FROZEN, f"offload-{offload}", execution={"offload_teacher": offload})
        rollouts = draw_rollouts(run)
        found.append((update(run, before_update(run, rollouts)), weights(engine_of(run).module)))
    assert found[0][0][0] == found[1][0][0]
    assert largest_difference(found[0][1], found[1][1]) == 0
