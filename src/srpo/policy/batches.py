"""Packs the rollouts of a step into verl's jagged TensorDicts.

A row is a bundle: a prompt with one or more of its rollouts if the model computes a shared prompt once
(``policy/shared_prompts.py``), otherwise with one rollout.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

from srpo.algorithm.targets import PendingTargets, Targets

Entries = dict[str, tuple[Mapping[int, Tensor], Tensor]]
"""By name: a 1-D tensor per rollout, and the tensor of a filler row."""

Bundle = tuple[int, ...]
"""The rollouts of one row."""


def bundle_rollouts(
    batches: Sequence[Sequence[int]],
    prompts: Sequence[Tensor] | Mapping[int, Tensor],
    lengths: Mapping[int, int],
    max_rollouts: int = 1,
    max_tokens: int | None = None,
) -> list[list[Bundle]]:
    """Bundle the rollouts of each mini-batch that have the same prompt.

    Args:
        batches: rollouts of each mini-batch.
        prompts: token ids of each rollout's prompt.
        lengths: tokens of each response.
        max_rollouts: maximum number of rollouts per bundle.
        max_tokens: maximum number of tokens of a bundle with several rollouts; the prompt counts once.
    """
    result = []
    for rollouts in batches:
        bundles: list[list[int]] = []
        latest: dict[bytes, int] = {}  # from prompt to the bundle that is not full
        tokens: list[int] = []
        for rollout in rollouts:
            prompt = prompts[rollout].numpy().tobytes() if max_rollouts > 1 else b""
            place = latest.get(prompt)
            if (
                place is None
                or len(bundles[place]) >= max_rollouts
                or (max_tokens is not None and tokens[place] + lengths[rollout] > max_tokens)
            ):
                latest[prompt] = place = len(bundles)
                bundles.append([])
                tokens.append(len(prompts[rollout]))
            bundles[place].append(rollout)
            tokens[place] += lengths[rollout]
        result.append([tuple(bundle) for bundle in bundles])
    return result


@dataclass(frozen=True)
class RowOrder:
    """The order in which rows are handed to verl.

    verl cuts a batch into equal parts for the ranks, those into equal mini-batches and those into micro-batches,
    equal ones or by a budget of tokens. ``rows`` is grouped by rank, then by mini-batch, and sorted by length within,
    so that a micro-batch has little padding. If the numbers do not divide, ``filler`` rows are added: a prompt with one
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


