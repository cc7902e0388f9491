"""Muon: the step of torch's own, and singular values near 1."""

import pytest
import torch

from repl_rl.update.sft import Muon, orthogonal


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)])
def test_singular_values_are_moved_to_about_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonal(matrix))
    assert ((values > 0.6) & (values < 1.3)).all()


@pytest.mark.parametrize("shape", [(6, 3), (3, 6)])
def test_steps_are_those_of_torch_but_for_its_rounding_to_bfloat16(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    start = torch.randn(shape, generator=generator)
    mine, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizers = [
        Muon([mine], lr=0.1, weight_decay=0.01),
        torch.optim.Muon([theirs], lr=0.1, weight_decay=0.01),
    ]
    for _ in range(3):
        gradient = torch.randn(shape, generator=generator)
        for parameter, optimizer in zip((mine, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    moved = (theirs - start).abs().max()
    assert (mine - theirs).abs().max() < 0.02 * moved


def test_a_matrix_without_a_gradient_stays() -> None:
    still = torch.nn.Parameter(torch.ones(2, 2))
    Muon([still], lr=0.1, weight_decay=0.01).step()
    assert torch.equal(still, torch.ones(2, 2))
