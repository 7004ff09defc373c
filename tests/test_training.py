"""Clock and budgets, the order of questions, mini-batches and row layouts, targets, logs and checkpoints."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import json
import math
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from helpers import load_method
from hypothesis import given
from hypothesis import strategies as st

from srpo.algorithm.routing import route
from srpo.benchmarks.splits import Question
from srpo.config import Clock
from srpo.errors import SrpoError
from srpo.files import append_event, read_events
from srpo.policy.batches import RowLayout, lay_out, rows_of
from srpo.text import shortened
from srpo.training import checkpoints, provenance
from srpo.training.clock import ModelCost, Phases, best_of_budgets, best_within
from srpo.training.provenance import FINISHED, LOGS, claim_folder
from srpo.training.step import (
    Rollouts,
    StudentScores,
    TeacherScores,
    group_record,
    mini_batches,
    questions_of_step,
    rollout_metrics,
    target_metrics,
    targets,
)

# ---------------------------------------------------------------- clock

LAYERS, HEADS, HEAD_DIM, PARAMETERS = 2, 3, 5, 1000


def count_flops(first: int, last: int) -> int:
    """Multiply-adds, two FLOPs each, of the tokens at positions first..last-1, one scalar product at a time."""
    total = 0
    for position in range(first, last):
        total += 2 * PARAMETERS
        for _ in range(LAYERS * HEADS):
            for _attended in range(position + 1):
                total += 2 * HEAD_DIM  # query . key
                total += 2 * HEAD_DIM  # probability * value
    return total


COST = ModelCost(PARAMETERS, LAYERS * HEADS * HEAD_DIM)


def test_forward_flops_equal_a_count():
    assert COST.forward_flops([1]) == count_flops(0, 1)
    assert COST.forward_flops([7, 12]) == count_flops(0, 7) + count_flops(0, 12)
    assert COST.forward_flops([]) == 0


def test_decoding_behind_a_cached_prompt_counts_the_response_only():
    assert COST.decode_flops([7, 7], [4, 9]) == count_flops(7, 11) + count_flops(7, 16)
    with pytest.raises(ValueError, match="zip"):
        COST.decode_flops([7], [4, 9])


def test_modelled_seconds_of_the_phases():
    clock = Clock(kind="modelled", decode_flops_per_second=10, dense_flops_per_second=100)
    phases = Phases()
    phases.count("generate", tokens=3, dense_flops=200, decode_flops=50)
    phases.count("update", tokens=4, dense_flops=100)
    phases.count("update", tokens=5, dense_flops=500)
    with phases.measure("reward"):
        pass
    assert phases.seconds(clock) == {"generate": 7.0, "reward": 0.0, "log_prob": 0.0, "teacher": 0.0, "update": 6.0}
    assert phases.tokens == {"generate": 3, "update": 9}


def test_the_wall_clock_is_what_was_measured(monkeypatch):
    ticks = iter([1.0, 3.5, 10.0, 10.25])
    monkeypatch.setattr("srpo.training.clock.time.perf_counter", lambda: next(ticks))
    phases = Phases()
    for _ in range(2):
        with phases.measure("teacher"):
            pass
    seconds = phases.seconds(Clock(kind="wall"))
    assert seconds["teacher"] == 2.75
    assert sum(seconds.values()) == 2.75


def validations(*rows: tuple[int, float, float]) -> list[dict]:
    return [{"step": step, "clock": clock, "avg_at_k": score} for step, clock, score in rows]


def test_best_within_a_budget_by_hand():
    log = validations((5, 1.0, 0.3), (10, 2.0, 0.5), (15, 3.0, 0.4), (20, 4.0, 0.6))
    found = [best_within(log, seconds) for seconds in (0.99, 1.0, 2.5, 3.0, 4.0, 99)]
    assert [best and best["step"] for best in found] == [None, 5, 10, 10, 20, 20]


def test_the_earliest_of_equals_is_best():
    log = validations((5, 1.0, 0.5), (10, 2.0, 0.5), (15, 3.0, 0.5))
    assert best_within(log, 10)["step"] == 5
    assert best_within(log[::-1], 10)["step"] == 5


def test_the_untrained_model_is_no_candidate():
    assert best_within(validations((0, 0.0, 0.9)), 10) is None
    assert best_within(validations((0, 0.0, 0.9), (5, 1.0, 0.1)), 10)["step"] == 5
    assert best_within([], 10) is None


def test_best_of_each_budget():
    best = best_of_budgets(validations((5, 1.5, 0.3), (10, 4.0, 0.2)), {"1h": 1, "5h": 5})
    assert best["1h"] is None
    assert best["5h"]["step"] == 5


# ---------------------------------------------------------------- questions


@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 5))
def test_each_epoch_asks_a_question_at_most_once(questions, per_batch, seed):
    batches = questions // per_batch
    if batches == 0:
        with pytest.raises(SrpoError, match="questions_per_batch"):
            questions_of_step(1, questions, per_batch, seed)
        return
    for epoch in range(2):
        steps = range(epoch * batches + 1, (epoch + 1) * batches + 1)
        asked = [question for step in steps for question in questions_of_step(step, questions, per_batch, seed)]
        assert len(set(asked)) == len(asked) == batches * per_batch
        assert set(asked) <= set(range(questions))


def test_an_epoch_that_divides_asks_every_question_in_another_order_each_time():
    epochs = [[q for step in range(first, first + 4) for q in questions_of_step(step, 32, 8, 1)] for first in (1, 5, 9)]
    assert all(sorted(epoch) == list(range(32)) for epoch in epochs)
    assert all(a != b for a, b in itertools.combinations([*epochs, list(range(32))], 2))


def test_questions_depend_on_step_and_seed_alone():
    late = questions_of_step(9, 32, 8, 1)
    assert questions_of_step(9, 32, 8, 1) == late
    assert questions_of_step(9, 32, 8, 2) != late


# ---------------------------------------------------------------- mini-batches and layouts


def rollouts_of(rewards: list[float], per_question: int, lengths: list[int] | None = None) -> Rollouts:
    lengths = lengths or [2] * len(rewards)
    return Rollouts(
        question=torch.arange(len(rewards) // per_question).repeat_interleave(per_question),
        prompts=[torch.zeros(3, dtype=torch.int64)] * len(rewards),
        responses=[torch.zeros(n, dtype=torch.int64) for n in lengths],
        texts=[""] * len(rewards),
        rollout_log_probs=[torch.full((n,), -1.0) for n in lengths],
        rewards=torch.tensor(rewards, dtype=torch.float32),
        truncated=torch.tensor([i % 4 == 3 for i in range(len(rewards))]),
    )


REWARDS = [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "questions", "expected"),
    [
        ("grpo", 1, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]),
        ("grpo", 2, [list(range(8)), list(range(8, 16))]),
        ("srpo", 4, [list(range(16))]),
        ("sdpo", 4, [[0, 1, 2, 3, 8, 9, 11, 12, 13, 14, 15]]),
        ("sdpo", 1, [[0, 1, 2, 3], [8, 9, 11], [12, 13, 14, 15]]),
        ("sdpo_failed_only", 2, [[0, 3], [8, 9, 11]]),
        ("sdpo_correct_only", 2, [[1, 2], [12, 13, 14, 15]]),
    ],
)
def test_mini_batches_keep_questions_together_and_leave_dropped_rollouts_out(name, questions, expected):
    rollouts = rollouts_of(REWARDS, 4)
    routes = route(rollouts.rewards, rollouts.question, load_method(name).routing)
    assert mini_batches(rollouts, routes, questions) == expected


def test_a_batch_without_any_signal_has_no_mini_batch():
    rollouts = rollouts_of([0] * 8, 4)
    assert mini_batches(rollouts, route(rollouts.rewards, rollouts.question, load_method("sdpo").routing), 1) == []


@st.composite
def split_rows(draw) -> list[list[int]]:
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    rows = draw(st.permutations(range(sum(sizes))))
    starts = list(itertools.accumulate(sizes, initial=0))
    return [list(rows[a:b]) for a, b in itertools.pairwise(starts)]


@given(split_rows(), st.integers(1, 64), st.randoms(use_true_random=False))
def test_layouts_hold_every_row_once_in_equal_parts(batches, micro_batch_size, random):
    lengths = [random.randrange(1, 50) for _ in range(sum(map(len, batches)))]
    layout = lay_out(batches, lengths, micro_batch_size)
    size, micro = layout.mini_batch_size, layout.micro_batch_size
    assert len(layout.rows) == size * len(batches)
    assert size % micro == 0
    assert micro <= micro_batch_size
    for k, batch in enumerate(batches):
        part = [row for row in layout.rows[k * size : (k + 1) * size] if row is not None]
        assert sorted(part) == sorted(batch)
        assert [lengths[row] for row in part] == sorted(lengths[row] for row in batch)
    # fillers: not one micro-batch more than needed, and fewer in the largest mini-batch than micro-batches
    largest = max(map(len, batches))
    assert size // micro == math.ceil(largest / micro_batch_size)
    assert size - largest < size // micro


def test_a_layout_is_undone():
    layout = lay_out([[4, 1], [0, 2, 3]], [5, 4, 3, 2, 1], 2)
    assert layout == RowLayout([None, None, 4, 1, None, 3, 2, 0], 4, 2)
    output = torch.nested.nested_tensor([torch.tensor([float(i)]) for i in range(8)], layout=torch.jagged)
    assert {row: t.item() for row, t in rows_of(layout, output).items()} == {4: 2, 1: 3, 3: 5, 2: 6, 0: 7}


# ---------------------------------------------------------------- targets and metrics

LENGTHS = [1, 3, 2, 4] * 4


def scores_of(rollouts: Rollouts, routes, kept) -> tuple[StudentScores, TeacherScores]:
    generator = torch.Generator().manual_seed(1)
    old = {i: -2 * torch.rand(n, generator=generator) for i, n in enumerate(LENGTHS)}
    taught = routes.taught.nonzero().flatten().tolist()
    teacher = TeacherScores(
        log_probs={i: -2 * torch.rand(LENGTHS[i], generator=generator) for i in taught},
        entropy={i: 3 * torch.rand(LENGTHS[i], generator=generator) for i in taught},
        buckets={i: torch.rand(LENGTHS[i], 3, generator=generator).log_softmax(-1).flatten() for i in taught},
    )
    student = StudentScores(
        log_probs={i: old[i] for i in kept},
        top_k_ids={},
        top_k_mass={i: torch.rand(LENGTHS[i], generator=generator) for i in taught},
        buckets={i: torch.rand(LENGTHS[i], 3, generator=generator).log_softmax(-1).flatten() for i in taught},
    )
    return student, teacher


def targets_of(name: str, mini_batch_questions: int):
    method = load_method(name)
    rollouts = rollouts_of(REWARDS, 4, LENGTHS)
    routes = route(rollouts.rewards, rollouts.question, method.routing)
    batches = mini_batches(rollouts, routes, mini_batch_questions)
    student, teacher = scores_of(rollouts, routes, [i for batch in batches for i in batch])
    return targets(method, rollouts, routes, batches, student, teacher), routes, student, teacher


@pytest.mark.parametrize("questions", [1, 2, 4])
def test_weights_have_mean_one_over_each_mini_batch_and_not_over_less(questions):
    found, routes, _, teacher = targets_of("srpo", questions)
    distilled = routes.sdpo.nonzero().flatten().tolist()
    assert distilled == [0, 3, 8, 9, 11]
    for first in range(0, 16, 4 * questions):
        rows = [i for i in distilled if first <= i < first + 4 * questions]
        raw = {i: [math.exp(-h) for h in teacher.entropy[i].tolist()] for i in rows}
        total, count = math.fsum(itertools.chain(*raw.values())), sum(LENGTHS[i] for i in rows)
        for i in rows:
            assert found.divergence_weight[i].tolist() == pytest.approx([w * count / total for w in raw[i]], rel=1e-5)
            assert abs(found.divergence_weight[i].mean().item() - 1) > 1e-3  # not normalised row by row
    assert all(len(found.divergence_weight[i]) == 0 for i in range(16) if i not in distilled)


@pytest.mark.parametrize("questions", [1, 2, 4])
def test_weights_that_keep_the_loss_leave_each_mini_batch_its_size(questions):
    found, routes, student, teacher = targets_of("srpo_equal_loss_scale", questions)
    usual, *_ = targets_of("srpo", questions)
    for first in range(0, 16, 4 * questions):
        rows = [i for i in routes.sdpo.nonzero().flatten().tolist() if first <= i < first + 4 * questions]
        if not rows:
            continue
        sizes = {"plain": 0.0, "weighted": 0.0}
        for i in rows:
            for t in range(LENGTHS[i]):
                p, q = (scores.buckets[i].view(-1, 3)[t].double().exp() for scores in (student, teacher))
                jsd = sum((x * (2 * x / (p + q)).log()).sum().item() for x in (p, q)) / 2
                sizes["plain"] += jsd
                sizes["weighted"] += found.divergence_weight[i][t].item() * jsd
        assert sizes["weighted"] == pytest.approx(sizes["plain"], rel=1e-5)
        ratios = torch.cat([found.divergence_weight[i] / usual.divergence_weight[i] for i in rows])
        assert ratios.max() - ratios.min() < 1e-5 * ratios.max()  # the same relative weights


def test_no_weighting_is_exactly_one():
    found, routes, _, _ = targets_of("srpo_without_weighting", 2)
    for i in routes.sdpo.nonzero().flatten().tolist():
        assert found.divergence_weight[i].tolist() == [1.0] * LENGTHS[i]


def test_advantages_are_of_the_whole_group_whatever_is_routed_away():
    found, *_ = targets_of("srpo", 4)
    group_means = [0.5, 0, 0.25, 1]
    for i, length in enumerate(LENGTHS):
        assert found.advantages[i].tolist() == [REWARDS[i] - group_means[i // 4]] * length


def test_rollout_correction_is_truncated():
    found, _, student, _ = targets_of("grpo", 1)
    for i in range(16):
        expected = [min(math.exp(x + 1.0), 2.0) for x in student.log_probs[i].tolist()]
        assert found.rollout_is_weight[i].tolist() == pytest.approx(expected)


def test_masks_of_each_branch():
    found, routes, *_ = targets_of("sdpo", 4)
    for i, length in enumerate(LENGTHS):
        kept = not routes.dropped[i]
        assert found.mask[i].tolist() == [True] * length * kept
        assert found.in_distillation_branch[i].tolist() == [True] * length * kept
        assert not found.in_policy_branch[i].any()
    found, *_ = targets_of("advantage_mix", 4)
    assert all(found.in_policy_branch[i].all() and not found.in_distillation_branch[i].any() for i in range(16))


def test_advantage_mix_by_hand():
    found, _, student, teacher = targets_of("advantage_mix", 4)
    for i, group_advantage in ((0, -0.5), (8, -0.25), (12, 0.0)):
        gap = teacher.log_probs[i] - student.log_probs[i]
        torch.testing.assert_close(found.advantages[i], 0.9 * group_advantage + 0.1 * gap)
    assert found.advantages[10].tolist() == pytest.approx([0.9 * 0.75] * LENGTHS[10])  # the only success
    assert found.advantages[4].tolist() == [0.0] * LENGTHS[4]  # nobody succeeded


def test_metrics_of_a_batch_by_hand():
    rollouts = rollouts_of(REWARDS, 4, LENGTHS)
    routes = route(rollouts.rewards, rollouts.question, load_method("srpo").routing)
    assert rollout_metrics(rollouts, routes) == pytest.approx(
        {
            "reward/mean": 7 / 16,
            "response_length/mean": 2.5,
            "response_length/truncated_fraction": 0.25,
            "routing/grpo_fraction": 11 / 16,
            "routing/sdpo_fraction": 5 / 16,
            "routing/mix_fraction": 0,
            "routing/dropped_fraction": 0,
            "routing/correct_fraction": 7 / 16,
            "routing/teacher_available_fraction": 11 / 16,
            "routing/all_wrong_groups": 0.25,
            "routing/all_correct_groups": 0.25,
        }
    )


def test_metrics_of_student_and_teacher_are_means_over_tokens():
    found, _, student, teacher = targets_of("srpo", 2)
    metrics = target_metrics(load_method("srpo"), found, student, teacher)
    corrections = [w for row in found.rollout_is_weight for w in row.tolist()]
    assert metrics["actor/rollout_is_weight"] == pytest.approx(sum(corrections) / len(corrections))
    assert metrics["actor/rollout_is_truncated_fraction"] == pytest.approx(0.1)
    assert corrections.count(2.0) == len(corrections) / 10
    own = [mass for row in student.top_k_mass.values() for mass in row.tolist()]
    assert metrics["student/top_k_mass"] == pytest.approx(sum(own) / len(own))
    entropies = [h for row in teacher.entropy.values() for h in row.tolist()]
    assert metrics["teacher/entropy"] == pytest.approx(sum(entropies) / len(entropies))
    masses = [1 - math.exp(row[2]) for i in teacher.buckets for row in teacher.buckets[i].view(-1, 3).tolist()]
    assert metrics["teacher/top_k_mass"] == pytest.approx(sum(masses) / len(masses), abs=1e-6)
    assert metrics["weights/max"] == max(w for row in found.divergence_weight for w in row.tolist())
    found, _, student, teacher = targets_of("grpo", 2)
    assert target_metrics(load_method("grpo"), found, student, teacher).keys() == {
        "actor/rollout_is_weight",
        "actor/rollout_is_truncated_fraction",
    }


# ---------------------------------------------------------------- the logged group

QUESTIONS = [
    Question(
        index=70 + i,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"What is {i}?"}],
        ground_truth=f"It is {i}",
        reward="multiple_choice",
        data_source="made up",
    )
    for i in range(3)
]


def record_of(name: str, rewards: list[float]):
    rollouts = rollouts_of(rewards, 4, [1, 3, 2, 4] * 3)
    rollouts = dataclasses.replace(rollouts, texts=[f"text {i}" for i in range(12)])
    routes = route(rollouts.rewards, rollouts.question, load_method(name).routing)
    record = json.loads(json.dumps(group_record(15, QUESTIONS, rollouts, routes), allow_nan=False))
    return record, record.pop("rollouts")


def test_the_logged_group_is_the_first_with_right_and_wrong_rollouts_by_hand():
    record, rollouts = record_of("srpo", [0, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0])
    assert record == {"step": 15, "question": 71, "prompt": "What is 1?", "ground_truth": "It is 1"}
    keys = ["reward", "truncated", "branch", "teacher", "advantage", "response_length", "response"]
    assert [tuple(rollout[key] for key in keys) for rollout in rollouts] == [
        (0.0, False, "sdpo", 1, -0.5, 1, "text 4"),
        (1.0, False, "grpo", None, 0.5, 3, "text 5"),
        (0.0, False, "sdpo", 1, -0.5, 2, "text 6"),
        (1.0, True, "grpo", None, 0.5, 4, "text 7"),
    ]
    assert [list(rollout) for rollout in rollouts] == [keys] * 4


@pytest.mark.parametrize(
    ("name", "branches", "teachers"),
    [
        # every rollout that the self-teacher scores is shown the first correct one of the others
        ("sdpo", ["sdpo"] * 4, [1, 3, 1, 1]),
        ("advantage_mix", ["mix"] * 4, [1, 3, 1, 1]),
        ("grpo", ["grpo"] * 4, [None] * 4),
        ("sdpo_failed_only", ["sdpo", "none", "sdpo", "none"], [1, None, 1, None]),
        ("sdpo_correct_only", ["none", "sdpo", "none", "sdpo"], [None, 3, None, 1]),
    ],
)
def test_the_logged_group_names_branch_and_sibling_shown(name, branches, teachers):
    _, rollouts = record_of(name, [0, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 0])
    assert [rollout["branch"] for rollout in rollouts] == branches
    assert [rollout["teacher"] for rollout in rollouts] == teachers


def test_without_a_mixed_group_the_first_is_logged():
    record, rollouts = record_of("srpo", [0] * 4 + [1] * 8)
    assert record["question"] == 70
    assert {(r["branch"], r["teacher"], r["advantage"]) for r in rollouts} == {("grpo", None, 0.0)}


def test_long_texts_keep_their_beginning_and_end():
    text = "".join(chr(ord("a") + i % 26) for i in range(5000))
    short = shortened(text, 1000)
    assert len(short) == 1000
    head, gap, tail = short.partition(" … (5000 characters in all) … ")
    assert gap
    assert text.startswith(head)
    assert text.endswith(tail)
    assert abs(len(head) - len(tail)) <= 1
    assert shortened(text, 5000) == text
    assert len(shortened(text, 40)) == 40


# ---------------------------------------------------------------- logs


def test_a_log_is_cut_back_to_a_step_and_goes_on(tmp_path):
    log = tmp_path / "steps.jsonl"
    for step in range(1, 6):
        append_event(log, {"step": step, "value": step / 3})
    with log.open("a") as file:
        file.write('{"step": 6, "val')  # killed here
    kept = checkpoints.rewind_log(log, 4)
    append_event(log, {"step": 5, "value": 9.0})
    assert [event["step"] for event in kept] == [1, 2, 3, 4]
    assert [(e["step"], e["value"]) for e in read_events(log)] == [
        (1, 1 / 3),
        (2, 2 / 3),
        (3, 1.0),
        (4, 4 / 3),
        (5, 9.0),
    ]


def test_a_last_line_without_its_newline_is_not_trusted(tmp_path):
    log = tmp_path / "steps.jsonl"
    log.write_text('{"step": 1}\n{"step": 2}')
    assert checkpoints.rewind_log(log, 2) == [{"step": 1}]
    assert log.read_text() == '{"step": 1}\n'


def test_rewinding_changes_no_byte_of_what_is_kept(tmp_path):
    log = tmp_path / "steps.jsonl"
    append_event(log, {"step": 1, "value": 0.1 + 0.2, "name": "Ωmega", "tiny": 5e-324})
    before = log.read_bytes()
    checkpoints.rewind_log(log, 1)
    assert log.read_bytes() == before


def test_without_a_log_there_is_an_empty_one(tmp_path):
    assert checkpoints.rewind_log(tmp_path / "steps.jsonl", 3) == []
    assert list(read_events(tmp_path / "steps.jsonl")) == []


# ---------------------------------------------------------------- checkpoints


def save(folder: Path, step: int) -> None:
    def write(path: Path) -> None:
        (path / "huggingface").mkdir()
        (path / "huggingface" / "model.safetensors").write_text(f"weights {step}")
        torch.save(torch.arange(3), path / "optimizer.pt")

    checkpoints.save(folder, step, {"step": step}, write)


def content(folder: Path) -> dict[str, list[str]]:
    return {p.name: sorted(f.name for f in p.iterdir()) for p in sorted((folder / "checkpoints").iterdir())}


WHOLE = ["huggingface", "optimizer.pt", "sizes.json", "state.json"]


def test_the_newest_checkpoint_is_by_number(tmp_path):
    assert checkpoints.newest(tmp_path) is None
    for step in (5, 10, 100, 15):
        save(tmp_path, step)
    assert checkpoints.newest(tmp_path) == (tmp_path / "checkpoints" / "step100", {"step": 100})


def test_a_checkpoint_whose_writing_fails_does_not_exist(tmp_path):
    save(tmp_path, 5)

    def fail(path: Path) -> None:
        (path / "optimizer.pt").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        checkpoints.save(tmp_path, 10, {"step": 10}, fail)
    assert checkpoints.newest(tmp_path)[1] == {"step": 5}
    save(tmp_path, 10)
    assert content(tmp_path) == {"step10": WHOLE, "step5": WHOLE}


def test_pruning_keeps_the_latest_two_whole_and_the_best_weights(tmp_path):
    for step in (5, 10, 15, 20):
        save(tmp_path, step)
    (tmp_path / "checkpoints/.step17.partial/huggingface").mkdir(parents=True)
    checkpoints.prune(tmp_path, {5, 20})
    assert content(tmp_path) == {"step15": WHOLE, "step20": WHOLE, "step5": ["huggingface"]}
    checkpoints.prune(tmp_path, {15}, whole=1)
    assert content(tmp_path) == {"step15": ["huggingface"], "step20": WHOLE}
    assert [state for _, state in checkpoints.resumable(tmp_path)] == [{"step": 20}]


def test_a_saved_step_may_be_saved_again(tmp_path):
    save(tmp_path, 5)
    checkpoints.save(tmp_path, 5, {"step": 5, "again": True}, lambda path: None)
    assert content(tmp_path) == {"step5": ["sizes.json", "state.json"]}


def test_a_full_disk_leaves_the_checkpoint_before_as_it_was(tmp_path):
    save(tmp_path, 5)
    before = content(tmp_path)

    def fill(path: Path) -> None:
        (path / "optimizer.pt").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SrpoError, match=r"step10: cannot be written, with .* GiB free .*No space left") as error:
        checkpoints.save(tmp_path, 10, {"step": 10}, fill)
    assert "\n" not in str(error.value)
    assert content(tmp_path) == before


def test_a_checkpoint_is_on_the_disk_before_its_name_and_before_another_is_deleted(tmp_path, monkeypatch):
    """A machine that crashes keeps what was flushed."""
    flushed, names = [], []
    monkeypatch.setattr(checkpoints, "flush_to_disk", lambda path: flushed.append(path.name))
    replace = os.replace
    monkeypatch.setattr(checkpoints.os, "replace", lambda *a: names.append((a[1].name, list(flushed))) or replace(*a))
    save(tmp_path, 5)
    before = dict(names)["step5"]
    assert {"optimizer.pt", "huggingface", "model.safetensors", ".step5.partial"} == set(before)
    assert before[-1] == ".step5.partial"
    assert flushed[len(before) :] == ["checkpoints"]


def test_a_truncated_checkpoint_is_passed_over_and_said(tmp_path, caplog):
    for step in (5, 10):
        save(tmp_path, step)
    os.truncate(tmp_path / "checkpoints/step10/optimizer.pt", 3)
    loaded = []
    assert checkpoints.load_newest(tmp_path, loaded.append) == {"step": 5}
    assert loaded == [tmp_path / "checkpoints" / "step5"]
    assert "step10: damaged, trying the one before (optimizer.pt has 3 bytes, " in caplog.text
    assert content(tmp_path) == {"step5": WHOLE}


def test_what_fails_to_load_for_another_reason_is_no_damage(tmp_path):
    for step in (5, 10):
        save(tmp_path, step)

    def load(folder: Path) -> None:
        raise RuntimeError("CUDA error")

    with pytest.raises(RuntimeError, match="CUDA error"):
        checkpoints.load_newest(tmp_path, load)
    assert content(tmp_path) == {"step10": WHOLE, "step5": WHOLE}


@pytest.mark.parametrize("name", [checkpoints.STATE, checkpoints.SIZES])
def test_a_state_that_a_crash_left_empty_is_damage(name, tmp_path):
    for step in (5, 10):
        save(tmp_path, step)
    (tmp_path / "checkpoints/step10" / name).write_text("")
    assert checkpoints.load_newest(tmp_path, lambda folder: None) == {"step": 5}


def test_a_run_never_starts_over_because_its_checkpoints_are_damaged(tmp_path):
    for step in (5, 10):
        save(tmp_path, step)
        (tmp_path / f"checkpoints/step{step}/huggingface/model.safetensors").unlink()
    with pytest.raises(SrpoError, match=r"checkpoints: every checkpoint is damaged; delete this folder to start over"):
        checkpoints.load_newest(tmp_path, lambda folder: None)
    assert sorted(content(tmp_path)) == ["step10", "step5"]


# ---------------------------------------------------------------- one folder, one origin


def origin(
    commit="a",
    packages="2.13",
    base_model="x",
    data="d",
    title="T",
    budgets=(10, 20),
    max_steps=4,
    micro_batch_size=64,
    ranks=8,
    rollout_memory_fraction=0.6,
) -> dict:
    return {
        "spec": {
            "method": {"title": title},
            "training": {
                "budgets": {f"{seconds}s": seconds for seconds in budgets},
                "max_steps": max_steps,
                "micro_batch_size": micro_batch_size,
            },
            "execution": {"ranks": ranks, "rollout_memory_fraction": rollout_memory_fraction},
        },
        "provenance": {
            "commit": commit,
            "packages": {"torch": packages},
            "base_model": base_model,
            "data": {"train": data},
        },
    }


def trained(folder: Path, step: int, clock: float) -> None:
    """A folder with the logs and the checkpoint of a run of ``origin()``."""
    claim_folder(folder, origin())
    save(folder, step)
    for log in LOGS:
        append_event(folder / log, {"step": step, "clock": clock})
    if clock >= 20:
        (folder / FINISHED).touch()


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"commit": "b"},
        {"title": "Another"},
        {"rollout_memory_fraction": 0.5},
        {"micro_batch_size": 8},
        {"max_steps": 5},
        {"max_steps": None},
        {"budgets": (10, 20, 40)},
    ],
    ids=repr,
)
@pytest.mark.parametrize("clock", [5.0, 20.0], ids=["unfinished", "finished"])
def test_what_leaves_the_result_alone_or_prolongs_it_lets_a_run_go_on(change, clock, tmp_path):
    trained(tmp_path, 3, clock)
    before = content(tmp_path), (tmp_path / "steps.jsonl").read_bytes()
    claim_folder(tmp_path, origin(**change))
    assert (content(tmp_path), (tmp_path / "steps.jsonl").read_bytes()) == before
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin(**change)
    prolonged = "max_steps" in change or "budgets" in change
    assert (tmp_path / FINISHED).exists() is (clock == 20.0 and not prolonged)


def test_a_finished_run_is_not_trained_anew_for_other_packages(tmp_path):
    trained(tmp_path, 3, 20.0)
    before = content(tmp_path)
    claim_folder(tmp_path, origin(packages="2.14"))
    assert content(tmp_path) == before
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin()


def test_a_prolonged_run_is_an_unfinished_one_again(tmp_path):
    trained(tmp_path, 3, 20.0)
    claim_folder(tmp_path, origin(budgets=(10, 20, 40)))
    with pytest.raises(SrpoError, match="3 steps were trained with other settings"):
        claim_folder(tmp_path, origin(budgets=(10, 20, 40), ranks=4))


def test_steps_without_an_origin_are_not_continued(tmp_path):
    trained(tmp_path, 3, 5.0)
    (tmp_path / "run.yaml").unlink()
    with pytest.raises(SrpoError, match=r"3 steps.* but no run\.yaml"):
        claim_folder(tmp_path, origin())


CHANGES = [
    ({"ranks": 4}, "execution.ranks = 8, now 4"),
    ({"packages": "2.14"}, "packages.torch = 2.13, now 2.14"),
    ({"base_model": "y"}, "base_model = x, now y"),
    ({"data": "e"}, "data.train = d, now e"),
    ({"max_steps": 2}, "training.max_steps = 4, now 2"),
    ({"budgets": (10,)}, "training.budgets.20s = 20, now None"),
    ({"budgets": (10, 15, 20)}, "training.budgets.15s = None, now 15"),
    ({"budgets": (12, 20)}, "training.budgets.10s = 10, now None, training.budgets.12s = None, now 12"),
]


@pytest.mark.parametrize(("change", "named"), CHANGES, ids=[named for _, named in CHANGES])
def test_an_unfinished_run_of_another_origin_is_not_touched(change, named, tmp_path):
    trained(tmp_path, 3, 5.0)
    before = sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file())
    with pytest.raises(SrpoError) as error:
        claim_folder(tmp_path, origin(**change))
    assert f"3 steps were trained with other settings: {named}; restore them, or delete" in str(error.value)
    assert sorted((path, path.read_bytes()) for path in tmp_path.rglob("*") if path.is_file()) == before


SET_ASIDE = [(change, named) for change, named in CHANGES if "packages" not in change]


@pytest.mark.parametrize(("change", "named"), SET_ASIDE, ids=[named for _, named in SET_ASIDE])
def test_a_finished_run_of_another_origin_is_set_aside(change, named, tmp_path, caplog):
    for number in (1, 2):
        trained(tmp_path, 3, 20.0)
        claim_folder(tmp_path, origin(**change))
        assert f"changed: {named}" in caplog.text
        assert checkpoints.newest(tmp_path) is None
        assert not (tmp_path / "steps.jsonl").exists()
        old = tmp_path / "superseded" / str(number)
        assert sorted(path.name for path in old.iterdir()) == sorted([FINISHED, "run.yaml", *LOGS])
        assert yaml.safe_load((old / "run.yaml").read_text()) == origin()
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        (tmp_path / "run.yaml").unlink()


@pytest.mark.parametrize("killed_at", range(5))
def test_what_is_set_aside_survives_a_kill(killed_at, tmp_path, monkeypatch):
    trained(tmp_path, 3, 20.0)
    with monkeypatch.context() as patch:
        calls = itertools.count()

        def kill(function):
            def killed(*args, **kwargs):
                if next(calls) == killed_at:
                    raise KeyboardInterrupt
                return function(*args, **kwargs)

            return killed

        patch.setattr(provenance.shutil, "copy2", kill(shutil.copy2))
        patch.setattr(Path, "rename", kill(Path.rename))
        patch.setattr(provenance, "write_text", kill(provenance.write_text))
        with pytest.raises(KeyboardInterrupt):
            claim_folder(tmp_path, origin(base_model="y"))
    claim_folder(tmp_path, origin(base_model="y"))
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin(base_model="y")
    assert not [name for name in ("steps.jsonl", "validations.jsonl", FINISHED) if (tmp_path / name).exists()]
    aside = {path.name: path for path in sorted(tmp_path.glob("superseded/*/*"))}
    assert {"run.yaml", "steps.jsonl", "validations.jsonl"} <= aside.keys()
    assert yaml.safe_load(aside["run.yaml"].read_text()) == origin()


def test_a_folder_without_a_step_takes_any_origin(tmp_path):
    claim_folder(tmp_path, origin())
    claim_folder(tmp_path, origin(ranks=4))
    assert yaml.safe_load((tmp_path / "run.yaml").read_text()) == origin(ranks=4)
    assert not (tmp_path / "superseded").exists()
