"""Packs the rollouts of a step into verl's jagged TensorDicts.

A row is a bundle: a prompt with one or more of its rollouts if the model computes a shared prompt once
(``policy/shared_prompts.py``), otherwise with one rollout.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.utils import tensordict_utils as tu
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

from srpo.algorithm.routing import has_loss
from srpo.algorithm.targets import Constants, PendingConstants, PendingTargets, Targets

Entries = dict[str, tuple[Mapping[int, Tensor], Tensor]]
"""By name: a 1-D tensor per rollout, and the tensor of a filler row."""

Bundle = tuple[int, ...]
"""The rollouts of one row."""

DTYPES = {"branch": torch.int64, "cell": torch.int64, "copied": torch.int64, "scored": torch.bool}
"""Types of the constants that are not float32."""

_ENTRY = {Constants: "constants", PendingConstants: "pending_constants"}
"""The entry of a batch that has the constants of each kind."""

NOT_KEPT = -1
"""Stands for a rollout of which a batch's worker keeps nothing, and for a filler."""


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
    so that a micro-batch has little padding. If the numbers are not equal, ``filler`` rows are added: a prompt with one
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


def assign_ranks(
    mini_batches: Sequence[Sequence[int]],
    lengths: Sequence[int] | Mapping[int, int],
    ranks: int,
    scored: Collection[int] = (),
) -> dict[int, int]:
    """The rank of each row, the ranks' shares of a mini-batch balanced in tokens.

    Args:
        mini_batches: row indices of each.
        lengths: tokens of each row, prompt plus response.
        ranks: data-parallel size.
        scored: rows that the teacher scores too. They are balanced by themselves, because its pass has no others.
    """
    result: dict[int, int] = {}
    for rows in mini_batches:
        tokens = [0] * ranks
        for chosen in ([row for row in rows if row in scored], [row for row in rows if row not in scored]):
            shares = [[chosen[i] for i in share] for share in _balanced([lengths[row] for row in chosen], ranks)]
            # the heaviest share goes to the rank that has the fewest tokens so far
            shares.sort(key=lambda share: sum(lengths[row] for row in share), reverse=True)
            for rank, share in zip(sorted(range(ranks), key=tokens.__getitem__), shares, strict=True):
                tokens[rank] += sum(lengths[row] for row in share)
                result |= dict.fromkeys(share, rank)
    return result


