"""How rows are arranged in memory changes no number: prompts shared or not, by rows and by tokens."""

import types

import pytest
import torch
from one_step import build_run, draw_rollouts, numbers, relative_differences

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


LAYOUTS = {
    "tokens": ({"max_tokens_per_rank": BUDGET}, 5),
    "64-rows": ({}, 64),
    "1-row": ({}, 1),
}


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        *(("srpo", layout) for layout in LAYOUTS),
        *((name, layout) for name in ("grpo", "sdpo", "advantage_mix") for layout in ("tokens", "64-rows")),
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
        assert "packed_rows" in step.inputs
        assert step.rollouts <= rows or "max_tokens_per_rank" in execution
    if "max_tokens_per_rank" in execution:
        assert max(step.tokens for step in seen) <= BUDGET
        assert max(step.rollouts for step in seen) > 3


@pytest.mark.parametrize("setting", ["gradient_checkpointing", "offload_teacher"])
def test_settings_that_save_memory_change_no_number(setting, start, expected):
    rollouts, wanted = expected("srpo")
    run = start("srpo", execution={setting: True})
    engine, passes = run.policy.worker.actor.engine, []
    engine.module.model.layers[0].self_attn.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    for kind, difference in relative_differences(numbers(run, rollouts), wanted).items():
        assert difference < 1e-5, kind
    # 2 mini-batches of 8 rows in 2 micro-batches each; recomputed in backward where asked for
    assert sum(passes) == (8 if setting == "gradient_checkpointing" else 4)
