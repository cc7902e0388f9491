"""A copy of the trainer's model in the type that is sampled in, adapters merged.

    named weights -> cast into tensors that keep their places -> forwards without peft or autocast

Knows modules and named weights. Does not know engines.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from repl_rl.engines.weights import inner_model, named_weights


class Shadow:
    """See the module. The model itself is left alone, its mode and its attention, too."""

    def __init__(self, model: Any, *, dtype: torch.dtype, attention: str) -> None:
        inner, device = inner_model(model), model.device
        config = copy.deepcopy(inner.config)
        # The weights that it is made with are random, and drawn from everybody's generator.
        devices = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.device(device):
            made = type(inner)._from_config(config, dtype=dtype)
        made.config.get_text_config()._attn_implementation = attention
        self.model: Any = made.to(device).eval().requires_grad_(False)
        self._source = model
        held = dict(inner.named_buffers())
        with torch.no_grad():
            for name, buffer in self.model.named_buffers():
                if name in held and held[name].shape == buffer.shape:
                    buffer.copy_(held[name])
        self.load()

    @torch.no_grad()
    def load(self) -> None:
        """Take the weights as they are; RuntimeError where those of the model are others."""
        own = dict(self.model.named_parameters())
        for name, weight in named_weights(self._source):
            if name not in own or own[name].shape != weight.shape:
                raise RuntimeError(f"a copy of the model has no place for {name!r}")
            own.pop(name).copy_(weight)
        if own:
            raise RuntimeError(f"the model has no {next(iter(own))!r}, a copy of it has")

    @property
    def num_bytes(self) -> int:
        return sum(weight.nbytes for weight in self.model.parameters())
