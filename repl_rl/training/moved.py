"""Which share of the weights an optimiser step moved: rounding may keep it near zero.

    weights before a step, weights after it -> share of those with a gradient

Knows tensors, and when a trainer steps. Does not know what is trained, nor how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from transformers import TrainerCallback

NUM_ENTRIES = 100_000
"""Weights that are sampled: a share of them is off by less than 0.2 %."""


class WeightSample:
    """Fixed entries of tensors, drawn by a seed, as many of each as its size asks for.

    All of them where they are fewer than are wanted. No copy of a tensor is made.
    """

    def __init__(self, tensors: Iterable[torch.Tensor], *, size: int, seed: int) -> None:
        self._tensors = list(tensors)
        rng = torch.Generator().manual_seed(seed)
        total = sum(tensor.numel() for tensor in self._tensors)
        self._places = [_places(one, size / max(size, total), rng) for one in self._tensors]

    def values(self) -> torch.Tensor:
        """Their values, [size], in one type."""
        return _gather(self._tensors, self._places)

    def gradients(self) -> torch.Tensor:
        """Their gradients, [size]; 0 where a tensor has none."""
        found = [torch.zeros_like(t) if t.grad is None else t.grad for t in self._tensors]
        return _gather(found, self._places)


def _places(tensor: torch.Tensor, share: float, rng: torch.Generator) -> torch.Tensor:
    wanted = max(1, round(share * tensor.numel()))
    if wanted >= tensor.numel():
        return torch.arange(tensor.numel(), device=tensor.device)
    return torch.randint(tensor.numel(), (wanted,), generator=rng).to(tensor.device)


def _gather(tensors: list[torch.Tensor], places: list[torch.Tensor]) -> torch.Tensor:
    pairs = zip(tensors, places, strict=True)
    return torch.cat([one.detach().reshape(-1)[at].float() for one, at in pairs])


class MovedWeights(TrainerCallback):
    """Gives `record` at each step the share of sampled weights with a gradient that moved."""

    def __init__(self, record: Callable[[float], None], *, seed: int) -> None:
        self._record = record
        self._seed = seed
        self._sample: WeightSample | None = None
        self._before = torch.empty(0)
        self._has_gradient = torch.empty(0)

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        if self._sample is None:
            trained = (one for one in model.parameters() if one.requires_grad)
            self._sample = WeightSample(trained, size=NUM_ENTRIES, seed=self._seed)
        self._before = self._sample.values()
        self._has_gradient = self._sample.gradients() != 0

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        assert self._sample is not None
        moved = (self._sample.values() != self._before)[self._has_gradient]
        # A step that has nothing to learn from says nothing about rounding.
        if moved.numel():
            self._record(moved.float().mean().item())
