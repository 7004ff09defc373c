"""Which rollouts share a row, in which order rows are sent, and which rank computes them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu

from srpo.experiment.config import Execution
from srpo.policy.batches import jagged
from srpo.policy.placement import Placement, RowOrder, assign_ranks, bundle_rollouts, order_rows

# ---------------------------------------------------------------- bundles


@pytest.mark.parametrize(
    ("most", "max_tokens", "expected"),
    [
        (1, None, [[(0,), (1,), (2,), (3,)], [(4,)]]),
        (8, None, [[(0, 2, 3), (1,)], [(4,)]]),
        (2, None, [[(0, 2), (1,), (3,)], [(4,)]]),
        (8, 9, [[(0, 2), (1,), (3,)], [(4,)]]),
        (8, 2, [[(0,), (1,), (2,), (3,)], [(4,)]]),
    ],
)
def test_bundles_hold_rollouts_of_one_prompt_and_mini_batch(most, max_tokens, expected):
    prompt, other = torch.tensor([1, 2, 3]), torch.tensor([1, 2])
    prompts = [prompt, other, prompt.clone(), prompt, prompt]
    assert bundle_rollouts([[0, 1, 2, 3], [4]], prompts, [3] * 5, most, max_tokens) == expected


# ---------------------------------------------------------------- rows over ranks


@st.composite
def steps(draw):
    """Mini-batches of rows that need not be as long as each other, and each row's tokens."""
    total = draw(st.integers(1, 60))
    lengths = draw(st.lists(st.integers(2, 10_000), min_size=total, max_size=total))
    order = draw(st.permutations(range(total)))
    kept = order[: draw(st.integers(1, total))]  # rows that no branch takes are in no mini-batch
    cuts = sorted(draw(st.sets(st.integers(1, len(kept)), max_size=3)) | {len(kept)})
    return [kept[a:b] for a, b in zip([0, *cuts], cuts, strict=False)], lengths


def layout_of(mini_batches, lengths, micro_batch_size, ranks=1, max_tokens=None) -> RowOrder:
    """Rows given to ranks, then put in order."""
    rank_of = assign_ranks(mini_batches, lengths, ranks)
    shares = [[[row for row in rows if rank_of[row] == rank] for rank in range(ranks)] for rows in mini_batches]
    return order_rows(shares, lengths, micro_batch_size, max_tokens)


layouts = st.tuples(steps(), st.integers(1, 20), st.integers(1, 8), st.one_of(st.none(), st.integers(10_000, 50_000)))


def by_rank(layout: RowOrder, ranks: int) -> list[list[list[int | None]]]:
    """Rows of each rank's share of each mini-batch, cut by verl's own functions; a row is known by its token."""
    tokens = [torch.tensor([-1 if row is None else row]) for row in layout.rows]
    batch = TensorDict({"responses": jagged(tokens)}, batch_size=len(tokens))
    share = layout.mini_batch_size // ranks
    result = []
    for chunk in tu.chunk_tensordict(batch, ranks):
        mini_batches = tu.make_iterator(chunk, share, epochs=1, seed=0, dataloader_kwargs={"shuffle": False})
        found = [[int(row) for row in mini_batch["responses"].unbind()] for mini_batch in mini_batches]
        result.append([[None if row == -1 else row for row in rows] for rows in found])
    return result


@given(layouts)
def test_every_mini_batch_is_shared_out_once_and_equally(case):
    (mini_batches, lengths), micro_batch_size, ranks, max_tokens = case
    layout = layout_of(mini_batches, lengths, micro_batch_size, ranks, max_tokens)
    assert len(layout.rows) == len(mini_batches) * layout.mini_batch_size
    share = layout.mini_batch_size // ranks
    assert share * ranks == layout.mini_batch_size
    assert share % layout.micro_batch_size == 0
    cut = by_rank(layout, ranks)
    for i, rows in enumerate(mini_batches):
        shares = [rank[i] for rank in cut]
        assert {len(part) for part in shares} == {share}
        together = [row for part in shares for row in part]
        assert sorted(row for row in together if row is not None) == sorted(rows)
        assert together.count(None) == layout.mini_batch_size - len(rows)


