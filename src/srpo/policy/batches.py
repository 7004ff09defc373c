"""Rows of a step as verl's jagged TensorDicts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu


@dataclass(frozen=True)
class RowLayout:
    """The order in which rows are handed to verl.

    verl cuts a batch into equal mini-batches and those into equal micro-batches. ``rows`` is grouped by
    mini-batch and sorted by length within, so that a micro-batch pads little; where the numbers do not divide,
    a ``filler`` row repeats a prompt with one response token that no mask counts.

    Attributes:
        rows: index of a row of the step, or None for a filler.
        mini_batch_size, micro_batch_size: in rows.
    """

    rows: list[int | None]
    mini_batch_size: int
    micro_batch_size: int

    def arrange(self, tensors: Sequence[Tensor], filler: Tensor) -> list[Tensor]:
        """Tensors of the rows in order, with ``filler`` in the gaps."""
        return [filler if row is None else tensors[row] for row in self.rows]


def lay_out(mini_batches: Sequence[Sequence[int]], lengths: Sequence[int], micro_batch_size: int) -> RowLayout:
    """Lay out mini-batches of row indices; ``lengths[row]`` is a row's prompt plus response in tokens."""
    largest = max(len(rows) for rows in mini_batches)
    count = -(-largest // micro_batch_size)
    micro = -(-largest // count)
    order: list[int | None] = []
    for rows in mini_batches:
        fillers = [None] * (micro * count - len(rows))
        order += [*fillers, *sorted(rows, key=lambda row: lengths[row])]
    return RowLayout(order, micro * count, micro)


def jagged(tensors: Sequence[Tensor]) -> Tensor:
    """A jagged nested tensor of 1-D rows."""
    return torch.nested.as_nested_tensor(list(tensors), layout=torch.jagged)


def sequence_batch(
    layout: RowLayout,
    prompts: Sequence[Tensor],
    responses: Sequence[Tensor],
    mask: Sequence[Tensor],
    per_token: dict[str, tuple[Sequence[Tensor], Tensor]],
    **options,
) -> TensorDict:
    """Assemble a batch for one of the engine's passes.

    Args:
        prompts, responses: int64 token ids of each row.
        mask: [response] bool of each row: the tokens that the loss counts.
        per_token: further 1-D entries of each row, and what a filler row (one response token) has instead.
        options: non-tensor entries, e.g. ``pass_name`` and ``temperature``.
    """
    template = next(row for row in layout.rows if row is not None)
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
        use_dynamic_bsz=False,
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