def order_rows(
    mini_batches: Sequence[Sequence[int]],
    lengths: Sequence[int] | Mapping[int, int],
    micro_batch_size: int,
    ranks: int = 1,
    max_tokens: int | None = None,
) -> RowOrder:
    """Order the rows of mini-batches, the ranks' shares of a mini-batch balanced in tokens.

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
    return RowOrder([row for part in parts for row in part], per_rank * ranks, micro, max_tokens)


def _balanced(sizes: list[int], parts: int) -> list[list[int]]:
    """Indices of ``parts`` equally long lists of nearly equal sum, ascending."""
    return [list(range(len(sizes)))] if parts == 1 else get_seqlen_balanced_partitions(sizes, parts, equal_size=True)


def jagged(tensors: Sequence[Tensor]) -> Tensor:
    """A jagged nested tensor of 1-D rows."""
    return _jagged([[tensor] for tensor in tensors])


def _jagged(rows: Sequence[Sequence[Tensor]]) -> Tensor:
    """The same for rows that consist of several tensors."""
    lengths = torch.tensor([0, *(sum(map(len, parts)) for parts in rows)])
    return torch.nested.nested_tensor_from_jagged(torch.cat([*chain.from_iterable(rows)]), lengths.cumsum(0))


def sequence_batch(
    order: RowOrder,
    bundles: Sequence[Bundle],
    prompts: Sequence[Tensor] | Mapping[int, Tensor],
    responses: Sequence[Tensor],
    per_token: Entries,
    **options: object,
) -> TensorDict:
    """Assemble a batch for one of the engine's passes. Its ``loss_mask`` counts every token but those of fillers.

    Args:
        order: of the bundles.
        prompts, responses: int64 token ids of each rollout.
        per_token: further entries of each rollout; a filler row has one response token.
        options: non-tensor entries, e.g. ``pass_name`` and ``temperature``.
    """
    rows = [None if row is None else bundles[row] for row in order.rows]
    template = min((bundle[0] for bundle in rows if bundle), key=lambda rollout: len(prompts[rollout]))
    prompt_rows = [prompts[bundle[0] if bundle else template] for bundle in rows]
    filler = responses[template][:1]
    response_rows = [[responses[i] for i in bundle] if bundle else [filler] for bundle in rows]
    parts = list(zip(prompt_rows, response_rows, strict=True))
    fields = {
        "prompts": [[prompt] for prompt in prompt_rows],
        "responses": response_rows,
        "response_lengths": [[torch.tensor([len(part) for part in row])] for row in response_rows],
        "input_ids": [[prompt, *row] for prompt, row in parts],
        "position_ids": [
            [torch.arange(len(prompt)), *(torch.arange(len(prompt), len(prompt) + len(part)) for part in row)]
            for prompt, row in parts
        ],
        "loss_mask": [
            [torch.full((sum(map(len, row)),), bundle is not None)]
            for bundle, row in zip(rows, response_rows, strict=True)
        ],
    }
    for name, (tensors, filler) in per_token.items():
        fields[name] = [[tensors[i] for i in bundle] if bundle else [filler] for bundle in rows]
    batch = TensorDict({name: _jagged(rows) for name, rows in fields.items()}, batch_size=len(order.rows))
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


def rows_of(order: RowOrder, output: Tensor) -> dict[int, Tensor]:
    """Undo an order: the jagged ``output`` of a pass as tensors by row, fillers dropped."""
    parts = output.values().split(output.offsets().diff().tolist())
    return {row: tensor for row, tensor in zip(order.rows, parts, strict=True) if row is not None}


def rollouts_of(
    order: RowOrder, bundles: Sequence[Bundle], output: Tensor, lengths: Mapping[int, int]
) -> dict[int, Tensor]:
    """The jagged ``output`` of a pass as tensors by rollout.

    Args:
        lengths: response tokens of each rollout with an output; every token has the same number of values.
    """
    result: dict[int, Tensor] = {}
    for row, tensor in rows_of(order, output).items():
        found = [rollout for rollout in bundles[row] if rollout in lengths]
        tokens = sum(lengths[rollout] for rollout in found)
        width = len(tensor) // max(tokens, 1)
        parts = tensor.split([width * lengths[rollout] for rollout in found]) if found else ()
        result |= dict(zip(found, parts, strict=True))
    return result


def pack_targets(targets: Mapping[int, Targets] | Mapping[int, PendingTargets]) -> Entries:
    """A step's targets as entries of a batch, one per field."""
    entries: Entries = {}
    for declared in fields(targets[next(iter(targets))]):
        rows = {row: getattr(target, declared.name).flatten() for row, target in targets.items()}
        dtype = next(iter(rows.values())).dtype
        entries[declared.name] = rows, torch.zeros(0 if declared.metadata else 1, dtype=dtype)
    return entries


def unpack_targets(data: TensorDict) -> Targets | PendingTargets:
    """The targets of a micro-batch on the worker: the inverse of :func:`pack_targets`."""
    kind = PendingTargets if "scored" in data else Targets
    flat = {declared.name: data[declared.name].values() for declared in fields(kind)}
    tables = ("top_k_ids", "teacher_scores" if kind is PendingTargets else "teacher_log_probs")
    rows = len(flat["teacher_log_prob" if kind is PendingTargets else "cell"])
    for name in tables:
        flat[name] = flat[name].unflatten(0, (rows, -1)) if len(flat[name]) else flat[name].view(rows, 0)
    return kind(**flat)
