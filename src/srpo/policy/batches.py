"""Rows of a step as verl's jagged TensorDicts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

Entries = dict[str, tuple[Sequence[Tensor], Tensor]]
"""By name, 1-D tensors of the rows of a step and what a filler row has instead."""


@dataclass(frozen=True)
class RowLayout:
    """The order in which rows are handed to verl.

    verl cuts a batch into equal parts for the ranks, those into equal mini-batches and those into micro-batches,
    equal ones or by a budget of tokens. ``rows`` is grouped by rank, then by mini-batch, and sorted by length within,
    so that a micro-batch pads little; where the numbers do not divide, a ``filler`` row repeats a prompt with one
    response token that no mask counts.

    Attributes:
        rows: index of a row of the step, or None for a filler.
        mini_batch_size: in rows of all ranks.
        micro_batch_size: in rows of one rank.
        max_tokens: of a micro-batch; None for micro-batches of equally many rows.
    """

    rows: list[int | None]
    mini_batch_size: int
    micro_batch_size: int
    max_tokens: int | None = None

    def arrange(self, tensors: Sequence[Tensor], filler: Tensor) -> list[Tensor]:
        """Tensors of the rows in order, with ``filler`` in the gaps."""
        return [filler if row is None else tensors[row] for row in self.rows]


def lay_out(
    mini_batches: Sequence[Sequence[int]],
    lengths: Sequence[int],
    micro_batch_size: int,
    ranks: int = 1,
    max_tokens: int | None = None,
) -> RowLayout:
    """Lay out mini-batches of row indices, the ranks' shares of a mini-batch balanced in tokens.

    Args:
        mini_batches: row indices of each.
        lengths: tokens of each row, prompt plus response.
        micro_batch_size: rows of a micro-batch of one rank at most, where ``max_tokens`` is not given.
        ranks: data-parallel size.
        max_tokens: token budget of a micro-batch.
    """
    per_rank = -(-max(map(len, mini_batches)) // ranks)
    micro = per_rank
    if max_tokens is None:
        count = -(-per_rank // micro_batch_size)
        micro = -(-per_rank // count)
        per_rank = micro * count
    parts: list[list[int | None]] = [[] for _ in range(ranks)]
    for rows in mini_batches:
        padded = [*[None] * (per_rank * ranks - len(rows)), *sorted(rows, key=lambda row: lengths[row])]
        sizes = [1 if row is None else lengths[row] for row in padded]
        for part, chosen in zip(parts, _balanced(sizes, ranks), strict=True):
            part += [padded[i] for i in chosen]
    return RowLayout([row for part in parts for row in part], per_rank * ranks, micro, max_tokens)


def _balanced(sizes: list[int], parts: int) -> list[list[int]]:
    """Indices of ``parts`` equally long lists of nearly equal sum, ascending."""
    return [list(range(len(sizes)))] if parts == 1 else get_seqlen_balanced_partitions(sizes, parts, equal_size=True)


def jagged(tensors: Sequence[Tensor]) -> Tensor:
    """A jagged nested tensor of 1-D rows."""
    return torch.nested.as_nested_tensor(list(tensors), layout=torch.jagged)


def sequence_batch(
    layout: RowLayout,
    prompts: Sequence[Tensor],
    responses: Sequence[Tensor],
    mask: Sequence[Tensor],
    per_token: Entries,
    **options,
) -> TensorDict:
    """Assemble a batch for one of the engine's passes.

    Args:
        prompts, responses: int64 token ids of each row.
        mask: [response] bool of each row: the tokens that the loss counts.
        per_token: further entries of each row; a filler row has one response token.
        options: non-tensor entries, e.g. ``pass_name`` and ``temperature``.
    """
    template = min((row for row in layout.rows if row is not None), key=lambda row: len(prompts[row]))
    prompt_rows = layout.arrange(prompts, prompts[template])
    response_rows = layout.arrange(responses, responses[template][:1])
    sequences = [torch.cat(pair) for pair in zip(prompt_rows, response_rows, strict=True)]
    fields = {
        "prompts": prompt_rows,
        "responses": response_rows,
        "input_ids": sequences,
        "position_ids": [torch.arange(len(sequence)) for sequence in sequences],
        "loss_mask": layout.arrange(mask, torch.zeros(1, dtype=torch.bool)),
    }
    fields |= {name: layout.arrange(rows, filler) for name, (rows, filler) in per_token.items()}
    batch = TensorDict({name: jagged(rows) for name, rows in fields.items()}, batch_size=len(layout.rows))
    tu.assign_non_tensor(
        batch,
        use_dynamic_bsz=layout.max_tokens is not None,
        max_token_len_per_gpu=layout.max_tokens,
        micro_batch_size_per_gpu=layout.micro_batch_size,
        mini_batch_size=layout.mini_batch_size,
        global_batch_size=layout.mini_batch_size,
        epochs=1,
        seed=0,
        dataloader_kwargs={"shuffle": False},
        **options,
    )
    return batch


def rows_of(layout: RowLayout, output: Tensor) -> dict[int, Tensor]:
    """Undo a layout: the jagged ``output`` of a pass as tensors by row, fillers dropped."""
    return {row: tensor for row, tensor in zip(layout.rows, output.unbind(), strict=True) if row is not None}
