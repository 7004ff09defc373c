"""Muon in float32, several matrices at a time, does what torch's does one by one in bfloat16."""

import pytest
import torch

from srpo.starts.muon import Muon, orthogonalize


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 16, 48), (1, 1, 5)])
def test_singular_values_come_near_one(shape):
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalize(matrices))
    assert values.min() > 0.3
    assert values.max() < 1.3
    assert values.median() > 0.6


def test_orthogonalizing_keeps_the_singular_vectors():
    generator = torch.Generator().manual_seed(0)
    left, _ = torch.linalg.qr(torch.randn(8, 8, generator=generator))
    right, _ = torch.linalg.qr(torch.randn(12, 8, generator=generator))
    made = orthogonalize((left * torch.linspace(0.2, 1, 8) @ right.T)[None])[0]
    between = left.T @ made @ right
    torch.testing.assert_close(between, between.diag().diag(), atol=1e-5, rtol=0)


def test_the_iteration_leaves_zeros_alone():
    assert not orthogonalize(torch.zeros(1, 4, 6)).any()


def test_steps_are_those_of_torch():
    generator = torch.Generator().manual_seed(0)
    shapes = [(16, 16), (8, 16), (48, 16), (16, 48), (16, 16)]
    start = [torch.randn(shape, generator=generator) for shape in shapes]
    ours, theirs = ([torch.nn.Parameter(matrix.clone()) for matrix in start] for _ in range(2))
    optimizers = [
        Muon(ours, lr=0.02, weight_decay=0.1),
        torch.optim.Muon(theirs, lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
    ]
    for _ in range(4):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    for one, other, first in zip(ours, theirs, start, strict=True):
        # bfloat16 has three digits; an update of another rule is off by as much as it is long
        assert (one - other).norm() < 0.03 * (one - first).norm()
