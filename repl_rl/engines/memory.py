"""Memory of a run on its device, computed from its model's config before weights are read.

    config of a model, Precision, settings -> Memory -> a row, or what to lower

Also turns a lack of memory into one line (`shortage_explained`). Counts. Does not know files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from repl_rl.config.sections import Checkpointing, GRPOConfig, Settings
from repl_rl.engines.base import EngineKind
from repl_rl.errors import ConfigError, ShortageError
from repl_rl.models.loading import ModelFiles, cache_bytes, num_embeddings, num_parameters, sees_all
from repl_rl.models.precision import Precision, keys_in

_GIB, _MIB = 1 << 30, 1 << 20
_LESS_TO_TRAIN = (
    "give a smaller model, or lora.rank = 16, or grpo.kl_beta = 0, or grpo.dtype = 'bfloat16'"
)
_ADAPTER_BYTES = 4
"""Size of a number of an adapter: float32, whatever the model is held in."""
PARTS = 4
"""Forwards that a micro-batch is cut into, where it is not forwarded as a tree: see
`LineGRPOTrainer.length_parts`."""
_TILE_TOKENS, _TILE_WIDTH = 4096, 32_768
"""Logits that TRL's head holds at a time."""
TORCH_TILE_WIDTH = 4096
"""Width of the tile without Triton, where the head makes copies of the logits."""
_TORCH_TILES = 8
"""Copies of them that it makes without Triton."""
_MOST_TAKEN = 0.9
"""Share of free memory that a plan takes: an estimate may be too low."""
_SHARE_OF_UPDATE = 0.6
"""Share of free memory for an update whose micro-batches are larger than they have to be."""
LESS_TO_SAMPLE = "lower sampling.max_in_flight or sampling.max_tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes; 0 for a part that is not there."""

    weights: int
    num_copies: int = 1
    """Two where there is a reference policy."""
    gradients: int = 0
    optimiser: int = 0
    activations: int = 0
    """All else that a backward holds at its peak, if trajectories are as long as they may be."""
    keys: int = 0
    """Keys and values of all trajectories in flight; where an engine computes in other weights than
    the trainer's, these as well."""
    overlaps: bool = False
    """True where lines are sampled during an update."""

    @property
    def update(self) -> int:
        """Taken by the weights, the reference, the gradients and the optimiser: what must fit."""
        held = self.keys if self.overlaps else 0
        return self.num_copies * self.weights + self.gradients + self.optimiser + held

    @property
    def update_peak(self) -> int:
        """Taken while the policy is updated."""
        return self.update + self.activations

    @property
    def sampling(self) -> int:
        """Taken while lines are sampled: gradients are given back before."""
        return self.num_copies * self.weights + self.optimiser + self.keys

    def spare(self, free: int) -> int:
        """Bytes of `free` that an update does without, with some room for what was not foreseen."""
        return max(0, int(_MOST_TAKEN * free) - self.update_peak)

    def row(self, free: int) -> str:
        """`weights 2 x 6.4, optimiser 12.8, update 9.1, keys 15.4 of 139.8 GiB`.

        An update takes gradients and activations, and gives them back before keys are needed.
        """
        most = max(self.update_peak, self.sampling)
        unit, name = (_GIB, "GiB") if most >= _GIB else (_MIB, "MiB")
        copies = "" if self.num_copies == 1 else f"{self.num_copies} x "
        for_update = self.gradients + self.activations
        parts = {"optimiser": self.optimiser, "update": for_update, "keys": self.keys}
        others = [f"{part} {_short(size / unit)}" for part, size in parts.items() if size]
        weights = f"weights {copies}{_short(self.weights / unit)}"
        return f"{', '.join([weights, *others])} of {_short(free / unit)} {name}"

    def check(self, free: int) -> None:
        """ConfigError where it cannot fit in `free` bytes, whatever trajectories are like."""
        for needed, hint in ((self.update, _LESS_TO_TRAIN), (self.sampling, LESS_TO_SAMPLE)):
            if needed > free:
                raise ConfigError(f"no memory for {self.row(free)}; {hint}")


