"""Weights that leave the trainer, under the names of their checkpoint, adapters merged.

    model -> (name, tensor), ... -> a server's file, an engine in this process, a saved model

Where each rank holds a shard of every tensor, all ranks walk all of them: gathering one is a
collective. The one place that walks parameters for somebody else. Knows tensors, peft's layers and
FSDP2. Does not know who takes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

_BASE = ".base_layer."
"""Name under which peft puts the layer that it wraps."""
_WRAPPERS = ("_checkpoint_wrapped_module.", "_orig_mod.", "_fsdp_wrapped_module.")
"""Parts of names that recomputation, compilation and sharding put in."""


def is_adapted(model: Any) -> bool:  # Any: a PreTrainedModel, or peft's wrapper of one
    """Say whether the model is wrapped by peft."""
    return hasattr(model, "get_base_model")


def inner_model(model: Any) -> Any:  # Any: a PreTrainedModel, or peft's wrapper of one
    """The PreTrainedModel itself."""
    return model.get_base_model() if is_adapted(model) else model


def is_sharded(model: torch.nn.Module) -> bool:
    """Return whether each rank holds a part of the weights, so that a forward takes all ranks.

    By its modules: weights are whole for a while after a forward without a backward.
    """
    return any(isinstance(one, FSDPModule) for one in model.modules())


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with the parts that other ranks hold: a collective. A whole one is itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def plain_name(name: str) -> str:
    """The name of a weight in a checkpoint, where nothing is wrapped.

    >>> plain_name("model.layers.0._checkpoint_wrapped_module.mlp.up_proj.weight")
    'model.layers.0.mlp.up_proj.weight'
    """
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def gathered(
    weights: Iterable[tuple[str, torch.Tensor]], *, is_kept: bool
) -> list[tuple[str, torch.Tensor]]:
    """All weights in the memory of the host, before anybody is given one; none unless `is_kept`.

    So no rank waits in a collective for one that is waiting for a server.
    """
    return [(name, one.detach().cpu()) for name, one in weights if is_kept]


def whole_state(model: Any, *, is_kept: bool) -> dict[str, torch.Tensor] | None:
    """Weights that `save_pretrained` is to write of a sharded model; None of a whole one.

    All ranks call it, and those that keep it get it. Of an adapted model that is the adapter.
    """
    if not is_sharded(model):
        return None
    stored = model.state_dict().keys()
    buffers = [pair for pair in model.named_buffers() if pair[0] in stored]
    of_adapter = is_adapted(model)
    own = (pair for pair in model.named_parameters() if pair[1].requires_grad or not of_adapter)
    tensors = ((plain_name(name), whole(one)) for name, one in [*own, *buffers])
    return dict(gathered(tensors, is_kept=is_kept))


def named_weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Names and tensors in the model's own order, an adapter added to what it is for.

    The model stays as it is, bit by bit: sums are new tensors, made when they are asked for. Added
    and taken away in place, bfloat16 weights would drift. Without an adapter and whole these are
    `model.named_parameters()`.
    """
    if not is_adapted(model):
        yield from ((plain_name(name), whole(one)) for name, one in model.named_parameters())
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
            yield plain_name(name), whole(parameter)
        else:
            weight = whole(parameter)
            merged = _merged(layers[layer], weight) if leaf == "weight" else weight
            yield plain_name(f"{layer}.{leaf}"), merged


@dataclass
class AdaptedModel:
    """Weights of a model with an adapter, for whoever adds the two or takes them added.

    Of a model that ranks hold together both are in the memory of the host: see `leaving_weights`.
    """

    model: Any  # peft's wrapper of a PreTrainedModel
    adapter: dict[str, torch.Tensor] | None = None
    """The adapter's own; None where the model has all of it."""
    added: Sequence[tuple[str, torch.Tensor]] | None = None
    """Sums, none of them where nobody is to walk them; None where the model has all of them."""
    was_walked: bool = False
    """True once an engine has walked the sums."""

    def why_whole(self) -> str | None:
        """Reason why others cannot add the adapter themselves; None where they can."""
        from repl_rl.models.lora import unread_by_servers

        return unread_by_servers(self.model)

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        assert self.added != [], "nobody walked those of the version before"
        self.was_walked = True
        return named_weights(self.model) if self.added is None else iter(self.added)

    def save_adapter(self, folder: Path) -> None:
        """Write the adapter as peft does."""
        self.model.save_pretrained(folder, state_dict=self.adapter)


def leaving_weights(
    model: Any, *, is_kept: bool = True, is_walked: bool = True
) -> Iterable[tuple[str, torch.Tensor]]:
    """Weights for an engine: `named_weights`, or an `AdaptedModel` where there is an adapter.

    Where ranks hold shards, all of them call it at the same time, and those that keep the weights
    get them gathered. Sums are gathered for an engine that walks them: the adapter alone is a
    hundredth of the bytes. Once no engine has walked them, nobody needs them.
    """
    if not is_sharded(model):
        return AdaptedModel(model) if is_adapted(model) else named_weights(model)
    if not is_adapted(model):
        return gathered(named_weights(model), is_kept=is_kept)
    adapter = whole_state(model, is_kept=is_kept)
    added = gathered(named_weights(model), is_kept=is_kept) if is_walked else []
    return AdaptedModel(model, adapter, added)


@torch.no_grad()
def _merged(layer: Any, weight: torch.Tensor) -> torch.Tensor:
    """A copy of the weight of a LoraLayer with its active adapters, added in float32.

    From whole matrices: peft would multiply those that a rank holds.
    """
    total = weight.float()
    for adapter in layer.active_adapters:
        down, up = (whole(one[adapter].weight).float() for one in (layer.lora_A, layer.lora_B))
        added = up @ down * layer.scaling[adapter]
        total = total + (added.T if layer.fan_in_fan_out else added)
    return total.to(weight.dtype)


def save_merged(model: Any, path: Path) -> None:
    """Write an adapted model as a plain transformers model, which knows of no adapter."""
    base = model.get_base_model()
    state = base.state_dict()
    buffers = {name: one for name, one in base.named_buffers() if name in state}
    base.save_pretrained(path, state_dict={**dict(named_weights(model)), **buffers})
