"""What a pass returns is read in the order in which its rows were sent."""

import torch

from srpo.policy.batches import rollouts_of
from srpo.policy.placement import RowOrder, order_rows


def test_a_layout_is_undone():
    a, b, c, d, e = (0,), (1, 5), (2,), (3,), (4,)
    order = order_rows([[[e, b]], [[a, c, d]]], {a: 5, b: 4, c: 3, d: 2, e: 1}, 2)
    assert order == RowOrder([None, None, e, b, None, d, c, a], 4, 2)
    parts = [torch.tensor([float(i), -i] if i == 3 else [float(i)]) for i in range(8)]
    output = torch.nested.nested_tensor(parts, layout=torch.jagged)
    found = rollouts_of(order, output, dict.fromkeys([0, 1, 3, 4, 5], 1) | {2: 1})
    assert {row: t.tolist() for row, t in found.items()} == {4: [2], 1: [3], 5: [-3], 3: [5], 2: [6], 0: [7]}


def test_only_rollouts_with_an_output_have_one():
    order = RowOrder([(0, 1), None, (2,)], 3, 3)
    output = torch.nested.nested_tensor([torch.arange(4.0), torch.ones(1), torch.zeros(0)], layout=torch.jagged)
    found = rollouts_of(order, output, {1: 2})
    assert {row: t.tolist() for row, t in found.items()} == {1: [0, 1, 2, 3]}
