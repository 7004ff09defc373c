"""Packs the rollouts of a step into verl's jagged TensorDicts, and unpacks what verl returns."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from itertools import chain

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu

from srpo.algorithm.routing import has_loss
from srpo.algorithm.targets import Targets, WorkerTargets
from srpo.policy.placement import Bundle, Prompts, RowOrder

Entries = dict[str, tuple[Mapping[int, Tensor], Tensor]]
"""By name: a 1-D tensor per rollout, and the tensor of a filler row."""

NOT_KEPT = -1
"""Stands for a rollout of which a batch's worker keeps nothing, and for a filler."""


def jagged(tensors: Sequence[Tensor]) -> Tensor:
    """A jagged nested tensor of 1-D rows."""
    return jagged_of_parts([[tensor] for tensor in tensors])


def jagged_of_parts(rows: Sequence[Sequence[Tensor]], dtype: torch.dtype | None = None) -> Tensor:
    """A jagged nested tensor of rows that consist of several tensors; ``dtype`` is its type if no row has a part."""
    # numel: a tensor's len takes five times as long, and a step asks for thousands
    lengths = torch.tensor([0, *(sum(part.numel() for part in parts) for parts in rows)])
    parts = [*chain.from_iterable(rows)] or [torch.zeros(0, dtype=dtype)]
    return torch.nested.nested_tensor_from_jagged(torch.cat(parts), lengths.cumsum(0))


def sequence_batch(
    order: RowOrder[Bundle],
    prompts: Prompts,
    responses: Sequence[Tensor],
    per_token: Entries,
    **options: object,
) -> TensorDict:
    """Assemble a batch for one of the engine's passes.

    Rows have ``input_ids``, a prompt and its responses, and ``prompt_lengths`` and ``response_lengths``. ``loss_mask``,
    which verl only sums, has a row's response tokens, 0 for a filler.

    Args:
        prompts, responses: int64 token ids of each rollout.
        per_token: further entries of each rollout; a filler row has one response token.
        options: non-tensor entries, e.g. ``pass_name`` and ``temperature``.
    """
    template = min((bundle[0] for bundle in order.rows if bundle), key=lambda rollout: len(prompts[rollout]))
    prompt_rows = [prompts[bundle[0] if bundle else template] for bundle in order.rows]
    filler = responses[template][:1]
    response_rows = [[responses[i] for i in bundle] if bundle else [filler] for bundle in order.rows]
    columns = {
        "input_ids": [[prompt, *row] for prompt, row in zip(prompt_rows, response_rows, strict=True)],
        "response_lengths": [[torch.tensor([len(part) for part in row])] for row in response_rows],
    }
    for name, (tensors, filler) in per_token.items():
        columns[name] = [[tensors[i] for i in bundle] if bundle else [filler] for bundle in order.rows]
    counts = [sum(map(len, row)) if bundle else 0 for bundle, row in zip(order.rows, response_rows, strict=True)]
    # verl cuts each jagged entry row by row, per mini- and micro-batch: what is one number a row is not jagged
    entries = {name: jagged_of_parts(rows) for name, rows in columns.items()} | {
        "prompt_lengths": torch.tensor([len(prompt) for prompt in prompt_rows]),
        "loss_mask": torch.tensor(counts),
    }
    batch = TensorDict(entries, batch_size=len(order.rows))
    tu.assign_non_tensor(
        batch,
        use_dynamic_bsz=order.max_tokens is not None,
        max_token_len_per_gpu=order.max_tokens,
        micro_batch_size_per_gpu=order.micro_batch_size,
        mini_batch_size=order.mini_batch_size,
        global_batch_size=order.mini_batch_size,
        epochs=1,
        seed=0,
        dataloader_kwargs={"shuffle": False},
        **options,
    )
    return batch


def kept_entry(rollouts: Collection[int], kept: Collection[int]) -> Entries:
    """The entry of a batch that names the rollouts of which something stays on the worker (``worker.py``).

    Args:
        kept: rollouts of which this pass keeps something, or reads what an earlier pass has kept.
    """
    names = {rollout: torch.tensor([rollout if rollout in kept else NOT_KEPT]) for rollout in rollouts}
    return {"kept": (names, torch.tensor([NOT_KEPT]))}


def rollouts_of(order: RowOrder[Bundle], output: Tensor, lengths: Mapping[int, int]) -> dict[int, Tensor]:
    """The jagged ``output`` of a pass as tensors by rollout, fillers dropped.

    Args:
        lengths: response tokens of each rollout with an output; every token has the same number of values.
    """
    rows = output.values().split(output.offsets().diff().tolist())
    result: dict[int, Tensor] = {}
    for bundle, row in zip(order.rows, rows, strict=True):
        result |= split_row(row, {rollout: lengths[rollout] for rollout in bundle or () if rollout in lengths})
    return result


def split_row(row: Tensor, lengths: Mapping[int, int]) -> dict[int, Tensor]:
    """A row of a pass's output as tensors by rollout; ``lengths`` has the row's, as in :func:`rollouts_of`."""
    if not lengths:
        return {}
    width = len(row) // sum(lengths.values())
    return dict(zip(lengths, row.split([width * length for length in lengths.values()]), strict=True))


def pack_targets(targets: Mapping[int, Targets]) -> Entries:
    """A step's targets as one entry of a batch: all fields of a token, then all of the next, in float32.

    verl cuts each entry row by row into mini- and micro-batches, so one entry costs less than one per field. Indices
    and token ids are exact in float32; a field that a token does not have is 0.
    """
    lengths = {row: own.branch.numel() for row, own in targets.items()}
    missing = {row: torch.zeros(length) for row, length in lengths.items()}
    columns = []
    for declared in fields(Targets):
        found = {row: getattr(own, declared.name) for row, own in targets.items()}
        columns.append(torch.cat([c if c.numel() else missing[row] for row, c in found.items()]).float())
    rows = split_row(torch.stack(columns, 1).flatten(), lengths)
    return {"targets": (rows, torch.zeros(len(columns)))}


def unpack_targets(data: TensorDict) -> WorkerTargets:
    """The targets of a micro-batch on the worker: what :func:`pack_targets` sent, and the kept distributions."""
    declared = fields(Targets)
    columns = data["targets"].values().view(-1, len(declared)).unbind(1)
    flat = {
        field.name: column.to(field.metadata.get("dtype", torch.float32))
        for field, column in zip(declared, columns, strict=True)
    }
    distilled = has_loss(flat["branch"], "distillation")
    flat |= {field.name: flat[field.name][distilled] for field in declared if "distilled" in field.metadata}
    rows = len(flat["divergence_weight"])
    for name in ("top_k_ids", "teacher_log_probs"):
        values = data[name].values()
        flat[name] = values.unflatten(0, (rows, -1)) if len(values) else values.view(rows, 0)
    return WorkerTargets(**flat)
