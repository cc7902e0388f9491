"""What a run takes of its device, computed from its model's config before weights are read.

    config of a model, Precision, settings -> Memory -> a row, or what to lower

Counts. Does not know files, nor what activations take on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from repl_rl.config import Config
from repl_rl.engines.base import EngineKind
from repl_rl.engines.models import ModelFiles, cache_bytes, num_embeddings, num_parameters
from repl_rl.engines.precision import Precision
from repl_rl.errors import ConfigError

_GIB, _MIB = 1 << 30, 1 << 20
_LESS_TO_TRAIN = (
    "give a smaller model, or lora.rank = 16, or grpo.kl_beta = 0, or grpo.dtype = 'bfloat16'"
)
_ADAPTER_BYTES = 4
"""Of a number of an adapter: float32, whatever the model is held in."""
_LESS_TO_SAMPLE = "lower sampling.max_in_flight or sampling.max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes; 0 for a part that is not there."""

    weights: int
    num_copies: int = 1
    """Two where there is a reference policy."""
    gradients: int = 0
    optimiser: int = 0
    keys: int = 0
    """Keys and values of all trajectories in flight; for vLLM its weights as well."""

    @property
    def update(self) -> int:
        """Taken while the policy is updated, activations apart."""
        return self.num_copies * self.weights + self.gradients + self.optimiser

    @property
    def sampling(self) -> int:
        """Taken while lines are sampled: gradients are given back before."""
        return self.num_copies * self.weights + self.optimiser + self.keys

    def row(self, free: int) -> str:
        """`weights 2 x 6.4, gradients 6.4, optimiser 12.8, keys 15.4 of 139.8 GiB`."""
        unit, name = (_GIB, "GiB") if max(self.update, self.sampling) >= _GIB else (_MIB, "MiB")
        copies = "" if self.num_copies == 1 else f"{self.num_copies} x "
        parts = {"gradients": self.gradients, "optimiser": self.optimiser, "keys": self.keys}
        others = [f"{part} {_short(size / unit)}" for part, size in parts.items() if size]
        weights = f"weights {copies}{_short(self.weights / unit)}"
        return f"{', '.join([weights, *others])} of {_short(free / unit)} {name}"

    def check(self, free: int) -> None:
        """ConfigError where it cannot fit in `free` bytes, activations apart."""
        for needed, hint in ((self.update, _LESS_TO_TRAIN), (self.sampling, _LESS_TO_SAMPLE)):
            if needed > free:
                raise ConfigError(f"no memory for {self.row(free)}; {hint}")


def measure(
    config: Config,
    engine: EngineKind,
    files: ModelFiles,
    held: Precision,
    *,
    row_tokens: int,
    is_training: bool,
) -> Memory:
    """What a run takes if its trajectories have `row_tokens`, prompts included."""
    num, keys = num_parameters(files.config), 0
    if engine.holds_keys:
        num_rows = config.sampling.max_in_flight
        keys = cache_bytes(files, num_rows=num_rows, row_tokens=row_tokens, dtype=held.sampling)
    if engine.holds_weights:
        keys += num * held.sampling.itemsize
    weights = num * held.weights.itemsize
    is_copied = is_training and config.grpo.kl_beta != 0
    if (adapter := files.adapter) is not None:
        num_trained, num_embedded, itemsize = adapter.num_parameters, 0, _ADAPTER_BYTES
        trained = num_trained * _ADAPTER_BYTES
        # The reference is an adapter, too.
        weights, num_copies = weights + trained * (2 if is_copied else 1), 1
    else:
        num_trained, num_embedded, itemsize = (
            num,
            num_embeddings(files.config),
            held.weights.itemsize,
        )
        trained, num_copies = weights, 2 if is_copied else 1
    if not is_training:
        return Memory(weights=weights, keys=keys)
    return Memory(
        weights=weights,
        num_copies=num_copies,
        gradients=trained,
        optimiser=_moments(
            str(config.trl.get("optim", "")),
            num=num_trained,
            num_embedded=num_embedded,
            itemsize=itemsize,
        ),
        keys=keys,
    )


def _moments(optimiser: str, *, num: int, num_embedded: int, itemsize: int) -> int:
    """What an optimiser keeps of `num` trained weights, by its name in transformers.

    `num_embedded` of them are embeddings, whose moments bitsandbytes keeps in float32.
    """
    if optimiser.startswith(("adafactor", "sgd")):
        return 0  # next to nothing
    num_moments = 1 if "lion" in optimiser or "rmsprop" in optimiser else 2
    if "torch" not in optimiser and "8bit" in optimiser:
        return num_moments * (num - num_embedded + 4 * num_embedded)
    for bits in (8, 4):
        if f"{bits}bit" in optimiser:
            return num_moments * num * bits // 8
    return num_moments * num * itemsize


def _short(number: float) -> str:
    """Four characters for all that a machine has: 0.1, 15.4, 139, 1,024."""
    return f"{number:.1f}" if number < 100 else f"{number:,.0f}"
