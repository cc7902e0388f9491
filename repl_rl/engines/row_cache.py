"""A KV cache with one row per trajectory, written anywhere and never shifted.

Knows `transformers`' cache protocol. Does not know tokens, requests or sampling.

Rows keep their keys and values between lines, so resuming a trajectory computes nothing twice. A
forward names its rows and, per token, the position to write; a token sees what its row holds up to
its own position, so leftovers of an earlier use are never visible. A row also keeps what a sliding
window has passed: the mask of such a layer hides it.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from repl_rl.engines.shape import attention_windows

# B rows of a forward, Q new tokens per row, H key-value heads, K keys in view, D head dimension


class _RowLayer(CacheLayerMixin):
    """Keys and values of one layer, [rows, H, capacity + 1, D]; the last column takes padding."""

    def __init__(self, cache: RowCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped upstream
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def _allocate(self, like: torch.Tensor) -> torch.Tensor:
        shape = (self._cache.num_rows, like.shape[1], self._cache.capacity + 1, like.shape[3])
        return torch.zeros(shape, dtype=self._cache.kept_in or like.dtype, device=like.device)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write (B, H, Q, D) states at their positions; keys and values of the rows, (B, H, K, D).

        Those of all rows, in place, where the view is a whole one.
        """
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        rows, positions, num_keys = self._cache.rows, self._cache.positions, self._cache.num_keys
        self.keys[rows, :, positions] = key_states.transpose(1, 2).to(self.keys.dtype)
        self.values[rows, :, positions] = value_states.transpose(1, 2).to(self.values.dtype)
        if self._cache.is_whole:
            return self.keys, self.values
        return self.keys[rows[:, 0], :, :num_keys], self.values[rows[:, 0], :, :num_keys]

    def copy(self, source: int, target: int, num_keys: int) -> None:
        for held in (self.keys, self.values):
            assert held is not None
            held[target, :, :num_keys] = held[source, :, :num_keys]

    def grow(self) -> None:
        if not self.is_initialized:
            return
        assert self.keys is not None
        assert self.values is not None
        for name, old in (("keys", self.keys), ("values", self.values)):
            new = self._allocate(old)
            new[:, :, : old.shape[2] - 1] = old[:, :, :-1]
            setattr(self, name, new)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.num_keys, 0

    def get_seq_length(self) -> int:
        return self._cache.num_keys

    def get_max_length(self) -> int:
        return self._cache.capacity


class RowCache(Cache):
    """All layers' rows. `view` says what the next forward works on, `mask` what its tokens see.

    Keys and values are stored in `dtype`; None: as they come, which may be float32 under autocast,
    since rotary positions are computed in it.
    """

    def __init__(
        self, config: Any, *, num_rows: int, capacity: int, dtype: torch.dtype | None = None
    ) -> None:
        # Not `dtype`: accelerate takes what has one for a tensor.
        self.kept_in = dtype
        self._config = config.get_text_config()
        self._windows = attention_windows(config)
        self.num_rows = num_rows
        self.capacity = capacity
        self.rows = torch.empty(0, dtype=torch.long)  # (1, Q) or (B, 1)
        self.positions = torch.empty(0, dtype=torch.long)  # (B, Q)
        self.num_keys = 0
        self.is_whole = False
        self._row_layers = [_RowLayer(self) for _ in range(self._config.num_hidden_layers)]
        super().__init__(layers=list(self._row_layers))

    def view(
        self, rows: torch.Tensor, positions: torch.Tensor, *, num_keys: int, is_whole: bool
    ) -> None:
        """Set rows and write positions (B, Q) of the next forward; keys in sight: num_keys.

        A whole view is for an attention that finds the rows by itself, and each token has a row,
        (1, Q). For any other, the keys of rows (B, 1) are copied together.
        """
        self.rows, self.positions, self.num_keys = rows, positions, num_keys
        self.is_whole = is_whole

    def copy(self, source: int, target: int, *, num_keys: int) -> None:
        """Give the row `target` the first keys and values that the row `source` holds."""
        for layer in self._row_layers:
            layer.copy(source, target, num_keys)

    def mask(
        self, positions: torch.Tensor, *, dtype: torch.dtype
    ) -> torch.Tensor | dict[str, torch.Tensor]:
        """The keys in sight that tokens at `positions` (B, Q) see, (B, 1, Q, K).

        In the form that the model's attention takes; by kind of layer where it has two kinds.
        """
        at = positions[:, None, :, None]
        keys = torch.arange(self.num_keys, device=positions.device)
        masks = {}
        for kind, window in self._windows.items():
            seen = keys <= at
            if window is not None and window < self.num_keys:
                seen = seen & (keys > at - window)
            if self._config._attn_implementation == "eager":
                # Added to the scores: a boolean mask would hide nothing.
                bias = torch.zeros_like(seen, dtype=dtype)
                seen = bias.masked_fill(~seen, torch.finfo(dtype).min)
            masks[kind] = seen
        return masks if len(masks) > 1 else masks.popitem()[1]

    def grow(self, capacity: int) -> None:
        """Make room for longer rows; what they hold stays."""
        self.capacity = capacity
        for layer in self._row_layers:
            layer.grow()

    def reset(self) -> None:
        """Give the memory back; the next forward takes it anew, all zeros."""
        for layer in self._row_layers:
            layer.keys = layer.values = None
            layer.is_initialized = False