def must_recompute(setting: Checkpointing, taken: Callable[[bool], Memory], free: int) -> bool:
    """Say whether an update makes activations again: as `setting` says, else where keeping them
    takes more than most of `free`.

    `taken` gives what a run takes with and without.
    """
    return taken(False).update_peak > _MOST_TAKEN * free if setting == "auto" else setting


def rows_at_once(
    settings: Settings, num_rows: int, *, taken: Callable[[int], Memory], free: int
) -> int:
    """Trajectories of a GPU's micro-batch where `grpo.micro_batch_size` is `auto`.

    The largest divisor of `num_rows` that an estimate finds to fit with room to spare, since
    launches cost a GPU as much for one row as for all. `taken` gives what a run takes with so many.
    """
    usual = settings.grpo.most_rows
    # The results of these depend on how rows are dealt out, so they must not depend on memory.
    is_bound = settings.grpo.loss_type == "bnpo" or any("entropy" in name for name in settings.trl)
    larger = [n for n in range(num_rows, usual, -1) if num_rows % n == 0]
    fits = (n for n in larger if taken(n).update_peak <= _SHARE_OF_UPDATE * free)
    return usual if is_bound else next(fits, usual)


def measure(
    settings: Settings,
    engine: EngineKind,
    files: ModelFiles,
    types: Precision,
    *,
    row_tokens: int,
    is_training: bool,
    recomputes: bool = False,
    device: str = "cpu",
    num_shards: int | None = None,
) -> Memory:
    """Memory of a run whose trajectories have `row_tokens`, prompts included.

    With `recomputes` an update keeps no activations but those between layers. With `num_shards`
    each of so many ranks holds a part of the weights, the gradients and the optimiser's state.

    `benchmarks/memory.py` holds it to what updates take.
    """
    num, keys = num_parameters(files.config), 0
    if engine.holds_keys:
        num_tokens = engine.kept_tokens(settings.sampling.max_in_flight, row_tokens)
        dtype = keys_in(types.sampling, device) if engine.shares_weights else types.sampling
        keys = cache_bytes(files, num_tokens=num_tokens, dtype=dtype)
    # See `CastWeights` and, on a GPU, `Shadow`.
    is_cast = types.sampling is not types.weights or device == "cuda"
    if engine.holds_weights or (engine.shares_weights and is_cast):
        keys += num * types.sampling.itemsize
    weights = num * types.weights.itemsize
    is_copied = is_training and settings.grpo.kl_beta != 0
    if (adapter := files.adapter) is not None:
        num_trained, num_embedded, itemsize = adapter.num_parameters, 0, _ADAPTER_BYTES
        trained = num_trained * _ADAPTER_BYTES
        # The reference is an adapter, too.
        weights, num_copies = weights + trained * (2 if is_copied else 1), 1
    else:
        num_trained, num_embedded, itemsize = (
            num,
            num_embeddings(files.config),
            types.weights.itemsize,
        )
        trained, num_copies = weights, 2 if is_copied else 1
    if not is_training:
        return Memory(weights=weights, keys=keys)
    num_rows, part_rows = _micro_batch(settings.grpo, files)
    shards, for_forward = num_shards or 1, 0
    weights, trained = -(-weights // shards), -(-trained // shards)
    if num_shards is not None:
        for_forward = _gathered(files, types, is_reference_whole=num_copies == 2)
    # Autograd sums the gradients of several parts before it adds them to those of other
    # micro-batches, so both are there.
    num_all = settings.grpo.problems_per_step * settings.grpo.group_size
    gradients = trained * (2 if part_rows < num_rows < num_all else 1)
    return Memory(
        weights=weights,
        num_copies=num_copies,
        gradients=gradients,
        optimiser=_moments(
            str(settings.trl.get("optim", "")),
            num=num_trained // shards,
            num_embedded=num_embedded // shards,
            itemsize=itemsize,
        ),
        activations=_activations(
            settings,
            files,
            types,
            device=device,
            recomputes=recomputes,
            row_tokens=row_tokens,
            gradients=gradients,
            is_whole=adapter is None,
            is_sharded=num_shards is not None,
        )
        + for_forward,
        keys=keys,
        overlaps=settings.grpo.staleness > 0,
    )


def _gathered(files: ModelFiles, types: Precision, *, is_reference_whole: bool) -> int:
    """Bytes of what a forward of shards gathers: the embeddings, a layer and the one after it.

    TRL shards a reference as one piece.
    """
    num, num_embedded = num_parameters(files.config), num_embeddings(files.config)
    a_layer = (num - num_embedded) // files.config.get_text_config().num_hidden_layers
    num_gathered = num_embedded + 2 * a_layer + num * is_reference_whole
    return int(num_gathered * types.update.itemsize)


def _micro_batch(grpo: GRPOConfig, files: ModelFiles) -> tuple[int, int]:
    """Rows of one backward, and of each forward in which the trainer makes it."""
    num_rows = min(grpo.most_rows, grpo.problems_per_step * grpo.group_size)
    return num_rows, num_rows if sees_all(files.config) else -(-num_rows // PARTS)


def _activations(
    settings: Settings,
    files: ModelFiles,
    types: Precision,
    *,
    device: str,
    recomputes: bool,
    row_tokens: int,
    gradients: int,
    is_whole: bool,
    is_sharded: bool,
) -> int:
    """Bytes that a backward holds at its peak beside `gradients`; `is_whole`: every weight has one.

    The activations of all parts are kept for the backward. Once the first part has gone backward
    all gradients are there, and the activations of the other parts.
    """
    model, size = files.config.get_text_config(), types.update.itemsize
    num_rows, part_rows = _micro_batch(settings.grpo, files)
    a_layer = _layer_numbers(model) * size
    # Layers hand on what the embedding made, in the type of the weights.
    handed_on = model.hidden_size * types.weights.itemsize
    kept = (handed_on if recomputes else a_layer) * model.num_hidden_layers * row_tokens
    again = a_layer * row_tokens * part_rows if recomputes else 0
    saved = max(kept * num_rows - gradients, kept * (num_rows - part_rows))
    num_scored = part_rows * min(row_tokens, settings.sampling.max_tokens)
    num_tiles, width = (1, _TILE_WIDTH) if device == "cuda" else (_TORCH_TILES, TORCH_TILE_WIDTH)
    tile = min(num_scored, _TILE_TOKENS) * min(model.vocab_size, width) * size
    table = copies = 0
    if is_whole:
        # The head's gradient is summed in float32 beside the one that is there.
        table = 4 * model.vocab_size * model.hidden_size
        if size < types.weights.itemsize and not is_sharded:
            # Autocast keeps a copy of each matrix until the backward is over.
            copies = size * (num_parameters(files.config) - num_embeddings(files.config))
    return int(saved + again + num_tiles * tile + table + copies)


def _layer_numbers(model: Any) -> int:  # Any: a config of any model
    """Numbers that a layer keeps of each token for its backward: inputs of norms, matrices and
    attention, and what a gated MLP multiplies."""
    heads = model.num_attention_heads
    head_dim = getattr(model, "head_dim", None) or model.hidden_size // heads
    num_queries = heads * head_dim
    num_keys = (getattr(model, "num_key_value_heads", None) or heads) * head_dim
    inner = getattr(model, "intermediate_size", None) or 4 * model.hidden_size
    return int(10 * model.hidden_size + 4 * (num_queries + 2 * num_keys) + 4 * inner)


def _moments(optimiser: str, *, num: int, num_embedded: int, itemsize: int) -> int:
    """Bytes that an optimiser keeps of `num` trained weights, by its name in transformers.

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


_SAID = ("allocate memory", "out of memory", "OutOfMemoryError", "MemoryError")
"""By torch on a CPU, which has no type of its own, on a GPU, and by engines that quote them."""


@contextlib.contextmanager
def shortage_explained(purpose: str, *, remedy: str) -> Iterator[None]:
    """ShortageError where the block finds no memory; it says what for, and what to do."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(text in str(error) for text in _SAID):
            raise
        raise ShortageError(f"no memory for {purpose}; {remedy}") from error
