"""The share of weights that a step moved, over entries that stand for all of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from repl_rl.update.trainer import MovedWeights, WeightSample


def test_each_tensor_is_looked_at_in_proportion_to_its_size() -> None:
    tensors = [torch.full((10,), 1.0), torch.full((9, 110), 2.0)]
    values = WeightSample(tensors, size=100, seed=0).values()
    assert [(values == kind).sum().item() for kind in (1.0, 2.0)] == [1, 99]


def test_the_smallest_tensor_is_looked_at_too() -> None:
    tensors = [torch.ones(1), torch.zeros(100_000)]
    assert WeightSample(tensors, size=50, seed=0).values().sum() == 1.0


def test_few_weights_are_all_looked_at() -> None:
    values = WeightSample([torch.arange(5.0), torch.arange(5.0, 9.0)], size=100, seed=0).values()
    assert values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_the_same_seed_looks_at_the_same_entries() -> None:
    weights = torch.arange(10_000.0)
    one, other, third = (WeightSample([weights], size=50, seed=s).values() for s in (1, 1, 2))
    assert torch.equal(one, other)
    assert not torch.equal(one, third)


def moved(gradient: torch.Tensor, step: torch.Tensor) -> list[float]:
    """Records of one step of a weight of ones."""
    weight = torch.nn.Parameter(torch.ones(4))
    frozen = torch.nn.Parameter(torch.ones(4), requires_grad=False)
    model = SimpleNamespace(parameters=lambda: [weight, frozen])
    recorded: list[float] = []
    watch = MovedWeights(recorded.append, seed=0)
    weight.grad = gradient
    watch.on_pre_optimizer_step(None, None, None, model=model)
    with torch.no_grad():
        weight.add_(step)
    watch.on_optimizer_step(None, None, None)
    return recorded


def test_only_weights_with_a_gradient_count() -> None:
    """Two of three weights with a gradient move; rows of absent tokens say nothing."""
    gradient = torch.tensor([1.0, -1.0, 1.0, 0.0])
    assert moved(gradient, torch.tensor([0.1, 0.1, 0.0, 0.0])) == [pytest.approx(2 / 3)]


def test_a_step_with_nothing_to_learn_from_is_not_recorded() -> None:
    assert moved(torch.zeros(4), torch.zeros(4)) == []