def order_rows(
    shares: Sequence[Sequence[Sequence[int]]],
    lengths: Sequence[int] | Mapping[int, int],
    micro_batch_size: int,
    max_tokens: int | None = None,
) -> RowOrder:
    """Order the rows of mini-batches.

    Args:
        shares: row indices of each rank of each mini-batch.
        lengths: tokens of each row, prompt plus response.
        micro_batch_size: rows of a micro-batch of one rank at most, where ``max_tokens`` is not given.
        max_tokens: token budget of a micro-batch.
    """
    ranks = len(shares[0])
    per_rank = max(len(share) for of_ranks in shares for share in of_ranks)
    micro = per_rank
    if max_tokens is None:
        count = -(-per_rank // micro_batch_size)
        micro = -(-per_rank // count)
        per_rank = micro * count
    rows: list[int | None] = []
    for rank in range(ranks):
        for of_ranks in shares:
            share = sorted(of_ranks[rank], key=lambda row: lengths[row])
            rows += [*[None] * (per_rank - len(share)), *share]
    return RowOrder(rows, per_rank * ranks, micro, max_tokens)


def _balanced(sizes: list[int], parts: int) -> list[list[int]]:
    """Indices of ``parts`` lists of nearly equal sum, whose lengths differ by one at most; ascending."""
    if parts == 1 or not sizes:
        return [[*range(len(sizes))], *([] for _ in range(parts - 1))]
    padded = sizes + [1] * (-len(sizes) % parts)
    partitions = get_seqlen_balanced_partitions(padded, parts, equal_size=True)
    return [[i for i in partition if i < len(sizes)] for partition in partitions]


def jagged(tensors: Sequence[Tensor]) -> Tensor:
    """A jagged nested tensor of 1-D rows."""
    return jagged_of_parts([[tensor] for tensor in tensors])


def jagged_of_parts(rows: Sequence[Sequence[Tensor]], dtype: torch.dtype | None = None) -> Tensor:
    """The same for rows that consist of several tensors.

    Args:
        dtype: of the result, where no row may have a part.
    """
    # numel: a tensor's len takes five times as long, and a step asks for thousands
    lengths = torch.tensor([0, *(sum(part.numel() for part in parts) for parts in rows)])
    parts = [*chain.from_iterable(rows)] or [torch.zeros(0, dtype=dtype)]
    return torch.nested.nested_tensor_from_jagged(torch.cat(parts), lengths.cumsum(0))


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
    batch = TensorDict({name: jagged_of_parts(rows) for name, rows in fields.items()}, batch_size=len(order.rows))
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
    """The entry of a batch that names the rollouts whose scores stay on the worker (``policy/kept_scores.py``).

    Args:
        rollouts: all of the batch.
        kept: those that it keeps scores of, or finds kept ones of.
    """
    names = {rollout: torch.tensor([rollout if rollout in kept else NOT_KEPT]) for rollout in rollouts}
    return {"kept": (names, torch.tensor([NOT_KEPT]))}


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
        result |= split_row(tensor, {rollout: lengths[rollout] for rollout in bundles[row] if rollout in lengths})
    return result


def split_row(row: Tensor, lengths: Mapping[int, int]) -> dict[int, Tensor]:
    """A row of a pass's output as tensors by rollout.

    Args:
        lengths: tokens of the response of each rollout that the row has numbers of, equally many a token.
    """
    if not lengths:
        return {}
    width = len(row) // sum(lengths.values())
    return dict(zip(lengths, row.split([width * length for length in lengths.values()]), strict=True))


def pack_constants(constants: Mapping[int, Constants] | Mapping[int, PendingConstants]) -> Entries:
    """A step's constants as one entry of a batch: the fields of one token after those of another, in float32.

    verl cuts each entry row by row into mini- and micro-batches, so one entry costs less than one per field. Indices
    and token ids are exact in float32; a field that a token does not have is 0.
    """
    first = constants[next(iter(constants))]
    names = [declared.name for declared in fields(first)]
    lengths = {row: own.branch.numel() for row, own in constants.items()}
    missing = {row: torch.zeros(length) for row, length in lengths.items()}
    columns = []
    for name in names:
        found = {row: getattr(own, name) for row, own in constants.items()}
        columns.append(torch.cat([c if c.numel() else missing[row] for row, c in found.items()]).float())
    rows = split_row(torch.stack(columns, 1).flatten(), lengths)
    return {_ENTRY[type(first)]: (rows, torch.zeros(len(names)))}


def unpack_targets(data: TensorDict) -> Targets | PendingTargets:
    """The targets of a micro-batch on the worker: what :func:`pack_constants` sent, and the kept distributions."""
    sent, kind = (PendingConstants, PendingTargets) if _ENTRY[PendingConstants] in data else (Constants, Targets)
    declared = fields(sent)
    columns = data[_ENTRY[sent]].values().view(-1, len(declared)).unbind(1)
    flat = {
        field.name: column.to(DTYPES.get(field.name, torch.float32))
        for field, column in zip(declared, columns, strict=True)
    }
    tokens = {"distilled": has_loss(flat["branch"], "distillation"), "scored": flat.get("scored")}
    for field in declared:
        if field.metadata:
            flat[field.name] = flat[field.name][tokens[field.metadata["of"]]]
    rows = int(tokens["distilled" if kind is Targets else "scored"].sum())
    for name in ("top_k_ids", "teacher_log_probs"):
        values = data[name].values()
        flat[name] = values.unflatten(0, (rows, -1)) if len(values) else values.view(rows, 0)
    return kind(**flat)
