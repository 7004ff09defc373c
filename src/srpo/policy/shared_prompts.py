"""Attention over responses that share a prompt: the model computes the prompt once.

A row of a batch is a prompt and one or more responses to it, one after the other and without padding. Layers
that work on single tokens (embeddings, projections, norms, the head) process the packed sequence. Only attention
separates the sequences: a prompt attends to itself, a response to its prompt and itself. Each response has the same
context as alone, and the gradients of a prompt's keys and values are summed over its responses. So the result is exact.

Attention pads. verl mixes long and short rows in a micro-batch, to balance them, and the responses to one prompt differ
too. So attention divides the sequences of a micro-batch into groups of similar length where this saves enough.

Registered with transformers as the attention implementation :data:`SHARED_PROMPTS`.
"""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

SHARED_PROMPTS = "srpo_shared_prompts"


WORTH_A_GROUP = 2**21
"""Pairs of a query and a key that one more group must save.

Attention pads the sequences of a group to the longest. A group takes a dozen kernels more in each layer, and with 32
heads of 128 these pairs are 34 GFLOP: about 0.1 ms on a GPU, both of them (estimated, not measured). The models that
are trained on CPUs have so few tokens that there is one group, and their numbers do not depend on this constant.
"""

MASKED = -1e9
"""Added to the score of a pair that is not visible."""


@dataclass(frozen=True)
class Responses:
    """Responses that attention pads to one length.

    Attributes:
        tokens: [responses, longest] index of each token in the packed sequence; padding repeats the first.
        prompt_tokens: [prompts, longest] the same of their prompts.
        prompt_of: [responses] the response's prompt.
        visible: [responses, 1, longest response, longest prompt + longest response] bool, what a response attends to.
    """

    tokens: Tensor
    prompt_tokens: Tensor
    prompt_of: Tensor
    visible: Tensor

    @classmethod
    def of(cls, tokens: Tensor, prompt_of: Tensor, prompt_starts: Tensor, prompt_lengths: Tensor) -> "Responses":
        """A group of responses.

        Args:
            prompt_of: of each response, among all prompts.
            prompt_starts, prompt_lengths: of all prompts, in the packed sequence.
        """
        used, prompt_of = prompt_of.unique(return_inverse=True)
        prompts = _padded(prompt_starts[used], prompt_lengths[used])
        columns = torch.arange(tokens.shape[1], device=tokens.device)
        own = (columns[:, None] >= columns).expand(len(tokens), -1, -1)
        shown = torch.arange(prompts.shape[1], device=tokens.device) < prompt_lengths[used][prompt_of][:, None]
        visible = torch.cat([shown[:, None].expand(-1, tokens.shape[1], -1), own], 2)[:, None]
        return cls(tokens, prompts, prompt_of, visible)


@dataclass(frozen=True)
class PackedRows:
    """The positions of prompts and responses in packed rows.

    Attributes:
        prompts: groups of prompts of similar length, each [prompts, longest] like :attr:`Responses.tokens`.
        responses: groups of responses of similar length.
        places: [tokens] index of each packed token in the padded groups, of prompts first, then of responses.
        positions: [tokens] position of each token in its sequence.
        predicting: [response tokens] index of the token that predicts each response token.
    """

    prompts: tuple[Tensor, ...]
    responses: tuple[Responses, ...]
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
        prompt_starts, response_starts = starts[~is_response], starts[is_response]
        of_prompts, of_responses = prompt_lengths.tolist(), response_lengths.tolist()
        prompt_groups = _similar(of_prompts, [0] * len(of_prompts), device)
        response_groups = _similar(of_responses, prompt_lengths[prompt_of].tolist(), device)
        prompts = tuple(_padded(prompt_starts[own], prompt_lengths[own]) for own in prompt_groups)
        responses = tuple(
            Responses.of(
                _padded(response_starts[own], response_lengths[own]), prompt_of[own], prompt_starts, prompt_lengths
            )
            for own in response_groups
        )

        total = sum(of_prompts) + sum(of_responses)
        places = torch.empty(total, dtype=torch.int64, device=device)
        before = 0
        of_groups = [prompt_lengths[own] for own in prompt_groups] + [response_lengths[own] for own in response_groups]
        for tokens, own in zip([*prompts, *(group.tokens for group in responses)], of_groups, strict=True):
            valid = torch.arange(tokens.shape[1], device=device) < own[:, None]
            places[tokens[valid]] = before + valid.flatten().nonzero().flatten()
            before += tokens.numel()
        segment = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
        positions = torch.arange(total, device=device) - starts[segment]
        offsets = torch.zeros_like(lengths)
        offsets[is_response] = prompt_lengths[prompt_of]
        positions += offsets[segment]
        # the token before, but for the first token of a response the last one of its prompt
        predicting = torch.arange(-1, total - 1, device=device)
        predicting[response_starts] = (prompt_starts + prompt_lengths - 1)[prompt_of]
        return cls(prompts, responses, places, positions, predicting[is_response[segment]])


