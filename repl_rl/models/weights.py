"""Weights that leave the trainer, under the names of their checkpoint, adapters merged.

    model -> (name, tensor), ... -> a server's file, an engine in this process, a merged model

The one place that walks parameters for somebody else. Knows tensors and peft's layers. Does not
know who takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_BASE = ".base_layer."
"""Name under which peft puts the layer that it wraps."""


def is_adapted(model: Any) -> bool:  # Any: a PreTrainedModel, or peft's wrapper of one
    """Say whether the model is wrapped by peft."""
    return hasattr(model, "get_base_model")


def inner_model(model: Any) -> Any:  # Any: a PreTrainedModel, or peft's wrapper of one
    """The PreTrainedModel itself."""
    return model.get_base_model() if is_adapted(model) else model


def named_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors in the model's own order, an adapter added to what it is for.

    The model stays as it is, bit by bit: sums are new tensors, made when they are asked for. Added
    and taken away in place, bfloat16 weights would drift. Without an adapter these are
    `model.named_parameters()`.
    """
    if not is_adapted(model):
        yield from model.named_parameters()
        return
    from repl_rl.models.lora import tuned_layers

    model = model.get_base_model()
    layers = tuned_layers(model)
    parameters = [pair for layer in layers.values() for pair in layer.named_parameters()]
    own = {id(one) for name, one in parameters if not name.startswith(_BASE.removeprefix("."))}
    for name, parameter in model.named_parameters():
        if id(parameter) in own:
            continue
        layer, _, leaf = name.rpartition(_BASE)
        if layer not in layers:
            yield name, parameter
        else:
            merged = _merged(layers[layer], parameter) if leaf == "weight" else parameter
            yield f"{layer}.{leaf}", merged


@dataclass(frozen=True, slots=True)
class AdaptedModel:
    """Weights of a model with an adapter, for whoever adds the two or takes them added."""

    model: Any  # peft's wrapper of a PreTrainedModel

    def why_whole(self) -> str | None:
        """Reason why others cannot add the adapter themselves; None where they can."""
        from repl_rl.models.lora import unread_by_servers

        return unread_by_servers(self.model)

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        return named_weights(self.model)

    def save_adapter(self, folder: Path) -> None:
        """Write the adapter as peft does."""
        self.model.save_pretrained(folder)


def leaving_weights(model: Any) -> Iterable[tuple[str, torch.Tensor]]:
    """Weights for an engine: `named_weights`, or an `AdaptedModel` where there is an adapter."""
    return AdaptedModel(model) if is_adapted(model) else named_weights(model)


@torch.no_grad()
def _merged(layer: Any, weight: torch.Tensor) -> torch.Tensor:
    """A copy of the weight of a LoraLayer with its active adapters, added in float32."""
    total = weight.float()
    for adapter in layer.active_adapters:
        total = total + layer.get_delta_weight(adapter).float()
    return total.to(weight.dtype)


def save_merged(model: Any, path: Path) -> None:
    """Write an adapted model as a plain transformers model, which knows of no adapter."""
    base = model.get_base_model()
    state = base.state_dict()
    buffers = {name: one for name, one in base.named_buffers() if name in state}
    base.save_pretrained(path, state_dict={**dict(named_weights(model)), **buffers})
