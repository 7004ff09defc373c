"""How rows are arranged in memory and over ranks changes no number: prompts shared or not, by rows, tokens and rank."""

from __future__ import annotations

import types
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from one_step import Reference, build_base, build_run, draw_rollouts, numbers, relative_differences, score
from tensordict import TensorDict
from transformers import AttentionInterface, AutoModelForCausalLM
from verl.utils import tensordict_utils as tu

from srpo.layout import Layout
from srpo.policy.batches import RowOrder, assign_ranks, jagged, order_rows

FOUR = ["grpo", "sdpo", "srpo", "advantage_mix"]
BUDGET = 120  # tokens; the rows have 24 to 35, those of the teacher 84 to 94


@pytest.fixture(scope="session")
def base(tmp_path_factory) -> Layout:
    return build_base(tmp_path_factory.mktemp("layouts"))


@pytest.fixture
def start(base, tmp_path):
    return lambda name, folder="run", **options: build_run(base, tmp_path / folder, name, 2, **options)


@pytest.fixture(scope="session")
def expected(base, tmp_path_factory):
    """Rollouts and, once for each method, their numbers in micro-batches of at most 5 that share prompts."""
    known = {}

    def expected(name: str):
        if name not in known:
            run = build_run(base, tmp_path_factory.mktemp(name), name, 2)
            rollouts = draw_rollouts(run)
            known[name] = rollouts, numbers(run, rollouts)
        return known[name]

    return expected


def spy(run) -> list[types.SimpleNamespace]:
    """Record what each forward pass of the engine is given."""
    engine, seen = run.policy.worker.actor.engine, []
    prepare = engine.prepare_model_inputs

    def recording(micro_batch):
        inputs, arguments = prepare(micro_batch)
        responses = [tuple(row.tolist()) for row in micro_batch["responses"].unbind()]
        tokens = int(micro_batch["input_ids"].offsets()[-1])
        rollouts = len(micro_batch["response_lengths"].values())
        seen.append(types.SimpleNamespace(responses=responses, rollouts=rollouts, tokens=tokens, inputs=inputs))
        return inputs, arguments

    engine.prepare_model_inputs = recording
    return seen


# ---------------------------------------------------------------- one rank


@pytest.mark.parametrize(
    ("execution", "rows"),
    [
        ({"remove_padding": True}, 5),
        ({"max_tokens_per_rank": BUDGET}, 5),
        ({"remove_padding": True, "max_tokens_per_rank": BUDGET}, 5),
        ({}, 64),
        ({"remove_padding": True}, 1),
    ],
    ids=["packed", "tokens", "packed-tokens", "64-rows", "packed-1-row"],
)
@pytest.mark.parametrize("name", FOUR)
def test_a_layout_changes_no_number(name, execution, rows, start, expected):
    rollouts, wanted = expected(name)
    run = start(name, execution=execution, micro_batch_size=rows)
    seen = spy(run)
    found = numbers(run, rollouts)
    for kind, difference in relative_differences(found, wanted).items():
        assert difference < 1e-5, kind
    for step in seen:  # the layout under test was really in force
        assert step.inputs["input_ids"].shape == (1, step.tokens)
        assert step.inputs["attention_mask"] is None
        alone = execution.get("remove_padding", False)
        assert ("packed_rows" in step.inputs) is not alone
        assert step.rollouts == len(step.responses) or not alone
        assert step.rollouts <= rows or "max_tokens_per_rank" in execution
    if "max_tokens_per_rank" in execution:
        assert max(step.tokens for step in seen) <= BUDGET
        assert max(step.rollouts for step in seen) > 3


def test_by_tokens_rows_change_places_and_come_back(start, expected):
    rollouts, _ = expected("srpo")
    run = start("srpo", execution={"max_tokens_per_rank": BUDGET})
    order = []
    send = run.policy.compute_log_prob

    def sending(batch):
        order.extend(tuple(row.tolist()) for row in batch["responses"].unbind())
        return send(batch)

    run.policy.compute_log_prob = sending
    seen = spy(run)
    scored = score(run, rollouts)
    computed = [response for step in seen for response in step.responses][: len(order)]
    assert sorted(computed) == sorted(order)
    assert computed != order
    samples = Reference(run).samples(rollouts)
    for i, sample in enumerate(samples):
        tokens = torch.tensor(sample.tokens)[:, None]
        torch.testing.assert_close(
            scored.student.log_probs[i].double(), sample.old.gather(1, tokens)[:, 0], rtol=0, atol=1e-5
        )


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("setting", ["gradient_checkpointing", "offload_teacher"])
def test_settings_that_save_memory_change_no_number(setting, packed, start, expected):
    rollouts, wanted = expected("srpo")
    run = start("srpo", execution={setting: True, "remove_padding": packed})
    engine, passes = run.policy.worker.actor.engine, []
    engine.module.model.layers[0].self_attn.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    for kind, difference in relative_differences(numbers(run, rollouts), wanted).items():
        assert difference < 1e-5, kind
    # 2 mini-batches of 8 rows in 2 micro-batches each, the first one's 6 and 2 of each branch once more in 2 and 1;
    # recomputed in backward where asked for
    assert sum(passes) == (14 if setting == "gradient_checkpointing" else 7)


