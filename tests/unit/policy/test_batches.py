"""The order of rows, on one rank, and how it is undone (several ranks: ``test_layouts.py``)."""

from __future__ import annotations

import itertools
import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from srpo.policy.batches import RowOrder, order_rows, rows_of


@st.composite
def split_rows(draw) -> list[list[int]]:
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=5))
    rows = draw(st.permutations(range(sum(sizes))))
    starts = list(itertools.accumulate(sizes, initial=0))
    return [list(rows[a:b]) for a, b in itertools.pairwise(starts)]


@given(split_rows(), st.integers(1, 64), st.randoms(use_true_random=False))
def test_layouts_hold_every_row_once_in_equal_parts(batches, micro_batch_size, random):
    lengths = [random.randrange(1, 50) for _ in range(sum(map(len, batches)))]
    order = order_rows([[batch] for batch in batches], lengths, micro_batch_size)
    size, micro = order.mini_batch_size, order.micro_batch_size
    assert len(order.rows) == size * len(batches)
    assert size % micro == 0
    assert micro <= micro_batch_size
    for k, batch in enumerate(batches):
        part = [row for row in order.rows[k * size : (k + 1) * size] if row is not None]
        assert sorted(part) == sorted(batch)
        assert [lengths[row] for row in part] == sorted(lengths[row] for row in batch)
    # fillers: not one micro-batch more than needed, and fewer in the largest mini-batch than micro-batches
    largest = max(map(len, batches))
    assert size // micro == math.ceil(largest / micro_batch_size)
    assert size - largest < size // micro


def test_a_layout_is_undone():
    order = order_rows([[[4, 1]], [[0, 2, 3]]], [5, 4, 3, 2, 1], 2)
    assert order == RowOrder([None, None, 4, 1, None, 3, 2, 0], 4, 2)
    output = torch.nested.nested_tensor([torch.tensor([float(i)]) for i in range(8)], layout=torch.jagged)
    assert {row: t.item() for row, t in rows_of(order, output).items()} == {4: 2, 1: 3, 3: 5, 2: 6, 0: 7}
