"""What a step says about itself, by hand-worked examples and against float64 gradients."""

from __future__ import annotations

import math
import random

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
    copied_tokens,
    is_repetitive,
    weight_metrics,
)
from srpo.experiment.config import WarmStart
from srpo.ground.files import read_events
from srpo.questions.families import FAMILIES
from srpo.questions.response_parts import response_parts, token_parts
from srpo.starts.corpus import FamiliesCorpus, corpus_texts
from srpo.starts.make_tokenizer import symbol_tokenizer
from srpo.training import loop

R, A, B, F = range(4)  # reasoning, answer's start and rest, format

# ---------------------------------------------------------------- parts of a response


@pytest.mark.parametrize(
    ("pieces", "parts"),
    [
        # a token a word
        (
            ["<reasoning>", "bronze", " 2", "</reasoning>", "<answer>", " iron", " 8", "</answer>", "<end>"],
            [F, R, R, F, F, A, B, F, F],
        ),
        # as Qwen's tokenizer cuts, a tag and a line break in one token
        (
            ["<", "reason", "ing", ">\n", "So", " B", "</", "reasoning", ">\n<", "answer", ">", "B", "</", "answer>"],
            [F, F, F, F, R, R, F, F, F, F, F, A, F, F],
        ),
        (["<answer>", " ", "\n", "B", "<end>"], [F, B, B, A, F]),  # the answer starts where something is said
        (["<answer>B", "</answer>", "<end>"], [A, F, F]),  # a token that holds a tag and the answer decides it
        (["<answer>", "A", "</answer>", "or", "<answer>", "B", "</answer>"], [F, R, F, R, F, A, F]),  # the last counts
        (["<answer>", "</answer>", "late"], [F, F, R]),
        (["<answer>", "<end>"], [F, F]),
        (
            ["Thought:", "hm", "\n", "Action", ":", " tell", " me", "\nAction", " Input", ":", '{"a":', "1}", "<end>"],
            [F, R, R, F, F, A, B, F, F, F, B, B, F],
        ),
        (["no", "answer"], [R, R]),
        ([], []),
    ],
)
def test_parts(pieces, parts):
    assert token_parts(pieces, [piece == "<end>" for piece in pieces]) == parts


def test_parts_of_tokenized_responses_make_up_their_text(start):
    tokenizer = start("grpo").tokenizer
    texts = ["<reasoning>Al 1* 2= 2</reasoning><answer> 5</answer>", "Thought:é\nAction: tell\nAction Input: {}", "x"]
    responses = {i: torch.tensor([*tokenizer.encode(text), tokenizer.eos_token_id]) for i, text in enumerate(texts)}
    found = response_parts(tokenizer, responses)
    assert found.keys() == responses.keys()
    assert all(len(found[i]) == len(responses[i]) for i in responses)
    assert all(found[i][-1] == F for i in responses)
    pick = lambda i, part: tokenizer.decode(responses[i][found[i] == part]).strip()  # noqa: E731
    assert pick(0, A) + pick(0, B) == "5"
    assert pick(0, R).replace(" ", "") == "Al1*2=2"
    assert pick(1, A)[0] == "t"
    assert response_parts(tokenizer, {}) == {}


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


# ---------------------------------------------------------------- weights and copying


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


def test_copying_by_hand():
    """Rollout 0 is right and shown to 1 to 4; every answer starts at position 1."""
    responses = [torch.tensor([9, answer, 0]) for answer in (5, 6, 7, 5, 8)]
    parts = {i: torch.tensor([R, A, F]) for i in range(5)} | {4: torch.tensor([R, R, F])}
    # 3 says 5 already and 4 has no answer: they do not count
    tokens = copied_tokens(responses, parts, dict.fromkeys(range(1, 5), 0))
    none = [-1, -1, -1]
    assert {row: t.tolist() for row, t in tokens.items()} == {1: [-1, 5, -1], 2: [-1, 5, -1], 3: none, 4: none}


def test_argmax_ids_are_the_most_likely_tokens(start):
    run = start("srpo", mini_batch_questions=2)
    rollouts = draw_rollouts(run)
    prepared = before_update(run, rollouts)
    samples = Reference(run).samples(rollouts)
    assert sorted(prepared.teacher.argmax_ids) == [0, 3, 8, 9, 11]
    for row, ids in prepared.teacher.argmax_ids.items():
        assert ids.tolist() == samples[row].teacher.argmax(1).tolist()


@pytest.fixture(scope="module")
def tokenizer():
    corpus = FamiliesCorpus(WarmStart(corpus="families", steps=1))
    return symbol_tokenizer(corpus_texts(corpus, random.Random(0), 2000), 450)


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_family_has_an_answer_to_copy(name, tokenizer):
    """The token that decides most is found in each response: the answer's first, or the tool's name."""
    family, rng = FAMILIES[name], random.Random(1)
    for _ in range(20):
        response = family.sample_response(family.draw_problem(rng, "train"), rng)
        ids = torch.tensor([*tokenizer.encode(response.text), tokenizer.eos_token_id])
        parts = response_parts(tokenizer, {0: ids})[0]
        (start,) = (parts == A).nonzero().flatten().tolist()
        answer = response.answer.removeprefix("Action:").strip()
        assert answer.startswith(tokenizer.decode(ids[start]).strip())
        assert tokenizer.decode(ids[:start]).rstrip().endswith(("<answer>", "Action:"))


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