# ---------------------------------------------------------------- transformers


def test_flash_attention_is_told_once_where_sequences_begin(start):
    """What each of its layers would derive from the positions (transformers' own function): lengths of the rows."""
    run = start("srpo", execution={"remove_padding": True, "max_tokens_per_rank": BUDGET})
    engine = run.policy.worker.actor.engine
    engine.model_config.override_config["attn_implementation"] = "flash_attention_2"  # the module's stays sdpa
    seen, lengths = [], []
    prepare = engine.prepare_model_inputs

    def recording(micro_batch):
        inputs, arguments = prepare(micro_batch)
        lengths.append(micro_batch["input_ids"].offsets().diff().tolist())
        seen.append(inputs)
        return inputs, arguments

    engine.prepare_model_inputs = recording
    score(run, draw_rollouts(run))
    assert len(seen) > 2
    for inputs, rows in zip(seen, lengths, strict=True):
        ends = [0, *accumulate(rows)]
        assert (inputs["cu_seq_lens_q"].tolist(), inputs["cu_seq_lens_k"].tolist()) == (ends, ends)
        assert inputs["cu_seq_lens_q"].dtype == torch.int32
        assert (inputs["max_length_q"], inputs["max_length_k"]) == (max(rows), max(rows))
        assert type(inputs["max_length_q"]) is int  # a tensor would be read by each layer


def test_what_is_said_of_sequences_reaches_every_layer(base):
    """With activation checkpointing, as at the paper's scale: forward, and again in the backward pass."""
    given = []

    def attention(module, query, key, value, mask, **kwargs):
        given.append((module.layer_idx, kwargs["cu_seq_lens_q"].tolist(), kwargs["max_length_k"]))
        return query.transpose(1, 2), None

    AttentionInterface.register("recorded", attention)
    path = base.model("miniature-tiny")
    model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="recorded").train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    ends = torch.tensor([0, 4, 7], dtype=torch.int32)
    bounds = {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": 4, "max_length_k": 4}
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2]])
    model(input_ids=positions + 3, position_ids=positions, use_cache=False, **bounds).logits.sum().backward()
    layers = range(model.config.num_hidden_layers)
    assert given == [(layer, [0, 4, 7], 4) for layer in (*layers, *reversed(layers))]


