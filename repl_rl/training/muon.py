"""Muon, with its matrices multiplied in the type of the weights.

    momentum of the gradient -> nearest orthogonal matrix, about -> step

torch's own multiplies in bfloat16 whatever the weights are: on a processor without instructions for
that type 25 times slower than in float32, and a starter that takes minutes takes an hour.

Knows tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

MOMENTUM = 0.95
NUM_ITERATIONS = 5
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic that drives singular values towards 1. It is steep at 0, and ends around 1."""
EPSILON = 1e-7


class Muon(torch.optim.Optimizer):
    """For matrices alone; up to rounding it computes what `torch.optim.Muon` does.

    Source: Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024.
    """

    def __init__(
        self, params: Iterable[torch.nn.Parameter], *, lr: float, weight_decay: float
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure is used
        assert closure is None
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    rates = {name: group[name] for name in ("lr", "weight_decay")}
                    self._move(matrix, matrix.grad, **rates)

    def _move(
        self, matrix: torch.nn.Parameter, gradient: torch.Tensor, *, lr: float, weight_decay: float
    ) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum"] = torch.zeros_like(matrix)
        momentum: torch.Tensor = state["momentum"]
        momentum.lerp_(gradient, 1 - MOMENTUM)
        ahead = gradient.lerp(momentum, MOMENTUM)  # Nesterov's
        num_rows, num_columns = matrix.shape
        matrix.mul_(1 - lr * weight_decay)
        length = lr * math.sqrt(max(1.0, num_rows / num_columns))
        matrix.add_(orthogonal(ahead), alpha=-length)


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """`matrix` (rows, columns) with all its singular values moved to between 0.7 and 1.2."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    moved = matrix.T if is_tall else matrix
    moved = moved / moved.norm().clamp(min=EPSILON)
    a, b, c = COEFFICIENTS
    for _ in range(NUM_ITERATIONS):
        gram = moved @ moved.T
        moved = torch.addmm(moved, torch.addmm(gram, gram, gram, beta=b, alpha=c), moved, beta=a)
    return moved.T if is_tall else moved
