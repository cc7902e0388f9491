"""Weights cast for autocast once for each update, and not in every forward.

    float32 matrices -> copies in bfloat16 -> in their places while the engine samples

Autocast casts a matrix whenever it is used, and a forward of a few tokens takes longer to cast
weights than to multiply by them. The copies are what autocast would make, so no bit of a result
changes. They take half of the memory of the weights. Knows modules. Does not know engines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


class CastWeights:
    """Of the linear layers of `model`. What is not one is left to autocast."""

    def __init__(self, model: torch.nn.Module, *, dtype: torch.dtype) -> None:
        self._model = model
        self._dtype = dtype
        self._copies: list[tuple[torch.nn.Linear, torch.nn.Parameter]] = []

    def forget(self) -> None:
        """The weights have moved, or the memory is wanted: the next use makes copies anew."""
        self._copies = []

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        """Let the layers multiply by the copies. The parameters themselves are put back after."""
        if not self._copies:
            self._copies = list(self._cast())
        held = [layer._parameters["weight"] for layer, _ in self._copies]
        try:
            for layer, copy in self._copies:
                layer._parameters["weight"] = copy
            yield
        finally:
            for (layer, _), weight in zip(self._copies, held, strict=True):
                layer._parameters["weight"] = weight

    def _cast(self) -> Iterator[tuple[torch.nn.Linear, torch.nn.Parameter]]:
        if self._dtype is torch.float32:
            return
        for layer in self._model.modules():
            # An embedding that shares its weight with the head reads the float32 one, as under
            # autocast.
            if type(layer) is torch.nn.Linear and layer.weight.dtype is torch.float32:
                yield layer, torch.nn.Parameter(layer.weight.detach().to(self._dtype), False)