@given(layouts)
def test_fillers_are_only_what_the_longest_mini_batch_needs(case):
    (mini_batches, lengths), micro_batch_size, ranks, max_tokens = case
    layout = layout_of(mini_batches, lengths, micro_batch_size, ranks, max_tokens)
    longest = max(map(len, mini_batches))
    if max_tokens is None:
        # verl wants micro-batches of equally many rows on every rank: as few as the limit allows, as small as they go
        assert layout.micro_batch_size <= micro_batch_size
        count = layout.mini_batch_size // ranks // layout.micro_batch_size
        assert count == -(-longest // (ranks * micro_batch_size))
        assert layout.mini_batch_size - longest < ranks * count
    else:
        assert layout.mini_batch_size - longest < ranks
    assert layout.max_tokens == max_tokens


@given(layouts)
def test_the_ranks_of_a_mini_batch_have_nearly_equal_tokens(case):
    (mini_batches, lengths), micro_batch_size, ranks, max_tokens = case
    layout = layout_of(mini_batches, lengths, micro_batch_size, ranks, max_tokens)
    cut = by_rank(layout, ranks)
    for i in range(len(mini_batches)):
        sizes = [[1 if row is None else lengths[row] for row in rank[i]] for rank in cut]
        # one round of rows over the ranks differs by less than its longest and shortest; rounds offset each other
        together = sorted(size for share in sizes for size in share)
        spread = max(b - a for a, b in zip(together[::ranks], together[ranks - 1 :: ranks], strict=True))
        assert max(map(sum, sizes)) - min(map(sum, sizes)) <= spread
        assert all(share == sorted(share) for share in sizes)


@given(layouts, st.randoms(use_true_random=False))
def test_the_ranks_share_the_pass_of_the_teacher_equally_too(case, random):
    (mini_batches, lengths), _, ranks, _ = case
    of_teacher = {row for rows in mini_batches for row in rows if random.random() < 0.5}
    rank_of = assign_ranks(mini_batches, lengths, ranks, of_teacher)
    assert sorted(rank_of) == sorted(row for rows in mini_batches for row in rows)
    for rows in mini_batches:
        for chosen in (of_teacher.intersection(rows), set(rows) - of_teacher):
            sizes = [[lengths[row] for row in chosen if rank_of[row] == rank] for rank in range(ranks)]
            assert max(map(len, sizes)) - min(map(len, sizes)) <= 1
            together = sorted([1] * (-len(chosen) % ranks) + [size for share in sizes for size in share])
            rounds = zip(together[::ranks], together[ranks - 1 :: ranks], strict=True)
            spread = max((longest - shortest for shortest, longest in rounds), default=0)
            assert max(map(sum, sizes)) - min(map(sum, sizes)) <= spread + 1


@given(layouts)
def test_one_rank_has_its_rows_by_length(case):
    (mini_batches, lengths), micro_batch_size, _, max_tokens = case
    layout = layout_of(mini_batches, lengths, micro_batch_size, max_tokens=max_tokens)
    (rank,) = by_rank(layout, 1)
    for rows, laid in zip(mini_batches, rank, strict=True):
        fillers = layout.mini_batch_size - len(rows)
        assert laid == [None] * fillers + sorted(rows, key=lambda row: lengths[row])


# ---------------------------------------------------------------- a step


@pytest.mark.parametrize("micro_batch_size", [4, 1], ids=["shared prompts", "one rollout per row"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_a_rollout_has_one_rank_in_every_pass_whatever_its_prompt(ranks, micro_batch_size):
    """Twelve rollouts of three questions in two mini-batches; the teacher's prompts are shared by other rollouts."""
    execution = Execution(driver="ray", ranks=ranks)
    prompts = [torch.arange(2 + i // 4) for i in range(12)]
    lengths, batches, of_teacher = [1 + (7 * i) % 9 for i in range(12)], [[*range(8)], [8, 9, 11]], [1, 2, 5, 9, 11]
    placement = Placement(batches, prompts, lengths, of_teacher, micro_batch_size, execution)
    teacher_prompts = {i: torch.arange(20 + i % 2) for i in of_teacher}
    passes = [
        placement.order(batches, prompts),
        placement.order([[i for batch in batches for i in batch]], prompts),
        placement.order([of_teacher], teacher_prompts),
        placement.order([batches[0]], prompts),
    ]
    seen: dict[int, int] = {}
    for order, rollouts in zip(passes, [11, 11, 5, 8], strict=True):
        assert len(order.rows) % ranks == 0
        size = len(order.rows) // ranks
        found = [(i, place // size) for place, row in enumerate(order.rows) for i in row or ()]
        assert len(found) == len(dict(found)) == rollouts
        assert all(seen.setdefault(i, rank) == rank for i, rank in found)
        assert all(len(row) == 1 for row in order.rows if row) or micro_batch_size > 1
    shares = [sum(seen[i] == rank for i in of_teacher) for rank in range(ranks)]
    assert ranks == 1 or max(shares) < len(of_teacher)


def test_ranks_with_one_question_each_have_nearly_equal_loads():
    """GRPO's mini-batch of the paper: 8 questions of 8 rollouts on 8 ranks; four of them make a batch."""
    lengths = torch.empty(256).log_normal_(6.7, 0.5, generator=torch.Generator().manual_seed(0)).long().tolist()
    prompts = [torch.full((350,), i // 8) for i in range(256)]
    batches = [[*range(start, start + 64)] for start in range(0, 256, 64)]
    placement = Placement(batches, prompts, lengths, [], 64, Execution(driver="ray", ranks=8))
    loads = [0] * 8
    order = placement.order([[*range(256)]], prompts)
    for place, row in enumerate(order.rows):
        loads[8 * place // len(order.rows)] += 350 + sum(lengths[i] for i in row) if row else 0
    assert max(loads) < 1.1 * sum(loads) / 8  # 1.39 times if groups stay whole
