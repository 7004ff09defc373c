"""Where the rollouts of a step are in its batches: which of them share a row, and which rank computes the row.

A row is a bundle: a prompt with one or more of its rollouts if the model computes a shared prompt once
(``policy/shared_prompts.py``), otherwise with one rollout.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from torch import Tensor
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

from srpo.experiment.config import Execution

Prompts = Sequence[Tensor] | Mapping[int, Tensor]
"""Token ids of each rollout's prompt."""

Bundle = tuple[int, ...]
"""The rollouts of one row."""

Row = TypeVar("Row", bound=Hashable)


@dataclass(frozen=True)
class RowOrder(Generic[Row]):
    """The order in which rows are handed to verl.

    verl cuts a batch into equal parts for the ranks, those into equal mini-batches and those into micro-batches,
    equal ones or by a budget of tokens. ``rows`` is grouped by rank, then by mini-batch, and sorted by length within,
    so that a micro-batch has little padding. If the numbers are not equal, ``filler`` rows are added: a prompt with one
    response token that no mask counts.

    Attributes:
        rows: None is a filler.
        mini_batch_size: in rows of all ranks.
        micro_batch_size: in rows of one rank.
        max_tokens: of a micro-batch; None for micro-batches of equally many rows.
    """

    rows: list[Row | None]
    mini_batch_size: int
    micro_batch_size: int
    max_tokens: int | None = None


class Placement:
    """The rank of each rollout in all passes of a step: what a rank keeps of it is there for the next pass.

    Args:
        uses_teacher: rollouts that the teacher's pass computes, too.
        micro_batch_size: most rollouts of a micro-batch of one rank, if ``execution`` has no budget of tokens.
    """

    def __init__(
        self,
        mini_batches: Sequence[Sequence[int]],
        prompts: Prompts,
        lengths: Sequence[int],
        uses_teacher: Collection[int],
        micro_batch_size: int,
        execution: Execution,
    ) -> None:
        self._lengths, self._micro_batch_size, self._execution = lengths, micro_batch_size, execution
        # whole groups are too few to balance: a rank gets four bundles of a mini-batch or more
        most = max(map(len, mini_batches), default=0) // (4 * execution.ranks)
        bundles = self._bundled(mini_batches, prompts, max(1, most))
        of_teacher = {bundle for bundle in chain(*bundles) if any(rollout in uses_teacher for rollout in bundle)}
        ranks = assign_ranks(bundles, self._tokens(bundles, prompts), execution.ranks, of_teacher)
        self._rank = {rollout: rank for bundle, rank in ranks.items() for rollout in bundle}

    def order(self, mini_batches: Sequence[Sequence[int]], prompts: Prompts) -> RowOrder[Bundle]:
        """The rows of a pass over these mini-batches. The prompts are the pass's own: the teacher has others."""
        count = self._execution.ranks
        shares = [[r for r in batch if self._rank[r] == rank] for batch in mini_batches for rank in range(count)]
        bundles = self._bundled(shares, prompts, self._micro_batch_size)
        by_batch = [bundles[i : i + count] for i in range(0, len(bundles), count)]
        rows = max(1, self._micro_batch_size // max(map(len, chain(*bundles))))
        return order_rows(by_batch, self._tokens(bundles, prompts), rows, self._execution.max_tokens_per_rank)

    def _bundled(self, rollouts: Sequence[Sequence[int]], prompts: Prompts, most: int) -> list[list[Bundle]]:
        most = min(most, self._micro_batch_size)
        return bundle_rollouts(rollouts, prompts, self._lengths, most, self._execution.max_tokens_per_rank)

    def _tokens(self, bundles: Sequence[Sequence[Bundle]], prompts: Prompts) -> dict[Bundle, int]:
        """Tokens of each row, its prompt once."""
        return {b: prompts[b[0]].numel() + sum(self._lengths[rollout] for rollout in b) for b in chain(*bundles)}


def bundle_rollouts(
    mini_batches: Sequence[Sequence[int]],
    prompts: Prompts,
    lengths: Sequence[int],
    max_rollouts: int = 1,
    max_tokens: int | None = None,
) -> list[list[Bundle]]:
    """Bundle the rollouts of each mini-batch that have the same prompt, ``max_rollouts`` at most.

    A bundle of several rollouts has ``max_tokens`` at most, its prompt counted once.
    """
    result = []
    for rollouts in mini_batches:
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


def assign_ranks(
    mini_batches: Sequence[Sequence[Row]], tokens: Mapping[Row, int], ranks: int, uses_teacher: Collection[Row] = ()
) -> dict[Row, int]:
    """The rank of each row, the ranks' shares of a mini-batch balanced in tokens.

    Args:
        tokens: of each row, prompt plus response.
        ranks: data-parallel size.
        uses_teacher: rows in the teacher's pass. They are balanced by themselves, because it has no others.
    """
    result: dict[Row, int] = {}
    overall = [0] * ranks
    for rows in mini_batches:
        total = [0] * ranks
        for chosen in ([r for r in rows if r in uses_teacher], [r for r in rows if r not in uses_teacher]):
            shares = [[chosen[i] for i in share] for share in _balanced([tokens[row] for row in chosen], ranks)]
            # the heaviest share goes to the rank that has the fewest tokens so far
            shares.sort(key=lambda share: sum(tokens[row] for row in share), reverse=True)
            by_load = sorted(range(ranks), key=lambda rank: (total[rank], overall[rank]))
            for rank, share in zip(by_load, shares, strict=True):
                total[rank] += sum(tokens[row] for row in share)
                overall[rank] += sum(tokens[row] for row in share)
                result |= dict.fromkeys(share, rank)
    return result


def order_rows(
    shares: Sequence[Sequence[Sequence[Row]]],
    tokens: Mapping[Row, int],
    micro_batch_size: int,
    max_tokens: int | None = None,
) -> RowOrder[Row]:
    """Order the rows of mini-batches.

    Args:
        tokens: of each row, prompt plus response.
        micro_batch_size: most rows of a micro-batch of one rank, if ``max_tokens`` is not given.
        max_tokens: token budget of a micro-batch.
    """
    ranks = len(shares[0])
    per_rank = max(len(share) for of_ranks in shares for share in of_ranks)
    micro = per_rank
    if max_tokens is None:
        count = -(-per_rank // micro_batch_size)
        micro = -(-per_rank // count)
        per_rank = micro * count
    rows: list[Row | None] = []
    for rank in range(ranks):
        for of_ranks in shares:
            share = sorted(of_ranks[rank], key=tokens.__getitem__)
            rows += [*[None] * (per_rank - len(share)), *share]
    return RowOrder(rows, per_rank * ranks, micro, max_tokens)


def _balanced(sizes: list[int], parts: int) -> list[list[int]]:
    """Indices of ``parts`` lists of nearly equal sum, whose lengths differ by one at most; ascending."""
    if parts == 1 or not sizes:
        return [[*range(len(sizes))], *([] for _ in range(parts - 1))]
    padded = sizes + [1] * (-len(sizes) % parts)
    partitions = get_seqlen_balanced_partitions(padded, parts, equal_size=True)
    return [[i for i in partition if i < len(sizes)] for partition in partitions]
