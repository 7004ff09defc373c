"""How rows are arranged in memory and over ranks changes no number: prompts shared or not, by rows, tokens and rank."""

from __future__ import annotations

import types
from itertools import accumulate

import pytest
import torch
from one_step import before_update, build_run, draw_rollouts, numbers, relative_differences
from transformers import AttentionInterface, AutoModelForCausalLM

BUDGET = 120  # tokens; the rows have 24 to 35, those of the teacher 84 to 94


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
        rows = [tuple(row.tolist()) for row in micro_batch["input_ids"].unbind()]
        tokens = int(micro_batch["input_ids"].offsets()[-1])
        rollouts = len(micro_batch["response_lengths"].values())
        seen.append(types.SimpleNamespace(rows=rows, rollouts=rollouts, tokens=tokens, inputs=inputs))
        return inputs, arguments

    engine.prepare_model_inputs = recording
    return seen


# ---------------------------------------------------------------- one rank


LAYOUTS = {
    "packed": ({"remove_padding": True}, 5),
    "tokens": ({"max_tokens_per_rank": BUDGET}, 5),
    "packed-tokens": ({"remove_padding": True, "max_tokens_per_rank": BUDGET}, 5),
    "64-rows": ({}, 64),
    "packed-1-row": ({"remove_padding": True}, 1),
}


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        *(("srpo", layout) for layout in LAYOUTS),
        *((name, layout) for name in ("grpo", "sdpo", "advantage_mix") for layout in ("packed-tokens", "64-rows")),
    ],
)
def test_a_layout_changes_no_number(name, layout, start, expected):
    execution, rows = LAYOUTS[layout]
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
        assert step.rollouts == len(step.rows) or not alone
        assert step.rollouts <= rows or "max_tokens_per_rank" in execution
    if "max_tokens_per_rank" in execution:
        assert max(step.tokens for step in seen) <= BUDGET
        assert max(step.rollouts for step in seen) > 3


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
    seen = spy(run)
    before_update(run, draw_rollouts(run))
    assert len(seen) > 2
    for step in seen:
        inputs, rows = step.inputs, [*map(len, step.rows)]
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
