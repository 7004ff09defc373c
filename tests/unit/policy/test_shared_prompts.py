"""Responses that share a prompt see what each would see alone, in values and gradients."""

import copy

import pytest
import torch
import torch.nn.functional as F
from random_qwen3 import random_qwen3
from torch import Tensor
from transformers import Qwen3ForCausalLM

from srpo.experiment.compose import load_experiment
from srpo.ground.repository import CONFIGS
from srpo.policy import shared_prompts
from srpo.policy.shared_prompts import SHARED_PROMPTS, PackedRows, shared_prompt_attention

ROWS = [(5, [3, 1, 7]), (1, [2]), (9, [1, 1])]
"""Tokens of each prompt and of its responses."""


@pytest.fixture(params=[1, 4], ids=["one-group", "groups"], autouse=True)
def number_of_groups(request, monkeypatch) -> int:
    """Each test with one group of responses, and with several."""
    if request.param > 1:
        monkeypatch.setattr(shared_prompts, "WORTH_A_GROUP", 10)
    return request.param


def models() -> tuple[Qwen3ForCausalLM, Qwen3ForCausalLM]:
    """The same weights with the attention of packed rows and with transformers' own, in float64."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "head_dim": 8, "intermediate_size": 24}
    plain = random_qwen3(50, 0.3, **sizes).double()
    packed = Qwen3ForCausalLM._from_config(copy.deepcopy(plain.config), attn_implementation=SHARED_PROMPTS).double()
    packed.load_state_dict(plain.state_dict())
    return packed, plain


def packed_rows() -> PackedRows:
    return PackedRows.of(
        torch.tensor([prompt for prompt, _ in ROWS]),
        torch.tensor([len(own) for _, own in ROWS]),
        torch.tensor([n for _, own in ROWS for n in own]),
    )


def draw() -> list[tuple[Tensor, list[Tensor]]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randint(50, (prompt,), generator=generator), [torch.randint(50, (n,), generator=generator) for n in own])
        for prompt, own in ROWS
    ]


def test_values_are_those_of_each_response_alone(number_of_groups):
    packed, plain = models()
    rows = draw()
    layout = packed_rows()
    assert len(layout.responses) == number_of_groups
    ids = torch.cat([part for prompt, own in rows for part in (prompt, *own)])
    found = packed(
        input_ids=ids[None],
        position_ids=layout.positions[None],
        attention_mask=None,
        packed_rows=layout,
        logits_to_keep=layout.predicting,
        use_cache=False,
    ).logits[0]
    alone = []
    for prompt, own in rows:
        for response in own:
            logits = plain(input_ids=torch.cat([prompt, response])[None], use_cache=False).logits[0]
            alone.append(logits[len(prompt) - 1 : -1])
    expected = torch.cat(alone)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_gradients_add_up_over_the_responses_of_a_prompt():
    """transformers' norms are in float32, so attention alone shows it in float64."""
    generator = torch.Generator().manual_seed(2)
    layout = packed_rows()
    total = len(layout.positions)
    query, key, value = (
        torch.randn(1, heads, total, 8, dtype=torch.float64, generator=generator).requires_grad_()
        for heads in (4, 2, 2)
    )
    found = shared_prompt_attention(None, query, key, value, None, scaling=0.3, packed_rows=layout)[0]
    expected = torch.zeros_like(found)
    start = 0
    for prompt, own in ROWS:
        segments, first = [], start + prompt
        for length in own:
            segments.append([*range(start, start + prompt), *range(first, first + length)])
            first += length
        for places in segments:
            parts = query[:, :, places], *(part[:, :, places].repeat_interleave(2, 1) for part in (key, value))
            alone = F.scaled_dot_product_attention(*parts, is_causal=True, scale=0.3).transpose(1, 2)
            own_places = torch.zeros(total, dtype=torch.bool)
            own_places[places[prompt:] if places is not segments[0] else places] = True
            chosen = alone[:, prompt:] if places is not segments[0] else alone
            expected = expected.masked_scatter(own_places[None, :, None, None], chosen)
        start = first
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    upstream = torch.randn(found.shape, dtype=torch.float64, generator=generator)
    inputs = (query, key, value)
    for one, other in zip(
        torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(expected, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_bfloat16_on_a_cpu_is_the_float64_attention_of_the_same_numbers():
    """By matrix products; their results and the gradients are within a few roundings of bfloat16, 2**-8."""
    generator = torch.Generator().manual_seed(3)
    layout = packed_rows()
    shapes = [(1, heads, len(layout.positions), 16) for heads in (6, 2, 2)]
    short = [torch.randn(shape, generator=generator).bfloat16().requires_grad_() for shape in shapes]
    long = [part.detach().double().requires_grad_() for part in short]
    found, expected = (
        shared_prompt_attention(None, *parts, None, scaling=0.25, packed_rows=layout)[0] for parts in (short, long)
    )
    upstream = torch.randn(found.shape, generator=generator).bfloat16()
    gradients = (torch.autograd.grad(of, parts, upstream.to(of)) for of, parts in ((found, short), (expected, long)))
    for one, other in zip((found, *next(gradients)), (expected, *next(gradients)), strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one.double(), other, rtol=0, atol=0.03 * other.abs().max().item())


def test_positions_go_on_after_the_prompt():
    layout = PackedRows.of(torch.tensor([2]), torch.tensor([2]), torch.tensor([3, 1]))
    assert layout.positions.tolist() == [0, 1, 2, 3, 4, 2]
    assert layout.predicting.tolist() == [1, 2, 3, 1]


def test_a_long_response_does_not_pad_the_others(monkeypatch):
    """One of 16 responses has 2,000 tokens; the others have about as many as in published runs."""
    monkeypatch.undo()
    lengths = [300] * 7 + [2000] + [250 + 20 * i for i in range(8)]
    layout = PackedRows.of(torch.tensor([300, 270]), torch.tensor([8, 8]), torch.tensor(lengths))
    assert [list(group.tokens.shape) for group in layout.responses] == [[15, 390], [1, 2000]]
    assert [list(group.prompt_tokens.shape) for group in layout.responses] == [[2, 300], [1, 300]]
    assert layout.places.sort().values.unique().numel() == sum(lengths) + 570


@pytest.mark.parametrize("name", ["embedded", "real-cpu"])
def test_models_on_cpus_have_one_group(name, monkeypatch):
    """No saving is as large as the threshold, whatever the lengths: groups have not changed their numbers."""
    monkeypatch.undo()
    training = load_experiment(CONFIGS / "experiments" / f"{name}.yaml").training
    longest, prompt = training.max_response_length, training.max_prompt_length
    assert training.micro_batch_size * longest * (prompt + longest) < shared_prompts.WORTH_A_GROUP
    assert training.questions_per_batch * prompt**2 < shared_prompts.WORTH_A_GROUP