def test_transformers_keeps_packed_sequences_apart(base):
    """Positions that start again are all that tells the sequences apart: no mask is given."""
    path = base.model("miniature-tiny")
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64, attn_implementation="sdpa")
    generator = torch.Generator().manual_seed(0)
    lengths = [7, 1, 1, 12, 2, 30]
    rows = [torch.randint(3, model.config.vocab_size, (length,), generator=generator) for length in lengths]

    def packed(rows, positions):
        embedded = model.get_input_embeddings()(torch.cat(rows)[None]).detach().requires_grad_()
        logits = model(
            inputs_embeds=embedded, position_ids=positions[None], attention_mask=None, use_cache=False
        ).logits
        return logits[0].split(lengths), embedded

    restarting = torch.cat([torch.arange(length) for length in lengths])
    found, embedded = packed(rows, restarting)
    alone = [model(input_ids=row[None], use_cache=False).logits[0] for row in rows]
    for one, other in zip(found, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    for i, logits in enumerate(found):
        (gradient,) = torch.autograd.grad(logits.square().sum(), embedded, retain_graph=True)
        touched = [part.abs().max().item() > 0 for part in gradient[0].split(lengths)]
        assert touched == [j == i for j in range(len(rows))]
    running_on, _ = packed(rows, torch.arange(sum(lengths)))
    assert (running_on[3] - alone[3]).abs().max() > 1e-3


# ---------------------------------------------------------------- rows over ranks


@st.composite
def steps(draw):
    """Mini-batches of rows that need not be as long as each other, and each row's tokens."""
    total = draw(st.integers(1, 60))
    lengths = draw(st.lists(st.integers(2, 10_000), min_size=total, max_size=total))
    order = draw(st.permutations(range(total)))
    kept = order[: draw(st.integers(1, total))]  # rows that no branch takes are in no mini-batch
    cuts = sorted(draw(st.sets(st.integers(1, len(kept)), max_size=3)) | {len(kept)})
    return [kept[a:b] for a, b in zip([0, *cuts], cuts, strict=False)], lengths


def layout_of(mini_batches, lengths, micro_batch_size, ranks=1, max_tokens=None, scored=()) -> RowOrder:
    """Rows given to ranks, then put in order."""
    rank_of = assign_ranks(mini_batches, lengths, ranks, scored)
    shares = [[[row for row in rows if rank_of[row] == rank] for rank in range(ranks)] for rows in mini_batches]
    return order_rows(shares, lengths, micro_batch_size, max_tokens)


layouts = st.tuples(steps(), st.integers(1, 20), st.integers(1, 8), st.one_of(st.none(), st.integers(10_000, 50_000)))


def by_rank(layout: RowOrder, ranks: int) -> list[list[list[int | None]]]:
    """Rows of each rank's share of each mini-batch, cut by verl's own functions; a row is known by its token."""
    tokens = [torch.tensor([-1 if row is None else row]) for row in layout.rows]
    batch = TensorDict({"responses": jagged(tokens)}, batch_size=len(tokens))
    share = layout.mini_batch_size // ranks
    result = []
    for chunk in tu.chunk_tensordict(batch, ranks):
        mini_batches = tu.make_iterator(chunk, share, epochs=1, seed=0, dataloader_kwargs={"shuffle": False})
        found = [[int(row) for row in mini_batch["responses"].unbind()] for mini_batch in mini_batches]
        result.append([[None if row == -1 else row for row in rows] for rows in found])
    return result


@given(layouts)
def test_every_mini_batch_is_shared_out_once_and_equally(case):
    (mini_batches, lengths), micro_batch_size, ranks, max_tokens = case
    layout = layout_of(mini_batches, lengths, micro_batch_size, ranks, max_tokens)
    assert len(layout.rows) == len(mini_batches) * layout.mini_batch_size
    share = layout.mini_batch_size // ranks
    assert share * ranks == layout.mini_batch_size
    assert share % layout.micro_batch_size == 0
    cut = by_rank(layout, ranks)
    for i, rows in enumerate(mini_batches):
        shares = [rank[i] for rank in cut]
        assert {len(part) for part in shares} == {share}
        together = [row for part in shares for row in part]
        assert sorted(row for row in together if row is not None) == sorted(rows)
        assert together.count(None) == layout.mini_batch_size - len(rows)


@given(layouts)
def test_fillers_are_only_what_the_longest_mini_batch_needs(case):
    (mini_batches, lengths), micro_batch_size, ranks, max_tokens = case
    layout = layout_of(mini_batches, lengths, micro_batch_size, ranks, max_tokens)
    longest = max(map(len, mini_batches))
    if max_tokens is None:
        # verl wants micro-batches of equally many rows on every rank: as few as the limit allows, as small as they go
        assert layout.micro_batch_size <= micro_batch_size
        count = layout.mini_batch_size // ranks // layout.micro_batch_size
        assert count == -(-longest // (ranks * micro_batch_size))
        assert layout.mini_batch_size - longest < ranks * count
    else:
        assert layout.mini_batch_size - longest < ranks
    assert layout.max_tokens == max_tokens


@given(layouts)
def test_the_ranks_of_a_mini_batch_have_nearly_equal_tokens(case):
    (mini_batches, lengths), micro_batch_size, ranks, max_tokens = case
    layout = layout_of(mini_batches, lengths, micro_batch_size, ranks, max_tokens)
    cut = by_rank(layout, ranks)
    for i in range(len(mini_batches)):
        sizes = [[1 if row is None else lengths[row] for row in rank[i]] for rank in cut]
        # one round of rows over the ranks differs by less than its longest and shortest; rounds offset each other
        together = sorted(size for share in sizes for size in share)
        spread = max(b - a for a, b in zip(together[::ranks], together[ranks - 1 :: ranks], strict=True))
        assert max(map(sum, sizes)) - min(map(sum, sizes)) <= spread
        assert all(share == sorted(share) for share in sizes)


@given(layouts, st.randoms(use_true_random=False))
def test_the_ranks_share_what_the_teacher_scores_equally_too(case, random):
    (mini_batches, lengths), _, ranks, _ = case
    scored = {row for rows in mini_batches for row in rows if random.random() < 0.5}
    rank_of = assign_ranks(mini_batches, lengths, ranks, scored)
    assert sorted(rank_of) == sorted(row for rows in mini_batches for row in rows)
    for rows in mini_batches:
        for chosen in (scored.intersection(rows), set(rows) - scored):
            sizes = [[lengths[row] for row in chosen if rank_of[row] == rank] for rank in range(ranks)]
            assert max(map(len, sizes)) - min(map(len, sizes)) <= 1
            together = sorted([1] * (-len(chosen) % ranks) + [size for share in sizes for size in share])
            rounds = zip(together[::ranks], together[ranks - 1 :: ranks], strict=True)
            spread = max((longest - shortest for shortest, longest in rounds), default=0)
            assert max(map(sum, sizes)) - min(map(sum, sizes)) <= spread + 1


@given(layouts)
def test_one_rank_has_its_rows_by_length(case):
    (mini_batches, lengths), micro_batch_size, _, max_tokens = case
    layout = layout_of(mini_batches, lengths, micro_batch_size, max_tokens=max_tokens)
    (rank,) = by_rank(layout, 1)
    for rows, laid in zip(mini_batches, rank, strict=True):
        fillers = layout.mini_batch_size - len(rows)
        assert laid == [None] * fillers + sorted(rows, key=lambda row: lengths[row])
