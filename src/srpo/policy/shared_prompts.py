"""Attention over responses that share a prompt: the model computes the prompt once.

A row of a batch is a prompt and one or more responses to it, one after the other and without padding. Layers
that work on single tokens (embeddings, projections, norms, the head) process the packed sequence. Only attention
separates the sequences: a prompt attends to itself, a response to its prompt and itself. Each response has the same
context as alone, and the gradients of a prompt's keys and values are summed over its responses. So the result is exact.

Registered with transformers as the attention implementation :data:`SHARED_PROMPTS`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

SHARED_PROMPTS = "srpo_shared_prompts"


@dataclass(frozen=True)
class PackedRows:
    """The positions of prompts and responses in packed rows.

    Attributes:
        prompt_tokens: [prompts, longest] index of each prompt token in the packed sequence; padding repeats the first.
        response_tokens: [responses, longest] of each response token, likewise.
        prompt_of: [responses] the response's prompt.
        visible: [responses, 1, longest response, longest prompt + longest response] bool, what a response attends to.
        places: [tokens] index of each packed token in the padded prompts followed by the padded responses.
        positions: [tokens] position of each token in its sequence.
        predicting: [response tokens] index of the token that predicts each response token.
    """

    prompt_tokens: Tensor
    response_tokens: Tensor
    prompt_of: Tensor
    visible: Tensor
    places: Tensor
    positions: Tensor
    predicting: Tensor

    @classmethod
    def of(cls, prompt_lengths: Tensor, responses_of: Tensor, response_lengths: Tensor) -> "PackedRows":
        """Compute the positions of rows.

        Args:
            prompt_lengths: [prompts] tokens of each row's prompt.
            responses_of: [prompts] how many responses follow it.
            response_lengths: [responses] tokens of each response, row after row.
        """
        device = prompt_lengths.device
        prompt_of = torch.repeat_interleave(torch.arange(len(prompt_lengths), device=device), responses_of)
        # segments in packed order: a prompt, then its responses
        is_response = torch.ones(len(prompt_lengths) + len(response_lengths), dtype=torch.bool, device=device)
        is_response[torch.arange(len(prompt_lengths), device=device) + responses_of.cumsum(0) - responses_of] = False
        lengths = torch.empty(len(is_response), dtype=torch.int64, device=device)
        lengths[~is_response], lengths[is_response] = prompt_lengths, response_lengths
        starts = lengths.cumsum(0) - lengths
        prompts = _padded(starts[~is_response], prompt_lengths)
        responses = _padded(starts[is_response], response_lengths)
        columns = torch.arange(responses.shape[1], device=device)
        own = (columns[:, None] >= columns).expand(len(response_lengths), -1, -1)
        prompt_columns = torch.arange(prompts.shape[1], device=device) < prompt_lengths[prompt_of][:, None]
        visible = torch.cat([prompt_columns[:, None].expand(-1, responses.shape[1], -1), own], 2)[:, None]

        total = int(lengths.sum())
        places = torch.empty(total, dtype=torch.int64, device=device)
        prompt_valid = torch.arange(prompts.shape[1], device=device) < prompt_lengths[:, None]
        response_valid = columns < response_lengths[:, None]
        places[prompts[prompt_valid]] = prompt_valid.flatten().nonzero().flatten()
        places[responses[response_valid]] = prompts.numel() + response_valid.flatten().nonzero().flatten()
        segment = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
        positions = torch.arange(total, device=device) - starts[segment]
        offsets = torch.zeros_like(lengths)
        offsets[is_response] = prompt_lengths[prompt_of]
        positions += offsets[segment]
        last = starts[~is_response] + prompt_lengths - 1
        predicting = torch.cat([last[prompt_of][:, None], responses[:, :-1]], 1)[response_valid]
        return cls(prompts, responses, prompt_of, visible, places, positions, predicting)


def _padded(starts: Tensor, lengths: Tensor) -> Tensor:
    """[segments, longest] places of each segment's tokens."""
    columns = torch.arange(int(lengths.max()), device=starts.device)
    return starts[:, None] + torch.where(columns < lengths[:, None], columns, 0)


def shared_prompt_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: None,
    scaling: float | None = None,
    packed_rows: PackedRows | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """Attention of packed rows (transformers' interface).

    Args:
        query: [1, heads, tokens, head_dim].
        key, value: [1, key-value heads, tokens, head_dim].
        packed_rows: of these tokens.

    Returns:
        [1, tokens, heads, head_dim], and no weights.
    """
    assert packed_rows is not None  # an input of every forward that the engine makes with this attention
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    prompt, response, prompt_of = packed_rows.prompt_tokens, packed_rows.response_tokens, packed_rows.prompt_of
    groups = query.shape[1] // key.shape[1]
    prompt_key, prompt_value = _taken(key, prompt), _taken(value, prompt)
    of_prompts = F.scaled_dot_product_attention(
        _taken(query, prompt), prompt_key, prompt_value, is_causal=True, scale=scaling, enable_gqa=groups > 1
    )
    keys, values = (
        torch.cat([shared.index_select(0, prompt_of), _taken(own, response)], 2).repeat_interleave(groups, 1)
        for shared, own in ((prompt_key, key), (prompt_value, value))
    )
    of_responses = F.scaled_dot_product_attention(
        _taken(query, response), keys, values, attn_mask=packed_rows.visible, scale=scaling
    )
    padded = torch.cat([part.transpose(1, 2).flatten(0, 1) for part in (of_prompts, of_responses)])
    return padded.index_select(0, packed_rows.places)[None], None


def _taken(tokens: Tensor, places: Tensor) -> Tensor:
    """[tokens, heads, head_dim] at places [rows, columns], as [rows, heads, columns, head_dim]."""
    return tokens.index_select(0, places.flatten()).unflatten(0, places.shape).transpose(1, 2)


AttentionInterface.register(SHARED_PROMPTS, shared_prompt_attention)
AttentionMaskInterface.register(SHARED_PROMPTS, lambda *args, **kwargs: None)
