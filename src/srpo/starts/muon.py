"""Muon (Jordan et al., 2024) for the small matrices of a toy.

The update rule is that of torch.optim.Muon with ``match_rms_adamw``. torch runs the Newton-Schulz iteration for one
matrix after another in bfloat16, which is many times slower than float32 on a CPU without bfloat16 products. Here all
matrices of one shape are processed together in float32.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
MOMENTUM = 0.95


def orthogonalize(matrices: Tensor) -> Tensor:
    """Bring the singular values of float32 [matrices, rows, columns], rows at most columns, near 1 (Newton-Schulz)."""
    a, b, c = COEFFICIENTS
    matrices = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = matrices @ matrices.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        matrices = torch.baddbmm(matrices, polynomial, matrices, beta=a)
    return matrices


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum; the step size matches AdamW's, so that both use the same learning rate."""

    def __init__(self, params: Iterable[Tensor], lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Update every matrix; all must have a gradient."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(tuple(sorted(parameter.shape)), []).append(parameter)
            for shape, parameters in by_shape.items():
                step_size = 0.2 * math.sqrt(shape[1]) * group["lr"]
                for parameter, update in zip(parameters, orthogonalize(self._updates(parameters)), strict=True):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.add_(_wide(update, parameter), alpha=-step_size)

    def _updates(self, parameters: list[Tensor]) -> Tensor:
        """Nesterov momentum of matrices of one shape, [matrices, rows, columns], none taller than wide."""
        gradients = torch.stack([_wide(parameter.grad, parameter) for parameter in parameters])
        state = self.state[parameters[0]]
        if not state:
            state["momentum"] = torch.zeros_like(gradients)
        momentum = state["momentum"].lerp_(gradients, 1 - MOMENTUM)
        return gradients.lerp(momentum, MOMENTUM)


def _wide(matrix: Tensor, parameter: Tensor) -> Tensor:
    """Transpose a matrix that belongs to a tall parameter; the function is its own inverse."""
    return matrix.T if parameter.shape[0] > parameter.shape[1] else matrix