def _similar(lengths: list[int], more_keys: list[int], device: torch.device) -> list[Tensor | slice]:
    """Indices of sequences in groups of similar length; a slice of all if one group is best.

    Args:
        lengths: tokens of each sequence, which attend to one another and to ``more_keys`` others.
    """
    order = sorted(range(len(lengths)), key=lambda i: (lengths[i], more_keys[i], i))
    cuts = _cuts([lengths[i] for i in order], [more_keys[i] for i in order])
    if not cuts:
        return [slice(None)]
    return [torch.tensor(sorted(order[start:end]), device=device) for start, end in pairwise((0, *cuts, len(order)))]


def _cuts(lengths: list[int], more_keys: list[int]) -> list[int]:
    """Where to cut ascending lengths: the best place, then the best one of each part, while it is worth a group."""
    count = len(lengths)
    widest = [*accumulate(more_keys, max)], [*accumulate(reversed(more_keys), max)][::-1]
    whole = count * lengths[-1] * (lengths[-1] + widest[0][-1])
    sums = [
        cut * lengths[cut - 1] * (lengths[cut - 1] + widest[0][cut - 1])
        + (count - cut) * lengths[-1] * (lengths[-1] + widest[1][cut])
        for cut in range(1, count)
    ]
    if whole - min(sums, default=whole) < WORTH_A_GROUP:
        return []
    cut = 1 + min(range(count - 1), key=sums.__getitem__)
    return [
        *_cuts(lengths[:cut], more_keys[:cut]),
        cut,
        *(cut + later for later in _cuts(lengths[cut:], more_keys[cut:])),
    ]


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
    found = [
        _attend(_taken(query, prompts), _taken(key, prompts), _taken(value, prompts), None, scaling)
        for prompts in packed_rows.prompts
    ]
    for responses in packed_rows.responses:
        keys, values = (
            torch.cat(
                [
                    _taken(part, responses.prompt_tokens).index_select(0, responses.prompt_of),
                    _taken(part, responses.tokens),
                ],
                2,
            )
            for part in (key, value)
        )
        found.append(_attend(_taken(query, responses.tokens), keys, values, responses.visible, scaling))
    padded = torch.cat([part.transpose(1, 2).flatten(0, 1) for part in found])
    return padded.index_select(0, packed_rows.places)[None], None


def _attend(query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, scale: float | None) -> Tensor:
    """Attention of padded sequences.

    Args:
        query: [rows, heads, queries, head_dim].
        key, value: [rows, key-value heads, keys, head_dim].
        visible: [rows, 1, queries, keys] bool; None: what comes before a query, and itself.

    Returns:
        Like ``query``.
    """
    groups = query.shape[1] // key.shape[1]
    if query.device.type == "cpu" and query.dtype == torch.bfloat16:
        return _by_matrix_products(query, key, value, visible, scale)
    if visible is None:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale, enable_gqa=groups > 1)
    key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=visible, scale=scale)


def _by_matrix_products(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, scale: float | None
) -> Tensor:
    """Attention in bfloat16 on a CPU, where torch's own backward pass takes four times as long.

    The query heads that share a key head are rows of one matrix, so keys are not repeated.
    """
    rows, heads, queries, dim = query.shape
    shared = key.shape[1]
    if visible is None:
        visible = torch.ones(rows, 1, queries, queries, dtype=torch.bool).tril()
    bias = torch.zeros_like(visible, dtype=query.dtype).masked_fill_(~visible, MASKED)
    scores = torch.baddbmm(
        bias[:, :, None].expand(-1, shared, heads // shared, -1, -1).reshape(rows * shared, -1, key.shape[2]),
        query.reshape(rows * shared, -1, dim),
        key.flatten(0, 1).mT,
        alpha=dim**-0.5 if scale is None else scale,
    )
    return torch.bmm(scores.softmax(-1), value.flatten(0, 1)).view(query.shape)


def _taken(tokens: Tensor, places: Tensor) -> Tensor:
    """[tokens, heads, head_dim] at places [rows, columns], as [rows, heads, columns, head_dim]."""
    return tokens.index_select(0, places.flatten()).unflatten(0, places.shape).transpose(1, 2)


AttentionInterface.register(SHARED_PROMPTS, shared_prompt_attention)
AttentionMaskInterface.register(SHARED_PROMPTS, lambda *args, **kwargs: None)
