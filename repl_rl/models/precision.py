"""Number types of weights and forwards, by a run's settings and its device.

    grpo.dtype, sampling.dtype, device -> Precision -> autocast, CastWeights, a warning

Decides each type once, and gives forwards their autocast and copies of weights. Knows types of
numbers and linear layers. Does not know models, nor how an update is made.
"""

from __future__ import annotations

import contextlib
import math
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from repl_rl.config.sections import Settings
from repl_rl.errors import ConfigError

_HELD_AND_COMPUTED = {
    "mixed": (torch.float32, torch.bfloat16),
    "float32": (torch.float32, torch.float32),
    "bfloat16": (torch.bfloat16, torch.bfloat16),
}
_TYPICAL_WEIGHT = 0.02
"""Standard deviation that most models begin with; trained ones have about the same."""
_ALMOST_ALL = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Float32 throughout, unless something else is given."""

    weights: torch.dtype = torch.float32
    """Type of the trainer's weights, gradients and optimiser state."""
    update: torch.dtype = torch.float32
    """Type that the trainer's forwards compute in."""
    sampling: torch.dtype = torch.float32
    """Type that the engine's forwards compute in."""
    is_shared: bool = True
    """True where the engine samples from the trainer's own model."""

    @property
    def is_exact(self) -> bool:
        """True where log-probabilities of engine and trainer agree to about 1e-5."""
        return self.update is torch.float32 and self.sampling is torch.float32


class _Kind(Protocol):
    """Part of an `EngineKind` that precision asks for."""

    name: str
    shares_weights: bool


def precision(settings: Settings, engine: _Kind, *, device: str) -> Precision:
    """The precision of a run on a `device` of this kind, `cpu` or `cuda`.

    By default a GPU computes in bfloat16 and a CPU in float32; weights are float32 on both. Raises
    ConfigError where an engine that samples from the trainer's model would be more exact than the
    update.
    """
    dtype = settings.grpo.dtype
    if dtype == "auto":
        dtype = "mixed" if device == "cuda" else "float32"
    weights, update = _HELD_AND_COMPUTED[dtype]
    types = Precision(weights=weights, update=update, is_shared=engine.shares_weights)
    if settings.sampling.dtype == "auto":
        return replace(types, sampling=update)
    sampling: torch.dtype = getattr(torch, settings.sampling.dtype)
    # On a GPU it samples from a copy, of weights that may be more exact than the update.
    is_bound = types.is_shared and (device != "cuda" or weights is not sampling)
    if is_bound and sampling is torch.float32 and update is not sampling:
        raise ConfigError(
            f"sampling.dtype = 'float32' with the engine {engine.name!r}, whose model is the "
            f"trainer's and computes in bfloat16 (grpo.dtype = {dtype!r}); give grpo.dtype = "
            f"'float32' as well"
        )
    return replace(types, sampling=sampling)


def keys_in(sampling: torch.dtype, device: str) -> torch.dtype:
    """Type of keys and values where a model samples in `sampling`: see `hf.attention.attention`.

    >>> keys_in(torch.bfloat16, "cuda"), keys_in(torch.bfloat16, "cpu")
    (torch.bfloat16, torch.float32)
    """
    return torch.float32 if device == "cpu" else sampling


def autocast(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """A context whose forwards compute in `dtype`; float32 leaves them to the weights."""
    return torch.autocast(device.type, torch.bfloat16, enabled=dtype is torch.bfloat16)


@contextlib.contextmanager
def unwrapped(model: torch.nn.Module) -> Iterator[None]:
    """Let the model compute in the type that its caller chooses, within the block.

    accelerate lays an autocast of its own around the forward of a model that it has prepared, and
    keeps the one below as `_original_forward`.
    """
    own = vars(model)
    if (below := own.get("_original_forward")) is None:
        yield
        return
    wrapper, own["forward"] = own["forward"], below
    try:
        yield
    finally:
        own["forward"] = wrapper


def is_fast_in_bfloat16(device: torch.device) -> bool:
    """Say whether its products in bfloat16 are faster than in float32: on a CPU without
    instructions for them they are many times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # oneDNN computes in it on any AVX512, which may take longer than float32.
    has_products = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    is_fast = has_products or platform.machine() not in ("x86_64", "AMD64")
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and is_fast


def slowness(types: Precision, device: torch.device) -> str | None:
    """A sentence where forwards in float32 would take much less time; None otherwise."""
    # What samples elsewhere has a device of its own.
    here = (types.update, types.sampling) if types.is_shared else (types.update,)
    if torch.bfloat16 not in here or is_fast_in_bfloat16(device):
        return None
    name = "grpo.dtype" if types.update is torch.bfloat16 else "sampling.dtype"
    return (
        f"warning: {name} asks for bfloat16, which this {device.type} has no instructions for: "
        f"'float32' is many times faster"
    )


def share_moved_in_bfloat16(learning_rate: float) -> float:
    """The share of bfloat16 weights that a step of Adam moves; the step is `learning_rate` long.

    Between 2**e and 2**(e + 1) numbers of 8 bits are 2**(e - 7) apart, and half of that or less is
    rounded away. At 1e-6 weights below 2**-11 move: 2 % of a normal distribution with deviation
    0.02.
    """
    if learning_rate == 0:
        return 0.0
    largest_moved = 2.0 ** math.ceil(math.log2(learning_rate) + 8)
    return math.erf(largest_moved / _TYPICAL_WEIGHT / math.sqrt(2))


def warning(types: Precision, *, learning_rate: float) -> str | None:
    """A sentence where most of what a run learns is lost to rounding; None otherwise."""
    share = share_moved_in_bfloat16(learning_rate)
    if types.weights is not torch.bfloat16 or share > _ALMOST_ALL:
        return None
    return (
        f"warning: grpo.dtype = 'bfloat16' at grpo.learning_rate = {learning_rate:g}: a step moves "
        f"about {share:.1%} of the weights, the rest is rounded away; 'auto' moves all"
    )


class CastWeights:
    """Copies of the weights of `model`'s linear layers; all else is left to autocast."""

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
        weights = [layer._parameters["weight"] for layer, _ in self._copies]
        try:
            for layer, copy in self._copies:
                layer._parameters["weight"] = copy
            yield
        finally:
            for (layer, _), weight in zip(self._copies, weights, strict=True):
                layer._parameters["weight"] = weight

    def _cast(self) -> Iterator[tuple[torch.nn.Linear, torch.nn.Parameter]]:
        if self._dtype is torch.float32:
            return
        for layer in self._model.modules():
            # An embedding that shares its weight with the head reads the float32 one, as under
            # autocast.
            if type(layer) is torch.nn.Linear and layer.weight.dtype is torch.float32:
                yield layer, torch.nn.Parameter(layer.weight.detach().to(self._dtype), False)
